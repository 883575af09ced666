"""Connections to one SQLite file: a writer thread that commits in groups, and readers beside it."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

import apsw

from palaver import errors
from palaver.engines.migrate import migrations
from palaver.engines.sqlite.gaps import clear_gaps
from palaver.identity import micros
from palaver.ports import Clock

T = TypeVar("T")
Row = tuple[Any, ...]

APPLICATION_ID = 0x506C7672  # "Plvr", in the file's header
READERS = 4
BATCH = 256
GATHER_SECONDS = 0.0003
CHORES_AT, CHORES_AFTER_SECONDS = 64, 0.05
SCRUB_RETRY_SECONDS = 1.0
SCRUB_WAIT_MILLISECONDS = 1_000
SCRUB_TRIES = 10
# A second writer waits this long for the first; appends take well under a millisecond each.
BUSY_MILLISECONDS = 30_000


@dataclass(frozen=True, slots=True)
class Address:
    """Where the file is and how carefully it is written."""

    path: Path
    synchronous: str = "FULL"
    busy_timeout: int = BUSY_MILLISECONDS

    @classmethod
    def parse(cls, url: str) -> Address:
        """`sqlite:///relative.db`, `sqlite:////absolute.db`, with `?synchronous=NORMAL&busy_timeout=5000`."""
        parts = urlsplit(url)
        if parts.netloc or not parts.path.lstrip("/"):
            raise errors.InvalidInput("url", "an SQLite URL is sqlite:///relative.db or sqlite:////absolute.db")
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        synchronous = options.pop("synchronous", "FULL").upper()
        if synchronous not in ("FULL", "NORMAL"):
            raise errors.InvalidInput("url", "synchronous must be FULL or NORMAL")
        timeout = options.pop("busy_timeout", str(BUSY_MILLISECONDS))
        if not timeout.isdigit():
            raise errors.InvalidInput("url", "busy_timeout must be whole milliseconds")
        if options:
            raise errors.InvalidInput("url", f"unknown option {sorted(options)[0]!r}")
        return cls(Path(unquote(parts.path[1:])), synchronous, int(timeout))


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """SQLite's complaints as ours. Its messages may quote rows, so none is passed on."""
    try:
        yield
    except apsw.NotADBError as problem:
        raise errors.NotADatabase(f"{path} is not an SQLite database") from problem
    except apsw.CorruptError as problem:
        raise errors.DatabaseCorrupt(f"{path} is damaged: restore a backup, or look with `palaver doctor`") from problem
    except apsw.FullError as problem:
        raise errors.DatabaseFull(f"no space left for {path}; nothing was written") from problem
    except apsw.ReadOnlyError as problem:
        raise errors.DatabaseReadOnly(f"{path} or its folder cannot be written") from problem
    except (apsw.BusyError, apsw.LockedError) as problem:
        raise errors.EngineUnavailable(f"{path} stayed locked by another process; try again") from problem
    except apsw.CantOpenError as problem:
        raise _cannot_open(path) from problem
    except apsw.IOError as problem:
        raise _io_error(path, problem) from problem


def _cannot_open(path: Path) -> errors.EngineError:
    folder = path.parent
    if not os.path.isdir(folder):  # also when one may not look: pathlib would raise
        return errors.EngineUnavailable(f"the folder {folder} does not exist, or is out of reach: create it first")
    if os.path.isdir(path):
        return errors.NotADatabase(f"{path} is a folder")
    return errors.DatabaseReadOnly(f"{path} cannot be opened: check the permissions of the file and of {folder}")


def _io_error(path: Path, problem: apsw.IOError) -> errors.EngineError:
    # SQLite reports a full disk as a failed write in some places, and as "full" in others.
    space = os.statvfs(path.parent) if path.parent.exists() else None
    if space is not None and space.f_bavail == 0:
        return errors.DatabaseFull(f"no space left for {path}; nothing was written")
    return errors.EngineUnavailable(f"the disk under {path} failed ({type(problem).__name__})")


