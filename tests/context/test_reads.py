"""The rows that a context reads depend on its budget, not on how long the conversation is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import asyncpg
import pytest

import palaver
from palaver.conversations.internals import engine_of
from palaver.core.identity import new_id
from palaver.memory.compaction import FAN_OUT
from palaver.ports.memory import SummaryDraft

SPAN = 2  # turns of a summary: short, so that a few thousand turns have as many summaries as a very long conversation
SHORT, LONG = 1_000, 4_000  # turns; the shorter one already has more of everything than a context counts
WITHOUT_RECALL = {"semantic_recall": False}


@contextmanager
def counting_steps() -> Iterator[list[int]]:
    """Count the instructions, in hundreds, of all SQLite connections that are opened inside this block."""
    counted = [0]

    def count() -> bool:
        counted[0] += 1
        return False

    def watch(connection: apsw.Connection) -> None:
        connection.set_progress_handler(count, 100)

    apsw.connection_hooks.append(watch)
    try:
        yield counted
    finally:
        apsw.connection_hooks.remove(watch)


async def fill(store: palaver.Store, turns: int) -> None:
    """Store a conversation with facts, and summaries on every level."""
    talk = await store.conversation("k", settings={"facts": True})
    for start in range(0, turns, 1_000):
        await talk.append_many(
            {"role": "user", "content": f"My dog is called Rex {n}."} for n in range(start, start + 1_000)
        )
    engine = engine_of(store)
    spans, level = [(start, start + SPAN) for start in range(0, turns - 100, SPAN)], 0
    while spans:
        revision = (await engine.unsummarised(store.scope, talk.id, 0)).revision
        for first, last in spans:
            draft = SummaryDraft(
                id=new_id(), level=level, from_seq=first, through_seq=last, turns=last - first, tokens=9, text="Dogs.",
                token_count=2, model="test", revision=revision,
            )  # fmt: skip
            assert await engine.put_summary(store.scope, talk.id, draft)
        whole = len(spans) // FAN_OUT * FAN_OUT
        spans = [(spans[n][0], spans[n + FAN_OUT - 1][1]) for n in range(0, whole, FAN_OUT)]
        level += 1


async def steps_of_a_context(folder: Path, turns: int) -> int:
    with counting_steps() as counted:
        async with palaver.open(f"sqlite:///{folder}/{turns}.db", embedder=None, worker=False) as store:
            await fill(store, turns)
            talk = await store.find("k")
            for _ in range(4):  # each of the first ones searches a part of the old turns for instructions
                await talk.build_context(2_000, **WITHOUT_RECALL)
            counted[0] = 0
            await talk.build_context(2_000, **WITHOUT_RECALL)
            return counted[0]


@pytest.mark.costly
async def test_a_context_of_a_longer_conversation_takes_no_more_steps(tmp_path: Path) -> None:
    """The spans of all summaries used to be added up for each context: 16 ms instead of 3 with a million turns."""
    short, long = await steps_of_a_context(tmp_path, SHORT), await steps_of_a_context(tmp_path, LONG)
    assert 0 < long < 1.2 * short


@pytest.mark.costly
async def test_a_context_on_postgres_reads_no_more_summaries(postgres_database: str, postgres_url: str) -> None:
    async with palaver.open(postgres_url, embedder=None, worker=False) as store:
        await fill(store, LONG)
        talk = await store.find("k")
    connection = await asyncpg.connect(postgres_database)
    try:
        async with connection.transaction():
            await connection.fetch("SET LOCAL enable_seqscan = off")
            who = '{"tenant": "default", "sight": "tenant", "rights": "read"}'
            ask = "SELECT * FROM palaver_api.read_context($1, $2, 2000, false, 20)"
            await connection.fetch(ask, who, talk.id)
            await connection.execute("RESET ROLE")
            read = await connection.fetchval(
                "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'summaries'"
            )
    finally:
        await connection.close()
    assert 0 < read < LONG // SPAN / 2
