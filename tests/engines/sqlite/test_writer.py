"""The writing connection of an SQLite store: brief writes without the thread where the disk is fast, and never at the
price of the event loop."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

import palaver
from palaver import Conversation, Store
from palaver.conversations.internals import engine_of
from palaver.engines.sqlite.engine import SQLiteEngine
from palaver.engines.sqlite.transaction import Tx
from palaver.engines.sqlite.writer import Writer, WriterTuning
from palaver.errors import AppendConflict, EngineUnavailable, StoreClosed
from palaver.testing.kit import eventually

FAST, SLOW = 0.0, 1.0


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with palaver.open(f"sqlite:///{tmp_path}/a.db", embedder=None, worker=False) as store:
        yield store


@pytest.fixture
async def talk(store: Store) -> Conversation:
    return await store.conversation("x")


PATIENT = WriterTuning(busy_seconds=60.0)  # on a slow machine the loop must not count as busy


def writer_of(store: Store, average: float, tuning: WriterTuning = PATIENT) -> Writer:
    """The store's writer, set to believe that commits take this many seconds on average."""
    assert isinstance(engine_of(store), SQLiteEngine)
    engine_of(store).writer.average_seconds = average
    engine_of(store).writer.tuning = tuning
    return engine_of(store).writer


async def idle_writer(store: Store, average: float, tuning: WriterTuning = PATIENT) -> Writer:
    """The same when its thread has nothing to do, and waits for the next write."""
    writer = writer_of(store, average, tuning)

    async def has_done_its_chores() -> bool:
        return not writer._chores_due

    await eventually(has_done_its_chores)
    await thread_at_rest(writer)
    return writer


async def thread_at_rest(writer: Writer) -> None:
    """Wait until the writer's thread has finished with the connection."""
    await asyncio.to_thread(writer._in_use.acquire)
    writer._in_use.release()


def where(_: Tx) -> int:
    return threading.get_ident()


async def test_a_brief_write_needs_no_thread_on_a_fast_disk_only(store: Store) -> None:
    here = threading.get_ident()
    assert await (await idle_writer(store, FAST)).submit_brief(where) == here
    assert await writer_of(store, FAST).submit(where) != here
    assert await writer_of(store, SLOW).submit_brief(where) != here


async def test_the_pace_follows_the_disk(store: Store, talk: Conversation) -> None:
    slow = 60.0  # slower than the disk of any busy machine
    writer = writer_of(store, slow)
    for _ in range(100):
        await talk.append("user", "hello")
    assert 0 < writer.average_seconds < slow / 10


@pytest.mark.parametrize("pace", [FAST, SLOW])
async def test_what_is_asked_for_together_shares_a_commit(store: Store, talk: Conversation, pace: float) -> None:
    writer = await idle_writer(store, pace)
    before = writer.commits
    turns = await asyncio.gather(*(talk.append("user", f"number {n}") for n in range(16)))
    assert [turn.seq for turn in turns] == list(range(16))
    assert [turn.text for turn in await talk.history()] == [f"number {n}" for n in range(16)]
    if pace == FAST:
        assert writer.commits == before + 1


async def test_nothing_overtakes_what_was_asked_for_before_it(store: Store, talk: Conversation) -> None:
    """Neither a long write, which the thread does, nor one that comes while the thread is still at the last."""
    long = "on and on " * 10_000
    asked = []
    for n in range(60):
        writer_of(store, FAST)
        asked.append(asyncio.create_task(talk.append("user", long if n % 7 == 3 else f"number {n}")))
        if n % 5 == 4:
            await asyncio.sleep(0)
        elif n % 5 == 2:
            await asyncio.sleep(0.0002)
    assert [turn.seq for turn in await asyncio.gather(*asked)] == list(range(60))


async def test_a_slice_has_a_commit_of_its_own_after_the_writes_that_wait_with_it(store: Store) -> None:
    writer = await idle_writer(store, SLOW)
    order: list[str] = []

    def write(tx: Tx, name: str) -> int:
        order.append(name)
        return writer.commits

    running, go_on = threading.Event(), threading.Event()

    def block(tx: Tx) -> None:
        running.set()
        go_on.wait(60)

    blocked = writer.submit(block)
    await asyncio.to_thread(running.wait, 60)
    waiting = [writer.submit_slice(write, "slice"), writer.submit(write, "one"), writer.submit(write, "two")]
    go_on.set()
    await blocked
    slice, one, two = await asyncio.gather(*waiting)
    assert order == ["one", "two", "slice"]
    assert one == two < slice