def connect(address: Address, *, readonly: bool) -> apsw.Connection:
    """A connection with the settings that every one of ours has."""
    flags = apsw.SQLITE_OPEN_READWRITE | (0 if readonly else apsw.SQLITE_OPEN_CREATE)
    db = apsw.Connection(str(address.path), flags=flags)
    db.set_busy_timeout(address.busy_timeout)
    # A plan does not depend on values. Else an SQLite with STAT4 compiles a statement again for each range that it is
    # given, which takes several times as long as running it.
    db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    # Some builds of SQLite turn secure_delete on by themselves; this asks for it, whatever the build.
    for pragma in (
        "secure_delete = ON",
        "foreign_keys = ON",
        f"synchronous = {address.synchronous}",
        "cache_size = -16000",
        "temp_store = MEMORY",
        *(("query_only = ON",) if readonly else ()),
    ):
        db.execute(f"PRAGMA {pragma}").fetchall()
    return db


def prepare(address: Address, setup: Work[None]) -> apsw.Connection:
    """Open the writing connection, bring the schema up to date, and run `setup`."""
    with translated(address.path):
        db = connect(address, readonly=False)
        try:
            _refuse_strangers(db, address.path)
            _migrate(db, address)
            _patiently(address, lambda: _set_up(db, setup))
        except BaseException:  # passed on; only the connection must not stay open
            db.close()
            raise
    return db


def _refuse_strangers(db: apsw.Connection, path: Path) -> None:
    # One statement, one snapshot: another process may be creating the schema at this moment.
    found = db.execute("SELECT application_id, (SELECT count(*) FROM sqlite_schema) FROM pragma_application_id")
    application, tables = found.fetchall()[0]
    if application != APPLICATION_ID and (application != 0 or tables):
        raise errors.NotADatabase(f"{path} is an SQLite file of another program, and was left alone")


def _set_up(db: apsw.Connection, setup: Work[None]) -> None:
    with db:
        setup(Tx(db, 0))


def _patiently(address: Address, work: Callable[[], object]) -> None:
    """Give way and retry where SQLite does not wait by itself, as two who wait for each other would wait for ever.

    That is the switch to WAL, and a transaction that read before another process wrote, and now wants to write.
    """
    deadline = time.monotonic() + address.busy_timeout / 1_000
    while True:
        try:
            work()
            return
        except apsw.BusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(random.uniform(0.001, 0.02))


def _migrate(db: apsw.Connection, address: Address) -> list[int]:
    """Run the migrations that are missing. Safe from many processes: the rest wait here, then find nothing to do."""
    steps = migrations("palaver.engines.sqlite.migrations")
    if _pragma(db, "user_version") == steps[-1].number:
        return []
    _refuse_newer(db, steps[-1].number)
    _patiently(address, lambda: db.execute("PRAGMA journal_mode = WAL").fetchall())
    ran = []
    db.execute("BEGIN IMMEDIATE")
    try:
        found = _refuse_newer(db, steps[-1].number)
        for step in steps:
            if step.number > found:
                db.execute(step.sql).fetchall()
                db.execute(f"PRAGMA user_version = {step.number}")
                ran.append(step.number)
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        db.execute("COMMIT")
    except BaseException:  # passed on; a migration is whole or not there
        db.execute("ROLLBACK")
        raise
    return ran


def _refuse_newer(db: apsw.Connection, known: int) -> int:
    found: int = _pragma(db, "user_version")
    if found > known:
        raise errors.DatabaseTooNew(found=found, known=known)
    return found


def _pragma(db: apsw.Connection, name: str) -> Any:
    return db.execute(f"PRAGMA {name}").fetchall()[0][0]


# ---- transactions --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Tx:
    """An open transaction. A write is a function of one of these."""

    db: apsw.Connection
    now: int
    touched: set[str] = field(default_factory=set)
    scrub: bool = False
    removed_terms: set[str] = field(default_factory=set)

    def one(self, sql: str, **values: Any) -> Row | None:
        rows = self.db.execute(sql, values).fetchall()
        return rows[0] if rows else None

    def all(self, sql: str, **values: Any) -> list[Row]:
        return self.db.execute(sql, values).fetchall()

    def run(self, sql: str, **values: Any) -> None:
        self.db.execute(sql, values)

    def put(self, sql: str, *values: Any) -> None:
        """Like `run`, with values by place: for the few statements that every append runs."""
        self.db.execute(sql, values)

    def insert(self, sql: str, **values: Any) -> int:
        """Run it, and answer with the new row's number."""
        self.db.execute(sql, values)
        return self.db.last_insert_rowid()


