"""The reading connections of an SQLite store: a few rows without a thread, as long as the disk is fast."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import apsw
import pytest

import palaver
from palaver import Store
from palaver.conversations.internals import engine_of
from palaver.engines.sqlite import connection
from palaver.engines.sqlite.engine import SQLiteEngine
from palaver.engines.sqlite.readers import BRIEF_SECONDS, Readers
from palaver.engines.sqlite.transaction import Tx
from palaver.errors import DatabaseCorrupt, EngineError, StoreClosed


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with palaver.open(f"sqlite:///{tmp_path}/a.db", embedder=None, worker=False) as store:
        yield store


@pytest.fixture
def readers(store: Store) -> Readers:
    assert isinstance(engine_of(store), SQLiteEngine)
    return engine_of(store).readers


def never_slow(readers: Readers) -> None:
    """Leave no read to the threads only because this machine is busy."""
    readers.left_to_threads = readers._left = 0


def where(_: Tx) -> int:
    return threading.get_ident()


async def test_a_brief_read_needs_no_thread(readers: Readers) -> None:
    never_slow(readers)
    assert await readers.run_brief(where) == threading.get_ident()
    assert await readers.run(where) != threading.get_ident()


async def test_a_slow_disk_is_left_to_the_threads_for_a_while(readers: Readers) -> None:
    readers.left_to_threads = 3

    def slow(_: Tx) -> None:
        time.sleep(16 * BRIEF_SECONDS + 0.01)  # by itself enough to be too slow on average

    here = threading.get_ident()
    await readers.run_brief(slow)
    assert here not in [await readers.run_brief(where) for _ in range(3)]
    assert await readers.run_brief(where) == here, "tried again"


async def test_two_loops_do_not_share_the_connection_at_the_same_time(readers: Readers) -> None:
    with readers._in_use:
        assert await readers.run_brief(where) != threading.get_ident()


async def test_a_read_that_fails_is_told_by_a_thread(readers: Readers) -> None:
    never_slow(readers)
    ran_in: list[int] = []

    def damaged(_: Tx) -> None:
        ran_in.append(threading.get_ident())
        raise apsw.CorruptError

    with pytest.raises(DatabaseCorrupt):
        await readers.run_brief(damaged)
    assert ran_in[0] == threading.get_ident() != ran_in[1]
    assert await readers.run_brief(where) == threading.get_ident(), "and the connection is as good as before"


async def test_a_mistake_in_what_is_asked_is_told_once(readers: Readers) -> None:
    times: list[int] = []

    def wrong(_: Tx) -> None:
        times.append(1)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await readers.run_brief(wrong)
    assert times == [1]


async def test_nothing_is_read_after_the_end(tmp_path: Path) -> None:
    async with palaver.open(f"sqlite:///{tmp_path}/a.db", embedder=None, worker=False) as store:
        engine = engine_of(store)
    assert isinstance(engine, SQLiteEngine)
    with pytest.raises(StoreClosed):
        await engine.readers.run_brief(where)


async def test_who_reads_on_and_on_lets_others_run(store: Store) -> None:
    talk = await store.conversation("x")
    writing = asyncio.create_task(talk.append("user", "hello"))
    while not (await talk.refresh()).turn_count:
        pass
    assert writing.done() or (await writing).seq == 0


async def test_a_connection_that_cannot_be_had_is_told_by_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with palaver.open(f"sqlite:///{tmp_path}/a.db", embedder=None, worker=False) as store:
        await store.conversation("x")

    def too_many_files(*_: object, **__: object) -> apsw.Connection:
        raise apsw.CantOpenError

    monkeypatch.setattr(Readers, "connect", too_many_files)
    with pytest.raises(EngineError):
        async with palaver.open(f"sqlite:///{tmp_path}/a.db", embedder=None, worker=False) as store:
            await store.stats()
    assert "palaver-writer" not in [thread.name for thread in threading.enumerate()]


async def test_a_page_needs_no_thread_and_what_may_look_far_does(
    store: Store, readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    never_slow(readers)
    talk = await store.conversation("x")
    for n in range(130):
        await talk.append("user", f"number {n}")
    first = (await talk.history(1_000))[0]
    in_threads: list[object] = []
    run = readers.run

    async def counted(work: Callable[..., Any], *arguments: Any) -> Any:
        in_threads.append(work)
        return await run(work, *arguments)

    monkeypatch.setattr(readers, "run", counted)
    assert [turn.seq for turn in await talk.history()] == list(range(80, 130))
    assert [turn.seq for turn in await talk.history(3, after=first)] == [1, 2, 3]
    assert not in_threads
    assert len(await talk.history(129)) == 129
    assert len(await talk.history(3, roles=["user"])) == 3
    assert len(await talk.history(3, participants=["user"])) == 3
    assert await talk.history(3, until=first.created) == []
    assert len(await talk.history(3, since=first.created)) == 3
    assert len(in_threads) == 5


async def test_a_brief_read_sees_what_was_just_written(store: Store) -> None:
    talk = await store.conversation("x")
    for n in range(50):
        turn = await talk.append("user", f"number {n}")
        assert (await talk.turn(turn.id)).text == f"number {n}"
        assert (await talk.refresh()).turn_count == n + 1
        assert (await talk.build_context(1_000)).messages[-1]["content"] == f"number {n}"


async def test_a_closed_store_in_memory_says_so_and_not_that_its_file_is_gone() -> None:
    async with palaver.open("memory:", embedder=None, worker=False) as store:
        talk = await store.conversation("k")
    with pytest.raises(StoreClosed):
        await talk.verify()


async def test_a_file_that_is_gone_is_told_in_our_words(tmp_path: Path) -> None:
    path = tmp_path / "gone" / "a.db"
    path.parent.mkdir()
    async with palaver.open(f"sqlite:///{path}", embedder=None, worker=False) as store:
        talk = await store.conversation("k")
        path.parent.rename(tmp_path / "elsewhere")
        with pytest.raises(EngineError):
            await talk.verify()
        (tmp_path / "elsewhere").rename(path.parent)


async def test_who_stops_reading_a_whole_conversation_hears_of_nothing_else(
    store: Store, readers: Readers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread may be in the middle of a page then."""
    talk = await store.conversation("k")
    await talk.append("user", "hello")
    in_a_page, go_on = threading.Event(), threading.Event()

    def hesitate(_cursor: apsw.Cursor, sql: str, _values: object) -> bool:
        if "FROM turns" in sql:
            in_a_page.set()
            go_on.wait()
        return True

    def connect(readers: Readers) -> apsw.Connection:
        db = connection.connect(readers.address, readonly=True)
        db.exec_trace = hesitate
        return db

    monkeypatch.setattr(Readers, "connect", connect)
    verifying = asyncio.create_task(talk.verify())
    await asyncio.to_thread(in_a_page.wait)
    verifying.cancel()
    await asyncio.sleep(0)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await verifying
