"""The one connection of this process that writes: who may use it when, and which writes share a commit."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import apsw

from palaver import errors
from palaver.core.identity import micros
from palaver.engines.sqlite.connection import (
    AT_ONCE_SECONDS,
    WEIGHT,
    Address,
    ForkGuard,
    Tx,
    Work,
    prepare,
    translated,
)
from palaver.engines.sqlite.page_scrubbing import clear_gaps
from palaver.ports.clock import Clock

T = TypeVar("T")

BATCH = 256
GATHER_SECONDS = 0.0003
CHORES_AT, CHORES_AFTER_SECONDS = 128, 0.05
SCRUB_RETRY_SECONDS = 1.0
SCRUB_WAIT_MILLISECONDS = 1_000
SCRUB_TRIES = 10
CHECKPOINT_PAGES = 1_000
# A loop that took longer than this to come to the writes it was asked for, for each of them, has other things to do.
BUSY_SECONDS = 0.0001
UNKNOWN_SECONDS = 2 * AT_ONCE_SECONDS


@dataclass(slots=True, eq=False)
class _Job:
    work: Work[Any]
    loop: asyncio.AbstractEventLoop
    asked: float
    future: asyncio.Future[Any] = field(init=False)  # by which the thread tells: of one that it has
    result: Any = None
    error: BaseException | None = None
    was_brief: bool = False  # done without the thread


def _new_job(work: Work[Any]) -> _Job:
    return _Job(work, asyncio.get_running_loop(), time.perf_counter())


def _is_busy(jobs: Sequence[_Job]) -> bool:
    return time.perf_counter() - jobs[0].asked > BUSY_SECONDS * len(jobs)


class _Wake(Enum):
    """Told to a thread that has nothing to write, but something to do."""

    UP = "up"


class Writer(ForkGuard):
    """A thread that writes. What is queued while it commits shares the next commit.

    Where the disk is fast and the event loop has nothing else to do, brief writes are done without it: those of one
    turn of the loop together, at its end.
    """

    def __init__(
        self,
        address: Address,
        clock: Clock,
        *,
        setup: Work[None],
        chores: Work[int],
        committed: Callable[[set[str]], None],
    ) -> None:
        """`chores` is what may wait a moment: it is done when nothing else is, or when enough has piled up."""
        self.address, self.clock, self.committed, self.chores = address, clock, committed, chores
        self.commits = 0
        self.pace = UNKNOWN_SECONDS  # of a commit, as of late
        self._chores_due = 1
        self._last_group = 1
        self._last_write = 0.0
        self._wal_pages, self._checkpoint_at = 0, CHECKPOINT_PAGES
        self.db = prepare(address, setup)
        self._name = str(address.path)  # a Path costs more than the question, and every commit asks it
        self._file = self._identity()
        self.db.set_wal_hook(self._wal_grew)  # in the place of SQLite's own checkpoints, which are part of a commit
        self.unscrubbed = self._marked_unscrubbed()
        self._brief: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
        self._queue: SimpleQueue[_Job | _Wake | None] = SimpleQueue()
        self._in_use = threading.Lock()  # the connection
        self._gate = threading.RLock()  # the way into the queue, until it is closed
        self._under_way = 0  # jobs that the thread has, and has not done yet
        super().__init__()
        self._thread = threading.Thread(target=self._run, name="palaver-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Work[T]) -> asyncio.Future[T]:
        job = _new_job(work)
        with self._gate:
            self._check_open()
            self._queue_up([*self._brief.pop(job.loop, ()), job])  # nothing overtakes what was asked for before it
        return job.future

    def submit_chores(self) -> asyncio.Future[int]:
        """Them now, for who cannot wait for a quiet moment; once more when they have not come to their end."""
        return self.submit(self._chores_at_once)

    def _chores_at_once(self, tx: Tx) -> int:
        self._chores_due = 0
        return self.chores(tx)

    async def submit_brief(self, work: Work[T]) -> T:
        """The same for a write that takes less time than its commit."""
        if self.pace > AT_ONCE_SECONDS:
            return await self.submit(work)
        job = _new_job(work)
        with self._gate:
            self._check_open()
            self._brief.setdefault(job.loop, []).append(job)
        try:
            await asyncio.sleep(0)  # who else writes in this turn of the loop comes along
        except BaseException:  # cancelled before it was written: passed on
            self._withdraw(job)
            raise
        if not job.was_brief:
            self._write_brief(job.loop)
        if not job.was_brief:
            await job.future
        elif job.error is not None:
            raise job.error
        result: T = job.result
        return result

    def close(self) -> None:
        """Finish what was asked for, then close. Blocks."""
        with self._gate:
            if self._closed:
                return
            self._closed = True
            self._queue_up(chain(*self._brief.values()))
            self._brief.clear()
            self._queue.put(None)
        self._thread.join()

    # What is queued is done: all this is called by who holds the gate, and nothing comes behind the end of the queue.

    def _queue_up(self, jobs: Iterable[_Job]) -> None:
        for job in jobs:
            job.future = job.loop.create_future()
            self._under_way += 1
            self._queue.put(job)

    def _check_open(self) -> None:
        if self._closed:
            raise errors.StoreClosed

    # ---- without the thread

    def _withdraw(self, job: _Job) -> None:
        with self._gate:
            waiting = self._brief.get(job.loop, [])
            if job in waiting:
                waiting.remove(job)
            elif not job.was_brief:  # the thread has it, and tells nobody
                job.future.cancel()
            if not waiting:
                self._brief.pop(job.loop, None)

    def _write_brief(self, loop: asyncio.AbstractEventLoop) -> None:
        """All that a turn of the loop asked for, by who is the first to come back. The thread does what cannot be done
        at once."""
        with self._gate:
            jobs = self._brief.pop(loop, None)
        if not jobs:  # the thread has them, with something that was asked for later
            return
        now = len(jobs) <= BATCH and not _is_busy(jobs) and not self._under_way
        if now and self._in_use.acquire(blocking=False):
            try:
                done = not self._closed and self._written_at_once(jobs)
            except BaseException:  # passed on: an interrupt. Nobody may wait for what it cut off
                _tell(jobs, errors.EngineUnavailable("interrupted: it is not known whether this was written"))
                raise
            finally:
                self._in_use.release()
            if done:
                for job in jobs:
                    job.was_brief = True
                return
        self._pass_on(jobs)

    def _written_at_once(self, jobs: list[_Job]) -> bool:
        """False when nothing was written: another process is writing, or something failed. The thread will see."""
        self.db.set_busy_timeout(0)
        try:
            tx = self._begin()
            if not self._all_at_once(tx, jobs) or tx.scrub:
                return False
            self._commit()
        except Exception:  # the thread runs into it again, and tells those who asked
            return False
        finally:
            self._roll_back()
        self.committed(tx.touched)
        self._leave_chores(len(jobs))
        return True

    def _pass_on(self, jobs: list[_Job]) -> None:
        for job in jobs:
            job.result = job.error = None
        try:
            with self._gate:
                self._check_open()
                self._queue_up(jobs)
        except errors.StoreClosed as problem:
            _tell(jobs, problem)

    def _leave_chores(self, writes: int) -> None:
        """To the thread. It must hear of the first, to wait for a quiet moment, and when there are many."""
        before, self._chores_due = self._chores_due, self._chores_due + writes
        self._last_write = time.monotonic()
        if not before or before < CHORES_AT <= self._chores_due or self._wal_pages >= self._checkpoint_at:
            self._queue.put(_Wake.UP)

    # ---- the thread

    def _run(self) -> None:
        waiting: deque[_Job] = deque()
        try:
            self._work(waiting)
        except BaseException:  # nobody may wait for a thread that is gone
            with self._gate:
                self._closed = True
            self._fail(waiting)
            raise
        self.db.close()

    def _fail(self, waiting: deque[_Job]) -> None:
        while not self._queue.empty():
            if isinstance(job := self._queue.get(), _Job):
                waiting.append(job)
        for job in waiting:
            job.error = errors.EngineUnavailable("the writer stopped after an unexpected error; open the store again")
        _deliver(list(waiting))

    def _work(self, waiting: deque[_Job]) -> None:
        closing = False
        while not closing:
            closing = self._gather(waiting)
            with self._in_use:
                self.db.set_busy_timeout(self.address.busy_timeout)
                self._work_once(waiting, closing)
            waiting.clear()

    def _work_once(self, waiting: Collection[_Job], closing: bool) -> None:
        quiet = closing or (not waiting and time.monotonic() - self._last_write >= CHORES_AFTER_SECONDS)
        if waiting:
            self._last_group = len(waiting)
            self._commit_group(list(waiting))
            self._chores_due += len(waiting)
        if self._chores_due >= CHORES_AT or (self._chores_due and quiet):
            self._do_chores()
        if self.unscrubbed and quiet:
            self._scrub(0)
        if self._wal_pages >= self._checkpoint_at:
            self._checkpoint()

    def _gather(self, waiting: deque[_Job]) -> bool:
        """Wait for the next write and take all that is queued behind it. True when there will be no more."""
        pause = CHORES_AFTER_SECONDS if self._chores_due else SCRUB_RETRY_SECONDS if self.unscrubbed else None
        try:
            job = self._queue.get(timeout=pause)
            while job is not None:
                if job is _Wake.UP:
                    return False
                waiting.append(job)
                if len(waiting) == BATCH:
                    return False
                # Those who wrote together last time are about to write again: sharing one commit is worth a moment.
                expected = len(waiting) < self._last_group
                job = self._queue.get(timeout=GATHER_SECONDS) if expected else self._queue.get_nowait()
        except Empty:
            return False
        return True

    def _do_chores(self) -> None:
        """What was put off. If it fails, it stays put off: the next write brings it up again."""
        self._chores_due = 0
        try:
            with translated(self.address.path):
                while True:
                    self.db.execute("BEGIN IMMEDIATE")
                    tx = Tx(self.db, micros(self.clock.now()))
                    done = self.chores(tx)
                    self.db.execute("COMMIT")
                    if tx.touched:
                        self.committed(tx.touched)
                    if not done:
                        return
        except Exception:  # whatever a text does to the index, the writer must live; a search meets the same error
            self._roll_back()

    def _commit_group(self, jobs: list[_Job]) -> None:
        try:
            with translated(self.address.path):
                tx = self._begin()
                if not self._all_at_once(tx, jobs):
                    self._roll_back()
                    tx = self._begin()
                    for job in jobs:
                        self._by_itself(tx, job)
                self._commit()
        except BaseException as problem:  # it belongs to the callers: each one gets it
            self._roll_back()
            for job in jobs:
                job.error = job.error or problem
        else:
            if tx.scrub:
                self.unscrubbed = True
                self._scrub(SCRUB_WAIT_MILLISECONDS)
            self.committed(tx.touched)
        with self._gate:
            self._under_way -= len(jobs)
        _deliver(jobs)

    # ---- a transaction

    def _begin(self) -> Tx:
        if self._identity() != self._file:  # what is written to it now, nobody would ever find
            raise errors.EngineUnavailable(f"{self.address.path} was deleted or replaced: open the store again")
        self.db.execute("BEGIN IMMEDIATE")
        # The clock is read under the lock: two processes cannot take the same moment for two events.
        return Tx(self.db, micros(self.clock.now()))

    def _identity(self) -> tuple[int, int] | None:
        """Of the file that has our name."""
        try:
            found = os.stat(self._name)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _commit(self) -> None:
        start = time.perf_counter()
        self.db.execute("COMMIT")
        self.pace += (time.perf_counter() - start - self.pace) * WEIGHT
        self.commits += 1

    def _all_at_once(self, tx: Tx, jobs: list[_Job]) -> bool:
        """Run the writes one after another. False when one failed halfway: then all must run again, each by itself."""
        for job in jobs:
            before = self.db.total_changes()
            try:
                job.result = job.work(tx)
            except Exception as problem:  # its caller gets it; the others' writes go on
                if len(jobs) == 1 or not self.db.in_transaction:
                    raise
                if self.db.total_changes() != before or not isinstance(problem, errors.PalaverError):
                    return False
                job.error = problem
        return True

    def _by_itself(self, tx: Tx, job: _Job) -> None:
        """Run one write so that its failure undoes it and nothing else."""
        job.error = None
        self.db.execute("SAVEPOINT one")
        try:
            with translated(self.address.path):
                job.result = job.work(tx)
        except Exception as problem:  # its caller gets it; the others' writes go on
            if not self.db.in_transaction:
                raise  # the whole group went down with it, as on a full disk
            job.error = problem
            self.db.execute("ROLLBACK TO one")
        self.db.execute("RELEASE one")

    def _roll_back(self) -> None:
        # SQLite rolls back by itself after some errors, a full disk among them.
        if self.db.in_transaction:
            self.db.execute("ROLLBACK")

    # ---- the log of SQLite, and old bytes in it and in the file

    def _wal_grew(self, _db: apsw.Connection, _name: str, pages: int) -> int:
        if pages < self._wal_pages:  # it began anew
            self._checkpoint_at = CHECKPOINT_PAGES
        self._wal_pages = pages
        return apsw.SQLITE_OK

    def _checkpoint(self) -> None:
        """As SQLite would do it by itself; while a reader holds it back, not after every commit."""
        try:
            self.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.Error:
            pass  # the log goes on growing, and the next commit says what is wrong
        self._checkpoint_at = self._wal_pages + CHECKPOINT_PAGES

    def _marked_unscrubbed(self) -> bool:
        with translated(self.address.path):
            return bool(self.db.execute("SELECT 1 FROM meta WHERE name = 'scrub'").fetchall())

    def _scrub(self, wait: int) -> None:
        """Cut the WAL to nothing and clear the gaps of the file; what a reader still needs stays for now."""
        self.db.set_busy_timeout(wait)
        try:
            for _ in range(SCRUB_TRIES):
                busy, *_ = self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0]
                if busy or self._clear_gaps():
                    break
        except (apsw.Error, OSError):
            pass  # tried again a second later, and by whoever opens the file next
        finally:
            self._roll_back()
            self.db.set_busy_timeout(self.address.busy_timeout)

    def _clear_gaps(self) -> bool:
        """Clear the file while nobody writes. False when another process has written since the WAL was cut."""
        self.db.execute("BEGIN IMMEDIATE")
        wal = Path(self.db.filename_wal)
        if wal.exists() and wal.stat().st_size:
            self.db.execute("ROLLBACK")
            return False
        clear_gaps(self.db.filename)
        # Pages in memory still have their gaps as they were; the commit makes other processes drop theirs.
        self.db.release_memory()
        self.db.execute("DELETE FROM meta WHERE name = 'scrub'")
        self.db.execute("COMMIT")
        self.unscrubbed = False
        return True


def _deliver(jobs: list[_Job]) -> None:
    """Hand results to the waiting tasks: one wake-up per event loop, not one per task."""
    loops: dict[asyncio.AbstractEventLoop, list[_Job]] = {}
    for job in jobs:
        loops.setdefault(job.loop, []).append(job)
    for loop, mine in loops.items():
        try:
            loop.call_soon_threadsafe(_resolve, mine)
        except RuntimeError:
            pass  # that loop is closed: nobody is waiting there any more


def _tell(jobs: list[_Job], problem: BaseException) -> None:
    for job in jobs:
        job.error, job.was_brief = problem, True


def _resolve(jobs: list[_Job]) -> None:
    for job in jobs:
        if job.future.done():  # cancelled
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.result)