Work = Callable[[Tx], T]


@dataclass(slots=True)
class _Job:
    work: Work[Any]
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Any]
    result: Any = None
    error: BaseException | None = None


class Writer:
    """One thread that owns the writing connection. What is queued while it commits shares the next commit."""

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
        self._chores_due = 1
        self._last_group = 1
        self.commits = 0
        self.db = prepare(address, setup)
        self.unscrubbed = self._marked_unscrubbed()
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="palaver-writer", daemon=True)
        self._thread.start()

    def submit(self, work: Work[T]) -> asyncio.Future[T]:
        if self._closed:
            raise errors.StoreClosed
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._queue.put(_Job(work, loop, future))
        return future

    def close(self) -> None:
        """Finish what is queued, then close. Blocks."""
        if not self._closed:
            self._closed = True
            self._queue.put(None)
            self._thread.join()

    def _run(self) -> None:
        waiting: deque[_Job] = deque()
        try:
            self._work(waiting)
        except BaseException:  # nobody may wait for a thread that is gone
            self._closed = True
            self._fail(waiting)
            raise
        self.db.close()

    def _fail(self, waiting: deque[_Job]) -> None:
        while not self._queue.empty():
            if (job := self._queue.get()) is not None:
                waiting.append(job)
        for job in waiting:
            job.error = errors.EngineUnavailable("the writer stopped after an unexpected error; open the store again")
        _deliver(list(waiting))

    def _work(self, waiting: deque[_Job]) -> None:
        closing = False
        while not closing:
            closing = self._gather(waiting)
            idle = not waiting
            if waiting:
                self._last_group = len(waiting)
                self._commit_group(list(waiting))
                self._chores_due += len(waiting)
                waiting.clear()
            if self._chores_due >= CHORES_AT or (self._chores_due and (idle or closing)):
                self._do_chores()
            if self.unscrubbed and (idle or closing):
                self._scrub(0)

    def _gather(self, waiting: deque[_Job]) -> bool:
        """Wait for the next write and take all that is queued behind it. True when there will be no more."""
        pause = CHORES_AFTER_SECONDS if self._chores_due else SCRUB_RETRY_SECONDS if self.unscrubbed else None
        try:
            job = self._queue.get(timeout=pause)
            while job is not None:
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
                self.db.execute("COMMIT")
        except BaseException as problem:  # it belongs to the callers: each one gets it
            self._roll_back()
            for job in jobs:
                job.error = job.error or problem
        else:
            self.commits += 1
            if tx.scrub:
                self.unscrubbed = True
                self._scrub(SCRUB_WAIT_MILLISECONDS)
            if tx.touched:
                self.committed(tx.touched)
        _deliver(jobs)

    def _begin(self) -> Tx:
        self.db.execute("BEGIN IMMEDIATE")
        # The clock is read under the lock: two processes cannot take the same moment for two events.
        return Tx(self.db, micros(self.clock.now()))

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

    # ---- old bytes in the WAL and in the file

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


def _resolve(jobs: list[_Job]) -> None:
    for job in jobs:
        if job.future.cancelled():
            continue
        if job.error is not None:
            job.future.set_exception(job.error)
        else:
            job.future.set_result(job.result)


class Readers:
    """Reading connections, each on a thread of its own. They never wait for the writer."""

    def __init__(self, address: Address, clock: Clock) -> None:
        self.address, self.clock = address, clock
        self._local = threading.local()
        self._opened: list[apsw.Connection] = []
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="palaver-reader")
        self._closed = False

    async def run(self, work: Work[T]) -> T:
        """One read in one snapshot."""
        if self._closed:
            raise errors.StoreClosed
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._read, work)

    def _read(self, work: Work[T]) -> T:
        with translated(self.address.path):
            db = self._connection()
            db.execute("BEGIN")
            try:
                return work(Tx(db, micros(self.clock.now())))
            finally:
                db.execute("ROLLBACK")

    def _connection(self) -> apsw.Connection:
        if not hasattr(self._local, "db"):
            self._local.db = self.connect()
            self._opened.append(self._local.db)
        return self._local.db  # type: ignore[no-any-return]

    def connect(self) -> apsw.Connection:
        return connect(self.address, readonly=True)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._pool.shutdown(wait=True)
            for db in self._opened:
                db.close()
