"""Connections to one SQLite file: a writer thread that commits in groups, and readers beside it."""

from __future__ import annotations

import asyncio
import os
import threading
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
from palaver.identity import micros
from palaver.ports import Clock

T = TypeVar("T")
Row = tuple[Any, ...]

APPLICATION_ID = 0x506C7672  # "Plvr", in the file's header
READERS = 4
BATCH = 256
CHORES_AT, CHORES_AFTER_SECONDS = 256, 0.05
SCRUB_RETRY_SECONDS = 1.0
SCRUB_WAIT_MILLISECONDS = 1_000
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
    if not folder.exists():
        return errors.EngineUnavailable(f"the folder {folder} does not exist: create it first")
    if path.is_dir():
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
            _migrate(db)
            with db:
                setup(Tx(db, 0))
        except BaseException:
            db.close()
            raise
    return db


def _refuse_strangers(db: apsw.Connection, path: Path) -> None:
    application = _pragma(db, "application_id")
    if application == APPLICATION_ID:
        return
    tables = db.execute("SELECT count(*) FROM sqlite_schema").fetchall()[0][0]
    if application != 0 or tables:
        raise errors.NotADatabase(f"{path} is an SQLite file of another program, and was left alone")


def _migrate(db: apsw.Connection) -> list[int]:
    """Run the migrations that are missing. Safe from many processes: the rest wait here, then find nothing to do."""
    steps = migrations("palaver.engines.sqlite.migrations")
    if _pragma(db, "user_version") == steps[-1].number:
        return []
    _refuse_newer(db, steps[-1].number)
    db.execute("PRAGMA journal_mode = WAL").fetchall()
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
    except BaseException:
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

    def one(self, sql: str, **values: Any) -> Row | None:
        rows = self.db.execute(sql, values).fetchall()
        return rows[0] if rows else None

    def all(self, sql: str, **values: Any) -> list[Row]:
        return self.db.execute(sql, values).fetchall()

    def run(self, sql: str, **values: Any) -> None:
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
        closing = False
        while not closing:
            closing = self._gather(waiting)
            idle = not waiting
            if waiting:
                self._commit_group(list(waiting))
                self._chores_due += len(waiting)
                waiting.clear()
            if self._chores_due >= CHORES_AT or (self._chores_due and (idle or closing)):
                self._do_chores()
            if self.unscrubbed and (idle or closing):
                self._truncate_wal(0)
        self.db.close()

    def _gather(self, waiting: deque[_Job]) -> bool:
        """Wait for the next write and take all that is queued behind it. True when there will be no more."""
        pause = CHORES_AFTER_SECONDS if self._chores_due else SCRUB_RETRY_SECONDS if self.unscrubbed else None
        try:
            job = self._queue.get(timeout=pause)
            while job is not None:
                waiting.append(job)
                if len(waiting) == BATCH:
                    return False
                job = self._queue.get_nowait()
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
                    done = self.chores(Tx(self.db, micros(self.clock.now())))
                    self.db.execute("COMMIT")
                    if not done:
                        return
        except errors.EngineError:
            self._roll_back()

    def _commit_group(self, jobs: list[_Job]) -> None:
        tx = Tx(self.db, 0)
        try:
            with translated(self.address.path):
                self.db.execute("BEGIN IMMEDIATE")
                # The clock is read under the lock: two processes cannot take the same moment for two events.
                tx.now = micros(self.clock.now())
                for job in jobs:
                    self._attempt(tx, job, alone=len(jobs) == 1)
                self.db.execute("COMMIT")
        except BaseException as problem:  # it belongs to the callers: each one gets it
            self._roll_back()
            for job in jobs:
                job.error = job.error or problem
        else:
            self.commits += 1
            if tx.scrub:
                self.unscrubbed = True
                self._truncate_wal(SCRUB_WAIT_MILLISECONDS)
            if tx.touched:
                self.committed(tx.touched)
        _deliver(jobs)

    def _attempt(self, tx: Tx, job: _Job, *, alone: bool) -> None:
        """Run one write so that its failure undoes it and nothing else."""
        if alone:
            job.result = job.work(tx)
            return
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

    # ---- old bytes in the WAL

    def _marked_unscrubbed(self) -> bool:
        with translated(self.address.path):
            return bool(self.db.execute("SELECT 1 FROM meta WHERE name = 'scrub'").fetchall())

    def _truncate_wal(self, wait: int) -> None:
        """Move everything into the file and cut the WAL to nothing; what a reader still needs stays for now."""
        self.db.set_busy_timeout(wait)
        try:
            busy, *_ = self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0]
            if not busy:
                self.db.execute("DELETE FROM meta WHERE name = 'scrub'")
                self.unscrubbed = False
        except (apsw.BusyError, apsw.LockedError):
            pass  # tried again a second later, and by whoever opens the file next
        finally:
            self.db.set_busy_timeout(self.address.busy_timeout)


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
