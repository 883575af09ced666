"""Forgetting a turn deletes request bodies that quote it, whichever transaction commits first."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

import palaver
from palaver import Conversation, Store, Turn
from palaver.conversations.internals import clock_of
from palaver.core.identity import micros
from palaver.engines.postgres.transports import open_connection

WORD = "zqbcdfghjklmnp"
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@dataclass
class Place:
    """A turn, a conversation that quotes it, two connections that compete, and one that observes."""

    store: Store
    source: Conversation
    said: Turn
    talk: Conversation
    one: Any
    other: Any
    admin: Any

    async def put(self, connection: Any) -> None:
        """Store a request with a body that quotes the turn."""
        now, body = micros(clock_of(self.store).now()), json.dumps({"input": WORD})
        request = {"id": "r", "purpose": "generate", "at": now, "model": "m", "adapter": "a", "body": body}
        request["quoted"] = [[self.source.id, self.said.id]]
        call = "SELECT palaver_api.put_request($1, $2, $3)"
        await connection.execute(call, WHO, self.talk.id, json.dumps(request))

    async def forget(self, connection: Any, way: str) -> None:
        if way == "turn":
            call = "SELECT palaver_api.forget_turn($1, $2, $3)"
            await connection.execute(call, WHO, self.source.id, self.said.id)
        else:
            await connection.execute(f"SELECT palaver_api.{way}($1, $2)", WHO, self.source.id)

    async def somebody_waits(self) -> None:
        async with asyncio.timeout(60):
            while not await self.admin.fetchval(WAITING):
                pass


WHO = json.dumps({"tenant": "default", "user": "ada"})
WAYS = ["turn", "reset", "forget_conversation"]


@pytest.fixture
async def place(postgres_database: str, postgres_url: str) -> AsyncIterator[Place]:
    async with palaver.open(postgres_url, user="ada", worker=False) as store:
        source, talk = await store.conversation("source"), await store.conversation("k")
        said = await source.append("user", f"The word is {WORD}.")
        async with (
            open_connection(postgres_database) as one,
            open_connection(postgres_database) as other,
            open_connection(postgres_database) as admin,
        ):
            yield Place(store, source, said, talk, one, other, admin)


@pytest.mark.parametrize("way", WAYS)
async def test_who_forgets_waits_for_a_body_that_is_being_stored(place: Place, way: str) -> None:
    async with place.one.transaction():
        await place.put(place.one)
        forgetting = asyncio.create_task(place.forget(place.other, way))
        await place.somebody_waits()
    await forgetting
    (request,) = await place.talk.requests()
    assert request.body is None


@pytest.mark.parametrize("way", WAYS)
async def test_a_body_that_comes_while_its_quotation_is_forgotten_is_not_stored(place: Place, way: str) -> None:
    async with place.one.transaction():
        await place.forget(place.one, way)
        storing = asyncio.create_task(place.put(place.other))
        await place.somebody_waits()
    await storing
    (request,) = await place.talk.requests()
    assert request.body is None
    assert await place.admin.fetchval("SELECT count(*) FROM palaver.request_quotes") == 0


async def test_a_body_that_is_left_alone_stays(place: Place) -> None:
    await place.put(place.one)
    await place.put(place.other)  # add the response
    (request,) = await place.talk.requests()
    assert request.body == {"input": WORD}
    assert await place.admin.fetchval("SELECT count(*) FROM palaver.request_quotes") == 1
    await place.talk.reset()
    assert await place.admin.fetchval("SELECT count(*) FROM palaver.request_quotes") == 0