async def test_a_great_many_at_once_are_the_threads(store: Store) -> None:
    writer = await idle_writer(store, FAST, WriterTuning(batch=3, busy_seconds=60.0))
    few = await asyncio.gather(*(writer.submit_brief(where) for _ in range(3)))
    writer.average_seconds = FAST
    many = await asyncio.gather(*(writer.submit_brief(where) for _ in range(4)))
    assert set(few) == {threading.get_ident()}
    assert threading.get_ident() not in many


async def test_a_busy_loop_leaves_the_disk_to_the_thread(store: Store) -> None:
    writer = await idle_writer(store, FAST, WriterTuning(busy_seconds=0.0001))
    waiting = asyncio.create_task(writer.submit_brief(where))
    await asyncio.sleep(0)  # it is waiting for others now
    time.sleep(0.01)  # noqa: ASYNC251  # the loop is busy with something else
    assert await waiting != threading.get_ident()


@pytest.mark.parametrize("pace", [FAST, SLOW])
async def test_one_that_is_refused_does_not_hurt_the_others(store: Store, talk: Conversation, pace: float) -> None:
    writer_of(store, pace)
    wrong = talk.append("user", "wrong", expected_seq=7)
    found = await asyncio.gather(talk.append("user", "one"), wrong, talk.append("user", "two"), return_exceptions=True)
    assert isinstance(found[1], AppendConflict)
    assert [turn.text for turn in await talk.history()] == ["one", "two"]
    with pytest.raises(AppendConflict):
        await talk.append("user", "alone", expected_seq=7)
    await talk.verify()


async def test_one_that_fails_halfway_is_undone_and_the_others_are_kept(store: Store, talk: Conversation) -> None:
    writer = await idle_writer(store, FAST)

    def halfway(tx: Tx) -> None:
        tx.run("UPDATE conversations SET title = 'half'")
        raise ZeroDivisionError

    failing = writer.submit_brief(halfway)
    kept = talk.append("user", "kept")
    found = await asyncio.gather(failing, kept, return_exceptions=True)
    assert isinstance(found[0], ZeroDivisionError)
    assert [turn.text for turn in await talk.history()] == ["kept"]
    assert await writer.submit(lambda tx: tx.all("SELECT title FROM conversations")) == [(None,)]
    await talk.verify()


async def test_the_loop_does_not_wait_for_another_process(store: Store, talk: Conversation, tmp_path: Path) -> None:
    writer_of(store, FAST)
    other = apsw.Connection(str(tmp_path / "a.db"))
    other.execute("BEGIN IMMEDIATE")
    waiting = asyncio.create_task(talk.append("user", "patient"))
    for _ in range(100):
        await asyncio.sleep(0)
    assert not waiting.done()
    assert await talk.history() == []
    other.execute("ROLLBACK")
    other.close()
    assert (await waiting).seq == 0


async def test_the_text_index_follows_by_itself(store: Store, talk: Conversation) -> None:
    writer = writer_of(store, FAST)
    for n in range(3):
        await talk.append("user", f"peanuts {n}")

    async def is_indexed() -> bool:
        rows = await writer.submit(lambda tx: tx.all("SELECT count(*) FROM passages"))
        return bool(rows[0][0] == 3)

    await eventually(is_indexed)


async def test_what_a_search_has_indexed_is_not_due_any_more(store: Store, talk: Conversation) -> None:
    writer = await idle_writer(store, FAST)
    writer.tuning = WriterTuning(busy_seconds=60.0, chores_after_seconds=3_600.0)  # no moment is quiet enough
    times: list[int] = []
    chores = writer.chores

    def counted(tx: Tx) -> int:
        times.append(1)
        return chores(tx)

    writer.chores = counted
    with writer._gate:
        writer._chores_due = writer.tuning.chores_at - 2
    await talk.append("user", "peanuts")
    assert [one.conversation.key for one in await store.search("peanuts")] == ["x"]
    assert len(times) == 1
    await thread_at_rest(writer)  # it counts a write after it has reported it
    assert writer._chores_due == 1, "the writing that the search itself asked for"
    await talk.append("user", "walnuts")
    assert len(times) == 1
    assert await store.search("walnuts")


