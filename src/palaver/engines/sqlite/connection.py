"""Connections to one SQLite file: how each is opened, what goes wrong with them, and those that read."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit
from weakref import WeakSet

import apsw
import msgspec

from palaver import errors
from palaver.core.identity import micros
from palaver.engines.migrate import migrations
from palaver.engines.sqlite.unreadable_rows import unreadable
from palaver.ports.clock import Clock

T = TypeVar("T")
Row = tuple[Any, ...]

APPLICATION_ID = 0x506C7672  # "Plvr", in the file's header
READERS = 4
# A disk that takes less than this, as of late, is not worth a thread: to wake one and to be woken by it costs as much.
AT_ONCE_SECONDS, WEIGHT = 0.001, 1 / 16
LEFT_TO_THREADS = 256  # reads, before it is tried again
# A second writer waits this long for the first; appends take well under a millisecond each.
BUSY_MILLISECONDS = 30_000
UNREADABLE = (UnicodeDecodeError, msgspec.DecodeError)  # raised by what reads a row that was damaged


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
        slashes = url.partition(":")[2].startswith("///")  # with fewer, the first letter of a name would be lost
        if not slashes or not parts.path.lstrip("/") or "%00" in url or "\0" in url:
            raise errors.InvalidInput("url", "an SQLite URL is sqlite:///relative.db or sqlite:////absolute.db")
        if parts.fragment:
            raise errors.InvalidInput("url", "a # in the name of a file is written %23")
        path = Path(unquote(parts.path[1:]))
        if str(path) == ":memory:":
            raise errors.InvalidInput("url", "a database that is gone when the block ends is memory:")
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        synchronous = options.pop("synchronous", "FULL").upper()
        if synchronous not in ("FULL", "NORMAL"):
            raise errors.InvalidInput("url", "synchronous must be FULL or NORMAL")
        timeout = options.pop("busy_timeout", str(BUSY_MILLISECONDS))
        if not timeout.isdecimal() or len(timeout) > 8:
            raise errors.InvalidInput("url", "busy_timeout must be whole milliseconds, in eight digits at most")
        if options:
            raise errors.InvalidInput("url", f"unknown option {sorted(options)[0]!r}")
        return cls(path.absolute(), synchronous, int(timeout))  # the program may go to another folder later


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
    except UNREADABLE:  # from where nobody knows which row it is
        raise errors.DatabaseCorrupt(f"a row of {path} is damaged: `palaver verify` names it") from None


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
        try:
            rows = self.db.execute(sql, values).fetchall()
        except UnicodeDecodeError:
            raise unreadable(self.db, sql, values) from None
        return rows[0] if rows else None

    def all(self, sql: str, **values: Any) -> list[Row]:
        try:
            return self.db.execute(sql, values).fetchall()
        except UnicodeDecodeError:
            raise unreadable(self.db, sql, values) from None

    def each(self, sql: str, **values: Any) -> Iterator[Row]:
        """Like `all`, for who may not want all of them."""
        try:
            yield from self.db.execute(sql, values)
        except UnicodeDecodeError:
            raise unreadable(self.db, sql, values) from None

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


class ForkGuard:
    """Who has connections. The child of a fork must not use those of its parent."""

    def __init__(self) -> None:
        self._closed = False
        _owners.add(self)


_owners: WeakSet[ForkGuard] = WeakSet()


def _forked() -> None:
    for owner in _owners:
        owner._closed = True


os.register_at_fork(after_in_child=_forked)


class DedicatedReader:
    """A connection of somebody who reads for long, in threads: one at a time, also when whoever waits is cancelled."""

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

    One more is for brief reads on a fast disk, which are done without a thread.
    """

    def __init__(self, address: Address, clock: Clock) -> None:
        self.address, self.clock = address, clock
        self.pace = 0.0  # of a brief read, as of late
        self._left = 0  # to the threads: so many of the next ones
        self._here: apsw.Connection | None = None
        self._in_use = threading.Lock()  # that one
        self._local = threading.local()
        self._opened: list[apsw.Connection] = []
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="palaver-reader")
        super().__init__()

    def warm(self) -> None:
        """When there is something to read. Blocks."""
        try:
            db = self.connect()
        except apsw.Error:
            return  # a thread will run into it, and tell
        db.set_busy_timeout(0)
        self._here = db

    async def run(self, work: Work[T]) -> T:
        """One read in one snapshot."""
        if self._closed:
            raise errors.StoreClosed
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._read, work)

    async def run_brief(self, work: Work[T]) -> T:
        """The same for a read of a few rows. Others of the event loop get their turn, as they do with a thread."""
        await asyncio.sleep(0)
        if self._left > 0:
            self._left -= 1
        elif self._here is not None and not self._closed and self._in_use.acquire(blocking=False):
            try:
                return self._read_here(self._here, work)
            except (apsw.Error, *UNREADABLE):  # a thread runs into it again, and tells
                pass
            finally:
                self._in_use.release()
        return await self.run(work)

    def _read_here(self, db: apsw.Connection, work: Work[T]) -> T:
        start = time.perf_counter()
        try:
            return self._in_snapshot(db, work)
        finally:
            self.pace += (time.perf_counter() - start - self.pace) * WEIGHT
            if self.pace > AT_ONCE_SECONDS:
                self.pace, self._left = 0.0, LEFT_TO_THREADS

    def _read(self, work: Work[T]) -> T:
        with translated(self.address.path):
            return self._in_snapshot(self._connection(), work)

    def _in_snapshot(self, db: apsw.Connection, work: Work[T]) -> T:
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
        if self._closed:
            raise errors.StoreClosed
        return connect(self.address, readonly=True)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._pool.shutdown(wait=True)
            with self._in_use:
                for db in (*self._opened, *filter(None, [self._here])):
                    db.close()
