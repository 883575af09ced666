"""Damaged rows of memory that a repair put aside may quote any turn, so every deletion removes them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import apsw
import asyncpg
import pytest

import palaver
from palaver import Conversation, Scope, Store
from tests.security.test_erasing import traces
from tests.support.memory import ELSEWHERE, url

pytestmark = [pytest.mark.both_engines, pytest.mark.usefixtures("engine")]

WORD = "zqvbnmdfgh"


async def put_aside(folder: Path, conversation: str) -> None:
    """Store a row as a repair of damaged notes does."""
    data = json.dumps({"goals": [{"text": WORD}]})
    if folder not in ELSEWHERE:
        db = apsw.Connection(f"{folder}/chat.db")
        db.set_busy_timeout(10_000)
        db.execute(
            "INSERT INTO set_aside (cid, source, at, data) SELECT cid, 'working_memory', 1, ? FROM conversations"
            " WHERE id = ?",
            (data.encode(), conversation),
        )
        db.close()
        return
    postgres = await asyncpg.connect(ELSEWHERE[folder])
    await postgres.execute(
        "INSERT INTO palaver.set_aside (tenant, cid, source, at, data) SELECT tenant, cid, 'working_memory', 1, $1"
        " FROM palaver.conversations WHERE id = $2",
        data,
        conversation,
    )
    await postgres.close()


async def forget_turn(_store: Store, talk: Conversation) -> None:
    await talk.forget((await talk.history(limit=1))[0])


async def forget(_store: Store, talk: Conversation) -> None:
    await talk.forget()


async def reset(_store: Store, talk: Conversation) -> None:
    await talk.reset()


async def expire(store: Store, talk: Conversation) -> None:
    await talk.update(ttl=0.000001)
    while talk.id not in await store.expire():
        pass


async def erase(store: Store, _talk: Conversation) -> None:
    await store.erase_user("ada")


WAYS: dict[str, Callable[[Store, Conversation], Awaitable[None]]] = {
    "forget turn": forget_turn,
    "forget": forget,
    "reset": reset,
    "expire": expire,
    "erase_user": erase,
}


@pytest.mark.parametrize(("way", "turns"), [*((way, 2) for way in WAYS), ("forget", 130), ("reset", 130)])
async def test_no_byte_of_a_damaged_row_outlives_a_deletion(tmp_path: Path, way: str, turns: int) -> None:
    async with palaver.open(url(tmp_path), embedder="none", worker=False) as store:
        ada = store.scoped(Scope.of("default", "ada"))
        talk = await ada.conversation("victim")
        other = await store.scoped(Scope.of("default", "bob")).conversation("other")
        await other.append("user", "hello")
        await talk.append_many([{"role": "user", "content": f"turn {n}"} for n in range(turns)])
        await put_aside(tmp_path, talk.id)
        assert await traces(tmp_path, WORD), "the test must be able to see it"
        await WAYS[way](store, talk)
        assert await traces(tmp_path, WORD) == []


async def test_erasing_a_person_removes_damaged_rows_of_conversations_that_they_took_part_in(tmp_path: Path) -> None:
    async with palaver.open(url(tmp_path), embedder="none", worker=False) as store:
        talk = await store.scoped(Scope.of("default", "bob")).conversation("shared", participants=["ada"])
        await talk.append("user", "hello")
        await (await store.scoped(Scope.of("default", "ada")).get(talk.id)).append("user", "hi")
        await put_aside(tmp_path, talk.id)
        await store.erase_user("ada")
        assert await traces(tmp_path, WORD) == []
        assert [turn.text for turn in await talk.history()] == ["hello"]
