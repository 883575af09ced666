"""A primary and a streaming replica on the loopback: what is acknowledged is on both, whatever happens to the first."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass

import asyncpg
import pytest

import palaver
from palaver import Conversation
from palaver.errors import DatabaseReadOnly, EngineUnavailable
from tests.support import postgres_server
from tests.support.postgres_server import DURABLE, Server, migrate_for_tests

WRITERS = 8
SECONDS = 60


@dataclass
class Pair:
    """The same database at two addresses."""

    primary: Server
    replica: Server
    database: str

    @property
    def url(self) -> str:
        return postgres_server.as_application(self.primary.at(self.database))

    @property
    def follower_url(self) -> str:
        return postgres_server.as_application(self.replica.at(self.database))


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    """A commit is acknowledged when the replica has it on disk and shows it."""
    try:
        primary = postgres_server.start(DURABLE)
    except postgres_server.NoPostgres as reason:
        pytest.skip(str(reason))
    replica = None
    try:
        database = await postgres_server.new_database(primary)
        await migrate_for_tests(primary.at(database))
        replica = postgres_server.replica_of(primary, DURABLE)
        await postgres_server.execute(
            primary.url,
            "ALTER SYSTEM SET synchronous_standby_names = 'replica'",
            "ALTER DATABASE " + database + " SET synchronous_commit = 'remote_apply'",
            "SELECT pg_reload_conf()",
        )
        await _until(primary.url, "SELECT bool_or(sync_state = 'sync') FROM pg_stat_replication")
        yield Pair(primary, replica, database)
    finally:
        for server in (primary, replica):
            if server is not None:
                with suppress(ProcessLookupError):
                    postgres_server.remove(server)


async def _until(url: str, question: str) -> None:
    """Ask until the answer is yes."""
    async with asyncio.timeout(SECONDS):
        connection = await asyncpg.connect(url)
        try:
            while not await connection.fetchval(question):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        finally:
            await connection.close()


async def test_turns_and_events_appear_on_the_follower_and_verify_there(pair: Pair) -> None:
    async with palaver.open(pair.url, embedder=None) as store:
        talk = await store.conversation("long")
        stored = await talk.append_many({"role": "user", "content": f"Turn {n} of many."} for n in range(120))
        await talk.forget(stored[3])
        await store.settle()
        events = await talk.audit()
        async with palaver.open(pair.follower_url, embedder=None, worker=False) as follower:
            same = await follower.get(talk.id)
            assert [turn.id for turn in await same.history(limit=200)] == [
                turn.id for turn in await talk.history(limit=200)
            ]
            assert await same.audit() == events
            await same.verify()
            assert (await same.build_context(800)).text == (await talk.build_context(800)).text
            with pytest.raises(DatabaseReadOnly):
                await same.append("user", "A follower only answers.")


async def test_reads_go_to_the_follower_when_one_is_named(pair: Pair) -> None:
    async with palaver.open(pair.url, read_url=pair.follower_url, embedder=None, worker=False) as store:
        talk = await store.conversation("read")
        turn = await talk.append("user", "Written here, read there.")
        assert [one.id for one in await talk.history()] == [turn.id]
        await talk.verify()


@pytest.mark.parametrize("turns", [200, pytest.param(5_000, marks=pytest.mark.slow)])
async def test_no_acknowledged_turn_is_lost_when_the_primary_is_killed(pair: Pair, turns: int) -> None:
    acknowledged: list[str] = []
    enough = asyncio.Event()

    async def write(talk: Conversation, writer: int) -> None:
        n = 0
        while True:
            turn = await talk.append("user", f"Turn {n} of writer {writer}.")
            acknowledged.append(turn.id)
            n += 1
            if len(acknowledged) >= turns:
                enough.set()

    async with palaver.open(pair.url, embedder=None, worker=False) as store:
        talk = await store.conversation("busy")
        writers = [asyncio.create_task(write(talk, n)) for n in range(WRITERS)]
        async with asyncio.timeout(SECONDS * 4):
            await enough.wait()
        postgres_server.stop(pair.primary, signal.SIGKILL)
        async with asyncio.timeout(SECONDS):
            ends = await asyncio.gather(*writers, return_exceptions=True)
    assert {type(end) for end in ends} == {EngineUnavailable}

    await postgres_server.execute(pair.replica.url, "SELECT pg_promote()")
    async with palaver.open(pair.follower_url, embedder=None, worker=False) as store:
        talk = await store.conversation("busy")
        there = {turn.id async for turn in _all(talk)}
        assert [id for id in acknowledged if id not in there] == []
        await talk.verify()
        after = await talk.append("user", "And it goes on.")
        assert after.seq == len(there)


async def _all(talk: Conversation) -> AsyncIterator[palaver.Turn]:
    """Read all rows, the newest first."""
    before = None
    while page := await talk.history(limit=1_000, before=before):
        for turn in page:
            yield turn
        before = page[0]