async def test_the_log_of_sqlite_stays_short(store: Store, talk: Conversation, tmp_path: Path) -> None:
    writer = writer_of(store, FAST, WriterTuning(checkpoint_pages=50, busy_seconds=60.0))

    async def no_checkpoint_is_due() -> bool:
        return writer._wal_pages < writer._checkpoint_at

    for n in range(300):
        writer.average_seconds = FAST
        await talk.append("user", f"number {n}")
        await eventually(no_checkpoint_is_due)  # on a busy machine the thread that was woken for it comes late
    pages = (tmp_path / "a.db-wal").stat().st_size // 4_096
    assert pages < 1_050  # the first checkpoint is due at a thousand, the others at fifty
    assert writer._wal_pages < 300


async def test_a_write_that_is_interrupted_leaves_nobody_waiting(store: Store, talk: Conversation) -> None:
    writer = await idle_writer(store, FAST)

    def interrupt(_: Tx) -> None:
        raise KeyboardInterrupt

    cut = asyncio.create_task(writer.submit_brief(interrupt))
    await asyncio.sleep(0)  # it is waiting for others now
    with pytest.raises(KeyboardInterrupt):
        writer._write_brief(asyncio.get_running_loop())
    with pytest.raises(EngineUnavailable, match="interrupted"):
        await cut
    assert (await talk.append("user", "hello")).seq == 0


async def test_a_write_that_is_cancelled_before_it_began_is_not_written(store: Store, talk: Conversation) -> None:
    writer = await idle_writer(store, FAST)
    cut = asyncio.create_task(talk.append("user", "cut"))
    await asyncio.sleep(0)  # it is waiting for others now
    cut.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cut
    assert not any(writer._brief.values())
    assert (await talk.append("user", "kept")).seq == 0


async def test_a_write_that_is_cancelled_when_another_has_done_it_is_written(store: Store, talk: Conversation) -> None:
    writer = await idle_writer(store, FAST)
    cut = asyncio.create_task(talk.append("user", "kept"))
    await asyncio.sleep(0)  # it is waiting for others now
    writer._write_brief(asyncio.get_running_loop())  # as another does who comes back before it
    cut.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cut
    assert [turn.text for turn in await talk.history()] == ["kept"]


async def test_a_write_that_is_cancelled_when_the_thread_has_it_complains_to_nobody(
    store: Store, talk: Conversation
) -> None:
    writer = await idle_writer(store, FAST)
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    cut = asyncio.create_task(talk.append("user", "wrong", expected_seq=7))
    await asyncio.sleep(0)  # it is waiting for others now
    other = writer.submit(where)  # and goes to the thread with this one
    cut.cancel()
    await other
    with pytest.raises(asyncio.CancelledError):
        await cut
    del cut
    gc.collect()
    await asyncio.sleep(0)
    assert not complaints


FORK = """
import asyncio, os, sys, palaver
from palaver.conversations.internals import engine_of

async def try_out(talk):
    for use in (lambda: talk.append("user", "from a fork"), talk.refresh):
        try:
            await use()
        except palaver.StoreClosed as problem:
            print("refused:", problem, flush=True)

async def main():
    async with palaver.open(sys.argv[1], embedder=None, worker=False) as store:
        talk = await store.conversation("x")
        engine_of(store).writer.average_seconds = 0.0
        child = os.fork()
        if not child:
            try:
                asyncio.new_event_loop().run_until_complete(try_out(talk))
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        print(len(await talk.history()), (await talk.append("user", "hello")).seq)

asyncio.run(main())
"""


def test_a_fork_cannot_write_or_read_through_what_it_inherited(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-c", FORK, f"sqlite:///{tmp_path}/a.db"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.split("\n") == [*[f"refused: {StoreClosed()}"] * 2, "0 0", ""], done.stderr


async def test_a_store_that_is_closed_loses_nothing_that_it_acknowledged(tmp_path: Path) -> None:
    for round in range(10):
        stack = palaver.open(f"sqlite:///{tmp_path}/a.db", embedder=None, worker=False)
        store = await stack.__aenter__()
        talk = await store.conversation(f"round {round}")
        writer_of(store, FAST)
        tasks = [asyncio.create_task(talk.append("user", f"number {n}")) for n in range(20)]
        for _ in range(round):
            await asyncio.sleep(0)
        await stack.__aexit__(None, None, None)
        found = await asyncio.gather(*tasks, return_exceptions=True)
        stored = {one.id for one in found if isinstance(one, palaver.Turn)}
        assert all(isinstance(one, palaver.Turn | StoreClosed) for one in found)
        async with palaver.open(f"sqlite:///{tmp_path}/a.db", embedder=None, worker=False) as again:
            there = {turn.id for turn in await (await again.conversation(f"round {round}")).history(100)}
        assert stored == there
