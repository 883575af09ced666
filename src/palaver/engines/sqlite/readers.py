"""The connections that read: a pool of threads, one for brief reads, and dedicated ones for long reads."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar
from weakref import WeakSet

import apsw

from palaver import errors
from palaver.core.event_loop import LoopGuard
from palaver.core.identity import micros
from palaver.engines.sqlite.connection import UNREADABLE, SQLiteAddress, connect, translate_errors
from palaver.engines.sqlite.transaction import Tx
from palaver.ports.clock import Clock

P = ParamSpec("P")
T = TypeVar("T")

READERS = 4  # threads
# A brief operation that takes less than this on average runs in the event loop's thread: handing it to another thread
# and being woken by it takes as long.
BRIEF_SECONDS = 0.001
AVERAGE_WEIGHT = 1 / 16  # of the newest duration in the running average
LEFT_TO_THREADS = 256  # reads that go to the threads after the disk was slow, before it is tried again


class ForkGuard:
    """An object with connections. After a fork the child must not use those of its parent, so it finds them closed."""

    def __init__(self) -> None:
        self._closed = False
        self._loop = LoopGuard()
        _guards.add(self)


_guards: WeakSet[ForkGuard] = WeakSet()


def _close_all() -> None:
    for guard in _guards:
        guard._closed = True


os.register_at_fork(after_in_child=_close_all)


@dataclass(slots=True)
class _Read(Generic[T]):
    """A read on its way: called with a transaction and the arguments."""

    work: Callable[..., T]
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]


class DedicatedReader:
    """A dedicated connection for long reads, used from one thread at a time even if the reader is cancelled."""

    def __init__(self, db: apsw.Connection) -> None:
        self.db = db
        self._in_use = threading.Lock()

    async def run(self, work: Callable[[apsw.Connection], T]) -> T:
        return await asyncio.to_thread(self._run, work)

    async def close(self) -> None:
        await asyncio.to_thread(self._run, apsw.Connection.close)

    def _run(self, work: Callable[[apsw.Connection], T]) -> T:
        with self._in_use:
            return work(self.db)


class Readers(ForkGuard):
    """Reading connections, each on a thread of its own. They never wait for the writer.

    One more connection serves brief reads while the disk is fast, in the thread of the event loop.
    """

    def __init__(self, address: SQLiteAddress, clock: Clock, *, left_to_threads: int = LEFT_TO_THREADS) -> None:
        self.address, self.clock, self.left_to_threads = address, clock, left_to_threads
        self.average_seconds = 0.0  # of a brief read, recently
        self._left = 0  # how many of the next brief reads go to the threads
        self._brief_db: apsw.Connection | None = None
        self._in_use = threading.Lock()  # guards that connection
        self._local = threading.local()
        self._opened: list[apsw.Connection] = []
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="palaver-reader")
        super().__init__()

    def open_brief(self) -> None:
        """Open the connection for brief reads, once the file exists. Blocks."""
        try:
            db = self.connect()
        except apsw.Error:
            return  # the first read in a thread meets the same error, and reports it
        db.set_busy_timeout(0)
        self._brief_db = db

    async def run(self, work: Callable[Concatenate[Tx, P], T], *arguments: P.args, **options: P.kwargs) -> T:
        """Run one read in one snapshot, in a thread: `work` with a transaction and these arguments."""
        if self._closed:
            raise errors.StoreClosed
        self._loop.check()
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._read, _Read(work, arguments, options))

    async def run_brief(self, work: Callable[Concatenate[Tx, P], T], *arguments: P.args, **options: P.kwargs) -> T:
        """Run a read of a few rows, without a thread if the disk is fast."""
        if self._closed:  # before the loop is checked: the child of a fork has another loop, too
            raise errors.StoreClosed
        self._loop.check()
        await asyncio.sleep(0)  # let other tasks run, as waiting for a thread would
        if self._left > 0:
            self._left -= 1
        elif self._brief_db is not None and not self._closed and self._in_use.acquire(blocking=False):
            try:
                return self._read_here(self._brief_db, _Read(work, arguments, options))
            except (apsw.Error, *UNREADABLE):
                pass  # the same read in a thread meets the same error, and reports it
            finally:
                self._in_use.release()
        return await self.run(work, *arguments, **options)

    def _read_here(self, db: apsw.Connection, read: _Read[T]) -> T:
        start = time.perf_counter()
        try:
            return self._in_snapshot(db, read)
        finally:
            self.average_seconds += (time.perf_counter() - start - self.average_seconds) * AVERAGE_WEIGHT
            if self.average_seconds > BRIEF_SECONDS:
                self.average_seconds, self._left = 0.0, self.left_to_threads

    def _read(self, read: _Read[T]) -> T:
        with translate_errors(self.address.path):
            return self._in_snapshot(self._connection(), read)

    def _in_snapshot(self, db: apsw.Connection, read: _Read[T]) -> T:
        db.execute("BEGIN")
        try:
            return read.work(Tx(db, micros(self.clock.now())), *read.arguments, **read.options)
        finally:
            db.execute("ROLLBACK")

    def _connection(self) -> apsw.Connection:
        """Return the connection of the current thread."""
        if not hasattr(self._local, "db"):
            self._local.db = self.connect()
            self._opened.append(self._local.db)
        return self._local.db  # type: ignore[no-any-return]

    def connect(self) -> apsw.Connection:
        if self._closed:
            raise errors.StoreClosed
        return connect(self.address, readonly=True)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._pool.shutdown(wait=True)
            with self._in_use:
                for db in (*self._opened, *filter(None, [self._brief_db])):
                    db.close()
