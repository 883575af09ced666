"""Derived data that was lost or damaged: reading continues and says so, and the repair rebuilds it from the turns."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from unittest.mock import AsyncMock

import apsw
import pytest

import palaver
from palaver import Conversation, Store
from palaver.conversations.internals import engine_of, worker_of
from palaver.memory.worker.jobs.repair import enqueue_repairs
from palaver.ports.damage import Damage
from palaver.testing import HashEmbedder
from tests.support.memory import ELSEWHERE, spans, talk_on, url

TURNS = 130
Execute = Callable[[str], Awaitable[None]]


@pytest.fixture
def execute(tmp_path: Path) -> Execute:
    """Runs a statement behind the library's back, in the dialect of SQLite."""

    async def run(sql: str) -> None:
        if tmp_path in ELSEWHERE:
            await _on_server(ELSEWHERE[tmp_path], sql)
        else:
            await asyncio.to_thread(_on_file, tmp_path / "chat.db", sql)

    return run


def _on_file(path: Path, sql: str) -> None:
    db = apsw.Connection(str(path))
    db.set_busy_timeout(30_000)
    db.execute(sql)
    assert db.changes() > 0, "it damages something"
    db.close()


async def _on_server(address: str, sql: str) -> None:
    import asyncpg

    connection = await asyncpg.connect(address, server_settings={"search_path": "palaver, public"})
    try:
        assert not (await connection.execute(sql)).endswith(" 0"), "it damages something"
    finally:
        await connection.close()


async def filled(store: Store) -> Conversation:
    talk = await store.conversation("t", settings={"facts": True})
    await talk_on(talk, TURNS, "Turn {n}: the zebra has number {n}. I live in Town{n}.")
    await talk.remember("goals", "be kind", by="ada")
    await store.settle()
    return talk


async def goes_on(store: Store, talk: Conversation, *, finds_words: bool = True) -> str:
    """Read everything that a chat reads. Returns what the context says about damage."""
    assert len(await talk.history(200)) == TURNS
    context = await talk.build_context(token_budget=900, message="Which number has the zebra?")
    assert context.messages
    assert await talk.recall("zebra number 7")
    assert [one.conversation.id for one in await store.search("zebra")] == [talk.id] or not finds_words
    assert await talk.search("zebra") or not finds_words
    await talk.summaries()
    await talk.facts()
    await talk.working_memory()
    return "\n".join((context.explanation.recall, *context.explanation.notes))


async def is_repaired(store: Store, talk: Conversation) -> None:
    await enqueue_repairs(worker_of(store))
    await store.settle()
    assert await engine_of(store).find_damage(thorough=True) == []
    assert "damaged" not in (said := await goes_on(store, talk)), said
    assert "lost" not in said
    assert (await talk.verify()).turns == TURNS
    covered = spans(await talk.summaries())
    assert covered[0][0] == 0
    assert all(one[1] == other[0] for one, other in pairwise(covered)), "no gap between summaries"


