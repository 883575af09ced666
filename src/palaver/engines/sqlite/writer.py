"""The one connection of this process that writes: which writes share a commit, and who runs them."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain, count
from queue import Empty, SimpleQueue
from typing import Any, Concatenate, ParamSpec, TypeVar

import apsw

from palaver import errors
from palaver.core.identity import micros
from palaver.engines.sqlite.connection import SQLiteAddress, poll_while_busy, prepare, translate_errors
from palaver.engines.sqlite.file_guard import FileGuard
from palaver.engines.sqlite.readers import AVERAGE_WEIGHT, BRIEF_SECONDS, ForkGuard
from palaver.engines.sqlite.scrubbing import Scrubber, is_marked
from palaver.engines.sqlite.transaction import Tx, Work
from palaver.ports.clock import Clock
from palaver.ports.damage import Damage, describe

log = logging.getLogger("palaver.sqlite")  # types and counts only

P = ParamSpec("P")
T = TypeVar("T")

HEAL_SECONDS = 60.0  # between two attempts to repair derived tables that found nothing
CLOSING_CHORES = 40  # batches of chores that closing waits for; the rest is done when the file is opened again
UNKNOWN_SECONDS = 2 * BRIEF_SECONDS  # the assumed duration of a commit before the first one: not brief


@dataclass(frozen=True, slots=True)
class WriterTuning:
    """Limits of a writer. The defaults suit every disk; tests use others.

    `busy_seconds` is how long the event loop may take to come back to a brief write, for each waiting write. A loop
    that takes longer has other work to do, and the thread writes instead.
    """

    batch: int = 256  # writes in one commit, at most
    gather_seconds: float = 0.0003  # how long a commit waits for callers that wrote together last time
    chores_at: int = 128  # writes after which chores run even if there is no quiet moment
    chores_after_seconds: float = 0.05  # without a write; then the moment is quiet
    checkpoint_pages: int = 1_000  # of the WAL
    busy_seconds: float = 0.0001


DEFAULT_TUNING = WriterTuning()


@dataclass(slots=True, eq=False)
class _Write:
    """One write on its way. `was_brief`: it ran in the thread of the event loop. `is_slice`: see `submit_slice`."""

    work: Callable[..., Any]  # called with a transaction and the arguments
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]
    loop: asyncio.AbstractEventLoop
    asked: float
    future: asyncio.Future[Any] = field(init=False)  # set when the thread gets it
    result: Any = None
    error: BaseException | None = None
    was_brief: bool = False
    is_slice: bool = False


def _new_write(work: Callable[..., Any], arguments: tuple[Any, ...], options: Mapping[str, Any]) -> _Write:
    return _Write(work, arguments, options, asyncio.get_running_loop(), time.perf_counter())


class _Wake(Enum):
    """Queued to wake the thread when there is nothing to write but other work to do."""

    UP = "up"


class Writer(ForkGuard):
    """A thread that writes. Writes that are queued during a commit share the next one.

    While the disk is fast and the event loop is idle, brief writes do without the thread: those of one iteration of the
    loop are committed together, at its end.
    """

    def __init__(
        self,
        address: SQLiteAddress,
        clock: Clock,
        *,
        setup: Work[None],
        chores: Work[int],
        repair: Callable[[], list[Damage]],
        committed: Callable[[set[str]], None],
        tuning: WriterTuning = DEFAULT_TUNING,
    ) -> None:
        """Open the connection and start the thread. Blocks.

        `setup` runs once, after migrations. `chores` is work that may wait for a quiet moment; it returns how much it
        did, and runs again until it did nothing. `repair` repairs damaged tables of derived data, and returns which;
        it runs when a write found a damaged page. `committed` gets the names that a commit touched.
        """
        self.address, self.clock, self.committed, self.chores, self.repair = address, clock, committed, chores, repair
        self.tuning = tuning
        self.commits = 0
        self.average_seconds = UNKNOWN_SECONDS  # of a commit, recently
        self._chores_due = 1
        self._last_group = 1
        self._last_write = 0.0
        self._wal_pages, self._checkpoint_at = 0, tuning.checkpoint_pages
        self.db = prepare(address, setup)
        self._guard = FileGuard(address.path, self.db)
        self._not_healed = -HEAL_SECONDS  # when nothing could be repaired
        self.db.set_wal_hook(self._wal_grew)  # replaces SQLite's automatic checkpoints, which would delay a commit
        self.scrubber = Scrubber(address)
        with translate_errors(address.path):
            if is_marked(self.db):
                self.scrubber.request()
        self._brief: dict[asyncio.AbstractEventLoop, list[_Write]] = {}
        self._queue: SimpleQueue[_Write | _Wake | None] = SimpleQueue()
        self._in_use = threading.Lock()  # guards the connection
        self._gate = threading.RLock()  # guards the queue, `_brief` and `_closed`
        self._under_way = 0  # writes that the thread has not finished
        super().__init__()
        self._thread = threading.Thread(target=self._run, name="palaver-writer", daemon=True)
        self._thread.start()

    def submit(
        self, work: Callable[Concatenate[Tx, P], T], *arguments: P.args, **options: P.kwargs
    ) -> asyncio.Future[T]:
        """Queue a write: `work` with a transaction and these arguments."""
        write = _new_write(work, arguments, options)
        with self._gate:
            self._check_open()
            self._enqueue([*self._brief.pop(write.loop, ()), write])  # writes keep the order of the calls
        return write.future

    def submit_slice(
        self, work: Callable[Concatenate[Tx, P], T], *arguments: P.args, **options: P.kwargs
    ) -> asyncio.Future[T]:
        """Queue a part of long work. It gets a transaction of its own, after the writes that wait with it."""
        write = _new_write(work, arguments, options)
        write.is_slice = True
        with self._gate:
            self._check_open()
            self._enqueue([write])
        return write.future

    def submit_chores(self) -> asyncio.Future[int]:
        """Run the chores now, not in a quiet moment. Returns how much they did; call again for the rest."""
        return self.submit(self._run_chores)

    def request_chores(self) -> None:
        """Have the thread run the chores in a quiet moment. Any thread may call it."""
        with self._gate:
            if not self._closed:
                self._chores_due += 1
                self._queue.put(_Wake.UP)

    def _run_chores(self, tx: Tx) -> int:
        self._chores_due = 0
        return self.chores(tx)

    async def submit_brief(self, work: Callable[Concatenate[Tx, P], T], *arguments: P.args, **options: P.kwargs) -> T:
        """Submit a write that takes less time than its commit."""
        if self.average_seconds > BRIEF_SECONDS:
            return await self.submit(work, *arguments, **options)
        write = _new_write(work, arguments, options)
        with self._gate:
            self._check_open()
            self._brief.setdefault(write.loop, []).append(write)
        try:
            await asyncio.sleep(0)  # other writes of this iteration of the loop join the commit
        except BaseException:  # re-raised: cancelled before it was written
            self._withdraw(write)
            raise
        if not write.was_brief:
            self._write_brief(write.loop)
        if not write.was_brief:
            await write.future
        elif write.error is not None:
            raise write.error
        result: T = write.result
        return result

    def close(self) -> None:
        """Finish what is queued, then close. Blocks."""
        with self._gate:
            if self._closed:
                return
            self._closed = True
            self._enqueue(chain(*self._brief.values()))
            self._brief.clear()
            self._queue.put(None)
        self._thread.join()
        self.scrubber.close()

    # The caller of these two holds the gate, so that nothing is queued after the end marker of `close`.

    def _enqueue(self, writes: Iterable[_Write]) -> None:
        for write in writes:
            write.future = write.loop.create_future()
            self._under_way += 1
            self._queue.put(write)

    def _check_open(self) -> None:
        if self._closed:
            raise errors.StoreClosed
        self._loop.check()

    # ---- brief writes, in the thread of the event loop

    def _withdraw(self, write: _Write) -> None:
        with self._gate:
            waiting = self._brief.get(write.loop, [])
            if write in waiting:
                waiting.remove(write)
            elif not write.was_brief:  # the thread has it, and its result is dropped
                write.future.cancel()
            if not waiting:
                self._brief.pop(write.loop, None)

    def _write_brief(self, loop: asyncio.AbstractEventLoop) -> None:
        """Commit all brief writes of one iteration of the loop. Called by the first task that comes back.

        If they cannot be written at once, they go to the thread.
        """
        with self._gate:
            writes = self._brief.pop(loop, None)
        if not writes:  # the thread has them, because a longer write was submitted after them
            return
        now = len(writes) <= self.tuning.batch and not self._is_loop_busy(writes) and not self._under_way
        if now and self._in_use.acquire(blocking=False):
            try:
                done = not self._closed and self._try_write(writes)
            except BaseException:  # re-raised: an interrupt. The callers must not wait for ever
                _set_error(writes, errors.EngineUnavailable("interrupted: it is not known whether this was written"))
                raise
            finally:
                self._in_use.release()
            if done:
                for write in writes:
                    write.was_brief = True
                return
        self._pass_on(writes)

    def _is_loop_busy(self, writes: Sequence[_Write]) -> bool:
        return time.perf_counter() - writes[0].asked > self.tuning.busy_seconds * len(writes)

    def _try_write(self, writes: list[_Write]) -> bool:
        """Write without waiting. False when nothing was written: another process is writing, or something failed."""
        self.db.set_busy_timeout(0)
        try:
            tx = self._begin()
            if not self._run_together(tx, writes) or tx.scrub:
                return False
            self._commit()
        except Exception:  # the thread tries again, meets the same error and reports it
            return False
        finally:
            self._roll_back()
        self.committed(tx.touched)
        self._leave_chores(len(writes))
        return True

    def _pass_on(self, writes: list[_Write]) -> None:
        """Give writes to the thread."""
        for write in writes:
            write.result = write.error = None
        try:
            with self._gate:
                self._check_open()
                self._enqueue(writes)
        except errors.StoreClosed as problem:
            _set_error(writes, problem)

    def _leave_chores(self, writes: int) -> None:
        """Leave chores to the thread. Wake it for the first, so that it waits for a quiet moment, and for many."""
        before, self._chores_due = self._chores_due, self._chores_due + writes
        self._last_write = time.monotonic()
        if not before or before < self.tuning.chores_at <= self._chores_due or self._wal_pages >= self._checkpoint_at:
            self._queue.put(_Wake.UP)

    # ---- the thread

    def _run(self) -> None:
        waiting: deque[_Write] = deque()
        try:
            self._work(waiting)
        except BaseException:  # re-raised; the callers must not wait for a dead thread
            with self._gate:
                self._closed = True
            self._fail(waiting)
            raise
        self.db.close()

    def _fail(self, waiting: deque[_Write]) -> None:
        while not self._queue.empty():
            if isinstance(write := self._queue.get(), _Write):
                waiting.append(write)
        for write in waiting:
            write.error = errors.EngineUnavailable("the writer stopped after an unexpected error; open the store again")
        _deliver(list(waiting))

    def _work(self, waiting: deque[_Write]) -> None:
        closing = False
        while not closing:
            closing = self._gather(waiting)
            with self._in_use:
                poll_while_busy(self.db, self.address.busy_timeout)
                self._work_once(waiting, closing)
            waiting.clear()

    def _work_once(self, waiting: Collection[_Write], closing: bool) -> None:
        quiet = closing or (not waiting and time.monotonic() - self._last_write >= self.tuning.chores_after_seconds)
        if waiting:
            self._last_group = sum(not write.is_slice for write in waiting) or 1
            for group in _groups(waiting):
                self._commit_group(group)
            self._chores_due += len(waiting)
        if self._chores_due >= self.tuning.chores_at or (self._chores_due and quiet):
            self._do_chores()
        # Copying the WAL can wait for a moment, those who wait for the thread cannot.
        if self._wal_pages >= self._checkpoint_at + (0 if self._queue.empty() else self.tuning.checkpoint_pages):
            self._checkpoint()

    def _gather(self, waiting: deque[_Write]) -> bool:
        """Wait for the next write and take all that are queued. True when the writer is closing."""
        pause = self.tuning.chores_after_seconds if self._chores_due else None
        try:
            write = self._queue.get(timeout=pause)
            while write is not None:
                if write is _Wake.UP:
                    return False
                waiting.append(write)
                if len(waiting) == self.tuning.batch:
                    return False
                # Callers that wrote together last time will write again: sharing a commit is worth a short wait.
                expected = len(waiting) < self._last_group
                write = self._queue.get(timeout=self.tuning.gather_seconds) if expected else self._queue.get_nowait()
        except Empty:
            return False
        return True

    def _do_chores(self) -> None:
        """Run chores until nothing is left or a write waits. If they fail, the next write makes them due again."""
        self._chores_due = 0
        try:
            with translate_errors(self.address.path):
                for done in count(1):
                    if not self._do_some_chores() or (self._closed and done >= CLOSING_CHORES):
                        return
                    if not self._queue.empty():  # the rest comes after that write
                        self._chores_due = 1
                        return
        except Exception:  # the writer must survive any text; a search runs the chores too, and reports the error
            self._roll_back()

    def _do_some_chores(self) -> int:
        tx = self._begin()
        done = self.chores(tx)
        self.db.execute("COMMIT")
        if tx.touched:
            self.committed(tx.touched)
        return done

    def _commit_group(self, writes: list[_Write]) -> None:
        self._write_group(writes)
        broken = [write for write in writes if _met_broken_page(write.error)]
        if broken and self._heal():
            for write in broken:
                write.error = None
            self._write_group(broken)
        with self._gate:
            self._under_way -= len(writes)
        _deliver(writes)

    def _write_group(self, writes: list[_Write]) -> None:
        """Run writes in one transaction, each on its own if one fails."""
        try:
            with translate_errors(self.address.path):
                tx = self._begin()
                if not self._run_together(tx, writes):
                    self._roll_back()
                    tx = self._begin()
                    for write in writes:
                        self._run_alone(tx, write)
                self._commit()
        except BaseException as problem:  # every caller gets it
            self._roll_back()
            for write in writes:
                write.error = write.error or problem
        else:
            self._follow_up(tx)

    def _follow_up(self, tx: Tx) -> None:
        """Do what a transaction asked for after its commit."""
        if tx.scrub:
            self.scrubber.request()
        self.committed(tx.touched)

    def _heal(self) -> bool:
        """Repair damaged tables of derived data. False when there is none: turns or the log are damaged, then."""
        if time.monotonic() - self._not_healed < HEAL_SECONDS:
            return False
        self.db.release_memory()
        try:
            found = self.repair()
        except Exception:  # the caller gets the error of its own write
            found = []
        if not found:
            self._not_healed = time.monotonic()
            return False
        log.warning("derived data was damaged and is being rebuilt (%s)", describe(found))
        return True

    # ---- a transaction

    def _begin(self) -> Tx:
        self._guard.check()  # writes to a deleted file would be lost
        self.db.execute("BEGIN IMMEDIATE")
        # The clock is read under the lock, so that two processes cannot give two events the same time.
        return Tx(self.db, micros(self.clock.now()))

    def check_file(self) -> None:
        """Raise if the file or its WAL was deleted, replaced or truncated since it was opened."""
        with self._in_use:
            if self._closed:
                raise errors.StoreClosed
            self._guard.check()

    def _commit(self) -> None:
        start = time.perf_counter()
        self.db.execute("COMMIT")
        self.average_seconds += (time.perf_counter() - start - self.average_seconds) * AVERAGE_WEIGHT
        self.commits += 1

    def _run_together(self, tx: Tx, writes: list[_Write]) -> bool:
        """Run the writes in order. False when one failed after it changed rows: then all run again, each on its own."""
        for write in writes:
            before = self.db.total_changes()
            try:
                write.result = write.work(tx, *write.arguments, **write.options)
            except Exception as problem:  # its caller gets it; the other writes continue
                if len(writes) == 1 or not self.db.in_transaction:
                    raise
                if self.db.total_changes() != before or not isinstance(problem, errors.PalaverError):
                    return False
                write.error = problem
        return True

    def _run_alone(self, tx: Tx, write: _Write) -> None:
        """Run one write inside a savepoint, so that its failure undoes only itself."""
        write.error = None
        self.db.execute("SAVEPOINT one")
        try:
            with translate_errors(self.address.path):
                write.result = write.work(tx, *write.arguments, **write.options)
        except Exception as problem:  # its caller gets it; the other writes continue
            if not self.db.in_transaction:
                raise  # the error ended the transaction of the whole group, as a full disk does
            write.error = problem
            self.db.execute("ROLLBACK TO one")
        self.db.execute("RELEASE one")

    def _roll_back(self) -> None:
        # After some errors, such as a full disk, SQLite has rolled back already.
        if self.db.in_transaction:
            self.db.execute("ROLLBACK")

    # ---- checkpoints

    def _wal_grew(self, _db: apsw.Connection, _name: str, pages: int) -> int:
        if pages < self._wal_pages:  # it was reset
            self._checkpoint_at = self.tuning.checkpoint_pages
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _checkpoint(self) -> None:
        """Copy the WAL into the file. While a reader holds it back, this is not tried after every commit."""
        try:
            self.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.Error:
            pass  # the WAL keeps growing, and the next commit reports the error
        self._checkpoint_at = self._wal_pages + self.tuning.checkpoint_pages


def _met_broken_page(error: BaseException | None) -> bool:
    return isinstance(error, errors.DatabaseCorrupt) and not isinstance(error, errors.RowUnreadable)


def _groups(waiting: Iterable[_Write]) -> Iterator[list[_Write]]:
    """Yield the writes of each commit."""
    together = [write for write in waiting if not write.is_slice]
    if together:
        yield together
    for write in waiting:
        if write.is_slice:
            yield [write]


def _deliver(writes: list[_Write]) -> None:
    """Give results to the waiting tasks, with one wake-up per event loop."""
    loops: dict[asyncio.AbstractEventLoop, list[_Write]] = {}
    for write in writes:
        loops.setdefault(write.loop, []).append(write)
    for loop, mine in loops.items():
        try:
            loop.call_soon_threadsafe(_resolve, mine)
        except RuntimeError:
            pass  # that loop is closed, and its tasks are gone


def _set_error(writes: list[_Write], problem: BaseException) -> None:
    for write in writes:
        write.error, write.was_brief = problem, True


def _resolve(writes: list[_Write]) -> None:
    for write in writes:
        if write.future.done():  # cancelled
            continue
        if write.error is not None:
            write.future.set_exception(write.error)
        else:
            write.future.set_result(write.result)
