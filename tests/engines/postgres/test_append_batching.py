"""Batched appends: one commit for many, and a result of its own for each."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import palaver
from palaver import Scope
from palaver.conversations.internals import engine_of
from palaver.core.identity import from_json, new_id
from palaver.core.turn_draft import DraftBuilder
from palaver.engines.postgres.append_batching import AppendBatcher
from palaver.engines.postgres.engine import PostgresEngine
from palaver.engines.postgres.rows import draft_json
from palaver.engines.postgres.rpc import RpcClient
from palaver.engines.postgres.transports import Row, as_json


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[palaver.Store]:
    async with palaver.open(postgres_url, embedder=None, worker=False) as opened:
        yield opened


class CountingRpc(RpcClient):
    """Calls the functions of an engine, and notes the size of each batch of appends."""

    def __init__(self, engine: PostgresEngine) -> None:
        super().__init__(engine.transport, engine.clock)
        self.engine, self.sizes = engine, list[int]()

    async def write(self, function: str, scope: Scope, **args: object) -> Sequence[Row]:
        if function == "append_together":
            self.sizes.append(len(from_json(str(args["calls"]))))
        return await self.engine.write(function, scope, **args)


@pytest.fixture
async def groups(store: palaver.Store) -> list[int]:
    """The sizes of the batches that were sent over a single lane."""
    assert isinstance(engine_of(store), PostgresEngine)
    rpc = CountingRpc(engine_of(store))
    engine_of(store).batcher = AppendBatcher(rpc, lanes=1)
    return rpc.sizes


async def test_many_at_once_are_few_transactions(groups: list[int], store: palaver.Store, postgres_url: str) -> None:
    talks = [await store.conversation(f"talk {n}") for n in range(10)]
    stored = await asyncio.gather(*(talks[n % 10].append("user", f"turn {n}") for n in range(60)))
    assert groups == [60]
    for n, talk in enumerate(talks):
        history = await talk.history()
        assert [turn.content for turn in history] == [f"turn {m}" for m in range(n, 60, 10)]
        assert [turn.seq for turn in history] == list(range(6))
        assert {turn.id for turn in history} == {turn.id for turn in stored[n::10]}
        await talk.verify()


async def test_calls_for_one_conversation_see_each_other(groups: list[int], store: palaver.Store) -> None:
    """The row of the conversation is read once for all of them, but each has its own expected seq and its own place."""
    talk = await store.conversation("talk")
    stored = await asyncio.gather(*(talk.append("user", f"turn {n}", expected_seq=n) for n in range(4)))
    assert groups == [4]
    again = await asyncio.gather(
        talk.append("user", "one", idempotency_key="key"), talk.append("user", "one", idempotency_key="key")
    )
    assert again[0].id == again[1].id
    assert [turn.id for turn in await talk.history()] == [turn.id for turn in (*stored, again[0])]
    info = (await store.get(talk.id)).info
    assert info.turn_count == 5
    assert info.token_count == sum(turn.token_count for turn in await talk.history())
    await talk.verify()


@pytest.mark.parametrize("distributed", [False, True], ids=["together", "one by one"])
async def test_a_batch_stores_all_rows_of_every_turn(
    postgres_url: str, postgres_database: str, tmp_path: Path, distributed: bool
) -> None:
    """Turns of one batch are inserted by one statement per table, on Citus one by one: the rows are the same."""
    admin = await asyncpg.connect(postgres_database)
    if distributed:
        await admin.execute(
            "CREATE OR REPLACE FUNCTION palaver.is_distributed() RETURNS boolean LANGUAGE sql IMMUTABLE RETURN true"
        )
    long = " ".join(f"Sentence {n} is about badgers and their setts." for n in range(60))
    async with palaver.open(postgres_url, embedder=None, worker=False, files=tmp_path) as store:
        assert isinstance(engine_of(store), PostgresEngine)
        rpc = CountingRpc(engine_of(store))
        engine_of(store).batcher = AppendBatcher(rpc, lanes=1)
        talks = [await store.conversation(f"talk {n}") for n in range(3)]
        await talks[2].append("user", "earlier", idempotency_key="earlier")
        file = await talks[0].attach(b"badgers", filename="notes.txt")
        calls = [
            talks[0].append("user", "with a file", attachments=[file]),
            talks[0].append("assistant", "", tool_calls=[{"id": "call_1", "name": "look", "arguments": {}}]),
            talks[0].append("tool", "", tool_results=[{"id": "call_1", "content": "nothing"}]),
            talks[1].append("user", long, metadata={"topic": "badgers"}),
            talks[1].append_many(
                [{"role": "user", "content": f"turn {n}", "idempotency_key": f"{n}"} for n in range(3)]
            ),
            talks[2].append("user", "earlier", idempotency_key="earlier"),
            talks[2].append("user", "new", idempotency_key="new"),
        ]
        await asyncio.gather(*calls)
        assert rpc.sizes == [1, len(calls)]
        histories = [await talk.history() for talk in talks]
        assert [[turn.seq for turn in history] for history in histories] == [[0, 1, 2], [0, 1, 2, 3], [0, 1]]
        assert [file.id for file in histories[0][0].attachments] == [file.id]
        assert [turn.content for turn in histories[1]] == [long, "turn 0", "turn 1", "turn 2"]
        found = await talks[1].search("setts", where={"metadata": {"topic": "badgers"}})
        assert [match.turn.seq for match in found] == [0]
        for talk in talks:
            await talk.verify()
    passages = "SELECT t.seq, p.part FROM palaver.passages p JOIN palaver.turns t USING (tenant, tid) WHERE p.cid = $1"
    cid = await admin.fetchval("SELECT cid FROM palaver.conversations WHERE id = $1", talks[1].id)
    rows = [tuple(row) for row in await admin.fetch(f"{passages} ORDER BY pid", cid)]
    assert len(rows) > 4
    assert rows == sorted(rows)
    await admin.close()


class ObservedRpc(CountingRpc):
    """Notes which conversations are in the calls that are under way at the same time."""

    def __init__(self, engine: PostgresEngine) -> None:
        super().__init__(engine)
        self.under_way: list[set[str]] = []
        self.most = 0

    async def write(self, function: str, scope: Scope, **args: object) -> Sequence[Row]:
        names = {call["conversation"] for call in from_json(str(args["calls"]))}
        assert not any(names & others for others in self.under_way)
        self.under_way.append(names)
        self.most = max(self.most, len(self.under_way))
        try:
            return await super().write(function, scope, **args)
        finally:
            self.under_way.remove(names)


async def test_two_calls_at_a_time_share_the_conversations(store: palaver.Store) -> None:
    """Each of two calls takes half of the conversations that wait, and none is in both of them."""
    assert isinstance(engine_of(store), PostgresEngine)
    rpc = ObservedRpc(engine_of(store))
    engine_of(store).batcher = AppendBatcher(rpc)
    talks = [await store.conversation(f"talk {n}") for n in range(20)]

    async def say(n: int) -> None:
        for m in range(5):
            await talks[n % 20].append("user", f"{n} says {m}")

    await asyncio.gather(*(say(n) for n in range(40)))
    assert rpc.most == 2
    assert rpc.sizes[:2] == [20, 20]
    for n, talk in enumerate(talks):
        said = [turn.content for turn in await talk.history()]
        assert len(said) == 10
        for speaker in (n, n + 20):  # in the order of the calls
            assert [text for text in said if text.startswith(f"{speaker} ")] == [
                f"{speaker} says {m}" for m in range(5)
            ]
        await talk.verify()


async def test_few_conversations_share_one_call(store: palaver.Store) -> None:
    assert isinstance(engine_of(store), PostgresEngine)
    rpc = ObservedRpc(engine_of(store))
    engine_of(store).batcher = AppendBatcher(rpc)
    talks = [await store.conversation(f"talk {n}") for n in range(4)]
    await asyncio.gather(*(talk.append("user", "hello") for talk in talks))
    assert rpc.sizes == [4]


async def test_tenants_do_not_share_a_call_where_that_is_asked_for(store: palaver.Store) -> None:
    """On Citus a call is for one tenant. The tenants take turns, and nobody is left behind."""
    assert isinstance(engine_of(store), PostgresEngine)
    rpc = ObservedRpc(engine_of(store))
    engine_of(store).batcher = AppendBatcher(rpc, by_tenant=True)
    scopes = [Scope.of(f"tenant {n}", None) for n in range(3)]
    talks = [await store.scoped(scope).conversation("talk") for scope in scopes]
    await asyncio.gather(*(talks[n % 3].append("user", "hello") for n in range(9)))
    assert rpc.sizes == [3, 3, 3]


def call_of(talk: palaver.Conversation, *texts: str) -> dict[str, Any]:
    """Return what `append_together` takes for one append, as the library sends it."""
    drafts = [DraftBuilder(len).draft(new_id(), "user", text, actor="user") for text in texts]
    return {"conversation": talk.id, "drafts": [draft_json(draft) for draft in drafts], "expected_seq": None}


async def test_calls_may_come_in_any_order(store: palaver.Store) -> None:
    """The library sorts them, so that those of a conversation are next to each other; others need not."""
    assert isinstance(engine_of(store), PostgresEngine)
    talks = sorted([await store.conversation(f"talk {n}") for n in range(4)], key=lambda talk: talk.id)
    order = [talks[0], talks[2], talks[1], talks[2], talks[3], talks[0]]
    calls = [call_of(talk, f"turn {n}") for n, talk in enumerate(order)]
    rows = await engine_of(store).write("append_together", store.scope, calls=as_json(calls))
    assert [row["seq"] for row in rows] == [0, 0, 0, 1, 0, 1]
    found = [[turn.content for turn in await talk.history()] for talk in talks]
    assert found == [["turn 0", "turn 5"], ["turn 2"], ["turn 1", "turn 3"], ["turn 4"]]
    for talk in talks:
        await talk.verify()
        assert (await talk.refresh()).turn_count == len(await talk.history())


@pytest.mark.parametrize("name", [None, "unknown"])
async def test_a_call_without_its_conversation_stores_nothing(store: palaver.Store, name: str | None) -> None:
    assert isinstance(engine_of(store), PostgresEngine)
    talks = sorted([await store.conversation(f"talk {n}") for n in range(2)], key=lambda talk: talk.id)
    calls = [call_of(talks[0], "first"), {**call_of(talks[0], "lost"), "conversation": name}, call_of(talks[1], "last")]
    with pytest.raises(palaver.ConversationNotFound):
        await engine_of(store).write("append_together", store.scope, calls=as_json(calls))
    assert [await talk.history() for talk in talks] == [[], []]


async def test_a_batch_that_waits_for_a_lock_goes_on_from_the_other_ones_turn(
    store: palaver.Store, postgres_url: str, postgres_database: str
) -> None:
    """The rows are read once they are locked, and written where they are then."""
    talks = sorted([await store.conversation(f"talk {n}") for n in range(3)], key=lambda talk: talk.id)
    assert isinstance(engine_of(store), PostgresEngine)
    who = engine_of(store).scope_params(store.scope)
    admin, first, second = [await asyncpg.connect(url) for url in (postgres_database, postgres_url, postgres_url)]
    together = (
        "SELECT * FROM palaver.append_calls(palaver.enter($1, 'write'), $1, $2)"  # without its short lock timeout
    )
    async with first.transaction():
        await first.fetch(together, who, as_json([call_of(talks[1], "first")]))
        calls = as_json([call_of(talk, "second") for talk in talks])
        waiting = asyncio.create_task(second.fetch(together, who, calls))
        async with asyncio.timeout(60):
            while not await admin.fetchval("SELECT cardinality(pg_blocking_pids($1))", second.get_server_pid()):
                pass
    assert [row["seq"] for row in await waiting] == [0, 1, 0]
    assert [turn.content for turn in await talks[1].history()] == ["first", "second"]
    for talk in talks:
        await talk.verify()
    for connection in (admin, first, second):
        await connection.close()


async def test_the_failure_of_one_is_nobody_elses(groups: list[int], store: palaver.Store) -> None:
    talks = [await store.conversation(f"talk {n}") for n in range(6)]
    await talks[3].append("user", "already")
    gone = await store.conversation("gone")
    await gone.forget()

    def call(n: int) -> Any:
        return talks[n].append("user", "new", expected_seq=0)

    found = await asyncio.gather(*(call(n) for n in range(6)), gone.append("user", "late"), return_exceptions=True)
    assert isinstance(found[3], palaver.AppendConflict)
    assert isinstance(found[6], palaver.ConversationGone)
    assert [len(await talk.history()) for talk in talks] == [1] * 6
    assert [(await talk.history())[-1].content for talk in talks] == ["new", "new", "new", "already", "new", "new"]


async def test_each_is_stored_as_its_own_caller(groups: list[int], store: palaver.Store) -> None:
    ada, bob = (store.scoped(Scope.of("default", name)) for name in ("ada", "bob"))
    hers, his = await ada.conversation("hers", participants=["bob"]), await bob.conversation("his")
    shared = await bob.get(hers.id)
    await asyncio.gather(*(talk.append("user", "hello") for _ in range(4) for talk in (hers, his, shared)))
    assert groups == [12]
    assert sorted(turn.actor for turn in await hers.history()) == ["ada"] * 4 + ["bob"] * 4
    assert [turn.actor for turn in await his.history()] == ["bob"] * 4
    await hers.update(participants=[])
    found = await asyncio.gather(
        hers.append("user", "mine"),
        shared.append("user", "not mine"),
        his.append("user", "mine"),
        return_exceptions=True,
    )
    assert groups == [12, 3]
    assert isinstance(found[1], palaver.ConversationNotFound)
    assert [len(await talk.history()) for talk in (hers, his)] == [9, 5]


async def test_a_lock_of_another_session_stops_only_its_own_conversation(
    groups: list[int], store: palaver.Store, postgres_database: str
) -> None:
    talks = [await store.conversation(f"talk {n}") for n in range(5)]
    other = await asyncpg.connect(postgres_database)
    lock = other.transaction()
    await lock.start()
    await other.execute("SELECT 1 FROM palaver.conversations WHERE id = $1 FOR UPDATE", talks[0].id)
    calls = [asyncio.create_task(talk.append("user", "hello")) for talk in talks]
    async with asyncio.timeout(60):
        await asyncio.gather(*calls[1:])
        alone = asyncio.create_task(talks[0].append("user", "again"))
        await talks[1].append("user", "nobody in the way")
    assert not calls[0].done()
    assert not alone.done()
    await lock.rollback()
    await other.close()
    assert sorted([(await calls[0]).seq, (await alone).seq]) == [0, 1]


async def test_one_who_goes_leaves_the_others_alone(groups: list[int], store: palaver.Store) -> None:
    talks = [await store.conversation(f"talk {n}") for n in range(4)]
    calls = [asyncio.create_task(talk.append("user", "hello")) for talk in talks]
    await asyncio.sleep(0)
    calls[2].cancel()
    found = await asyncio.gather(*calls, return_exceptions=True)
    assert isinstance(found[2], asyncio.CancelledError)
    assert [len(await talks[n].history()) for n in (0, 1, 3)] == [1, 1, 1]


async def test_what_is_lost_on_the_way_is_not_sent_again(groups: list[int], store: palaver.Store) -> None:
    """A broken connection may have committed, so the append is not repeated."""
    talks = [await store.conversation(f"talk {n}") for n in range(4)]
    write = engine_of(store).write  # type: ignore[attr-defined]

    async def breaking(function: str, scope: Scope, **args: Any) -> Any:
        found = await write(function, scope, **args)
        if function == "append_together":
            raise palaver.EngineUnavailable("the connection to the database was lost")
        return found

    engine_of(store).write = breaking  # type: ignore[attr-defined]
    found = await asyncio.gather(*(talk.append("user", "hello") for talk in talks), return_exceptions=True)
    assert [type(one) for one in found[1:]] == [palaver.EngineUnavailable] * 3
    assert [len(await talk.history()) for talk in talks] == [1] * 4