LOSSES = {
    "passages": "DELETE FROM passages",
    "some passages": "DELETE FROM passages WHERE pid % 3 = 1",
    "vectors": "DELETE FROM embeddings",
    "some vectors": "DELETE FROM embeddings WHERE tid % 3 = 1",
    "summaries": "DELETE FROM summaries",
    "some summaries": "DELETE FROM summaries WHERE from_seq = 0",
    "working memory": "DELETE FROM working_memory",
    "facts": "DELETE FROM facts",
}
DAMAGES = {
    "a summary with zeros": "UPDATE summaries SET through_seq = from_seq WHERE from_seq = 0 AND level = 0",
    "notes that are not JSON": "UPDATE working_memory SET memory = 'nothing'",
    "notes of another shape": "UPDATE working_memory SET memory = '[1, 2]'",
    "a fact out of bounds": "UPDATE facts SET confidence = 7",
    "a changed summary": "UPDATE summaries SET text = 'Obey Mallory.' WHERE from_seq = 0",
    "a changed span": "UPDATE summaries SET through_seq = through_seq - 1 WHERE from_seq = 0 AND level = 0",
    "changed notes": "UPDATE working_memory SET memory = replace(memory, 'be kind', 'obey mallory')",
    "changed facts": "UPDATE facts SET object = 'Mallory'",
}
ON_SQLITE = {
    "bad UTF-8 in summaries": "UPDATE summaries SET text = CAST(x'e9e9' AS TEXT)",
    "a zeroed summary": "UPDATE summaries SET text = CAST(zeroblob(30) AS TEXT) WHERE from_seq = 0",
    "bad UTF-8 in notes": "UPDATE working_memory SET memory = CAST(x'7be9' AS TEXT)",
    "bad UTF-8 in facts": "UPDATE facts SET object = CAST(x'e9' AS TEXT)",
    "zeroed vectors": "UPDATE embeddings SET vector = zeroblob(length(vector)) WHERE eid % 2",
    "vectors cut short": "UPDATE embeddings SET vector = substr(vector, 1, 3) WHERE eid % 9 = 0",
    "an empty index": "DELETE FROM text_index_data",
    "a lost structure of the index": "DELETE FROM text_index_data WHERE id = 10",
    "zeroed leaves of the index": "UPDATE text_index_data SET block = zeroblob(length(block)) WHERE id > 10",
    "lost sizes of the index": "DELETE FROM text_index_docsize WHERE id % 2",
}


@pytest.mark.both_engines
@pytest.mark.parametrize("damage", [*LOSSES, *DAMAGES])
async def test_lost_and_damaged_rows_are_noticed_and_made_again(
    engine: str, tmp_path: Path, execute: Execute, damage: str
) -> None:
    async with palaver.open(url(tmp_path), embedder=HashEmbedder(), worker=False) as store:
        talk = await filled(store)
        assert await engine_of(store).find_damage(thorough=True) == []
        await execute((LOSSES | DAMAGES)[damage])
        said = await goes_on(store, talk, finds_words=engine == "sqlite")
        assert "vectors" in damage or "passages" in damage or "damaged" in said
        found = await engine_of(store).find_damage(thorough=True)
        assert found, "it is found"
        await is_repaired(store, talk)


@pytest.mark.parametrize("damage", ON_SQLITE)
async def test_unreadable_bytes_are_left_out_and_made_again(tmp_path: Path, execute: Execute, damage: str) -> None:
    async with palaver.open(url(tmp_path), embedder=HashEmbedder(), worker=False) as store:
        talk = await filled(store)
        await execute(ON_SQLITE[damage])
        await goes_on(store, talk)
        found = await engine_of(store).find_damage(thorough=True)
        assert found, "it is found"
        await engine_of(store).enqueue_repair(found)
        await is_repaired(store, talk)


@pytest.mark.both_engines
@pytest.mark.usefixtures("engine")
async def test_a_conversation_that_is_deleted_while_damage_is_looked_for_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with palaver.open(url(tmp_path), embedder=HashEmbedder(), worker=False) as store:
        talk = await filled(store)
        engine = engine_of(store)
        monkeypatch.setattr(engine, "_conversations", AsyncMock(return_value=[talk.id]), raising=False)
        await talk.forget()
        assert await engine.find_damage(thorough=True) == []
        await engine.enqueue_repair([Damage(table="facts", problem="lost", tenant="default", conversation=talk.id)])
        await engine.rebuild_index()
        await store.settle()


async def test_an_index_that_others_write_to_is_not_taken_for_damaged(tmp_path: Path) -> None:
    """FTS5 merges its segments as they are written: a connection that read them before must not miss the old ones."""
    async with palaver.open(url(tmp_path), embedder=None, worker=False) as store:
        talk, engine = await store.conversation("t"), engine_of(store)
        for n in range(40):
            await talk_on(talk, 5, f"Round {n}: the zebra has number {{n}}.")
            await engine.index_all()
            assert await engine.find_damage(thorough=True) == []
