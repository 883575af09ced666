"""Connections to one SQLite file: its address, how a connection is opened, what its errors become."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

import apsw
import msgspec

from palaver import errors
from palaver.engines.migrate import migrations
from palaver.engines.sqlite.transaction import Tx, Work

APPLICATION_ID = 0x506C7672  # "Plvr", in the file's header
BUSY_MILLISECONDS = 30_000  # how long a writer waits for another one; an append takes well under a millisecond
POLL_MILLISECONDS = 4  # how often a waiting connection looks for the lock, at most
UNREADABLE = (UnicodeDecodeError, msgspec.DecodeError)  # raised by reading a damaged row


@dataclass(frozen=True, slots=True)
class SQLiteAddress:
    """The path of a file, and the options of its connections."""

    path: Path
    synchronous: str = "FULL"
    busy_timeout: int = BUSY_MILLISECONDS

    @classmethod
    def parse(cls, url: str) -> SQLiteAddress:
        """Parse `sqlite:///relative.db` or `sqlite:////absolute.db`, with `?synchronous=NORMAL&busy_timeout=5000`."""
        parts = urlsplit(url)
        slashes = url.partition(":")[2].startswith("///")  # with fewer, part of the name would be taken as a host
        if not slashes or not parts.path.lstrip("/") or "%00" in url or "\0" in url:
            raise errors.InvalidInput("url", "an SQLite URL is sqlite:///relative.db or sqlite:////absolute.db")
        if parts.fragment:
            raise errors.InvalidInput("url", "write a # in a file name as %23")
        path = Path(unquote(parts.path[1:]))
        if str(path) == ":memory:":
            raise errors.InvalidInput("url", "for a database in memory, use memory:")
        options = dict(parse_qsl(parts.query, keep_blank_values=True))
        synchronous = options.pop("synchronous", "FULL").upper()
        if synchronous not in ("FULL", "NORMAL"):
            raise errors.InvalidInput("url", "synchronous must be FULL or NORMAL")
        timeout = options.pop("busy_timeout", str(BUSY_MILLISECONDS))
        if not timeout.isdecimal() or len(timeout) > 8:
            raise errors.InvalidInput("url", "busy_timeout must be a whole number of milliseconds, at most 99999999")
        if options:
            raise errors.InvalidInput("url", f"unknown option {sorted(options)[0]!r}")
        return cls(path.absolute(), synchronous, int(timeout))  # absolute, as the program may change its folder later


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Translate SQLite's errors to ours. Its messages may quote rows, so none is passed on."""
    try:
        yield
    except apsw.NotADBError as problem:
        raise errors.NotADatabase(f"{path} is not an SQLite database") from problem
    except apsw.CorruptError as problem:
        raise errors.DatabaseCorrupt(f"{path} is damaged: restore a backup, or run `palaver doctor`") from problem
    except apsw.FullError as problem:
        raise errors.DatabaseFull(f"no space left for {path}; nothing was written: free some space") from problem
    except apsw.ReadOnlyError as problem:
        raise errors.DatabaseReadOnly(f"{path} or its folder cannot be written") from problem
    except (apsw.BusyError, apsw.LockedError) as problem:
        raise errors.EngineUnavailable(f"{path} stayed locked by another process; try again") from problem
    except apsw.CantOpenError as problem:
        raise _cannot_open(path) from problem
    except apsw.IOError as problem:
        raise _io_error(path, problem) from problem
    except apsw.SQLError as problem:
        if not str(problem).startswith(("no such table", "no such column")):
            raise
        raise errors.DatabaseCorrupt(f"{path} lacks tables: it was truncated, or replaced by another file") from None
    except UNREADABLE:  # raised where the row is not known
        raise errors.DatabaseCorrupt(f"a row of {path} is damaged: `palaver verify` names it") from None


def _cannot_open(path: Path) -> errors.EngineError:
    folder = path.parent
    if not os.path.isdir(folder):  # false without permission too, where pathlib would raise
        return errors.EngineUnavailable(f"the folder {folder} does not exist or cannot be reached: create it first")
    if os.path.isdir(path):
        return errors.NotADatabase(f"{path} is a folder")
    if not os.path.exists(path) and os.access(folder, os.W_OK):  # a reader does not create it
        return errors.EngineUnavailable(f"{path} was deleted: open the store again")
    return errors.DatabaseReadOnly(f"{path} cannot be opened: check the permissions of the file and of {folder}")


def _io_error(path: Path, problem: apsw.IOError) -> errors.EngineError:
    # SQLite reports a full disk as a failed write in some places, and as "full" in others.
    space = os.statvfs(path.parent) if path.parent.exists() else None
    if space is not None and space.f_bavail == 0:
        return errors.DatabaseFull(f"no space left for {path}; nothing was written: free some space")
    return errors.EngineUnavailable(f"the disk under {path} failed ({type(problem).__name__})")


def connect(address: SQLiteAddress, *, readonly: bool, create: bool = False) -> apsw.Connection:
    """Open a connection with the settings that all of them share."""
    flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if create else 0)
    db = apsw.Connection(str(address.path), flags=flags)
    poll_while_busy(db, address.busy_timeout)
    # Plans must not depend on values. Otherwise an SQLite with STAT4 compiles a statement again for every range that it
    # is given, which takes several times as long as running it.
    db.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    # secure_delete is on by default only in some builds of SQLite.
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


def poll_while_busy(db: apsw.Connection, milliseconds: int) -> None:
    """Make a connection wait for a lock, and look again every few milliseconds.

    SQLite's own busy timeout sleeps up to a tenth of a second, and misses the pauses between the slices of a deletion.
    """
    deadline = 0.0

    def wait(attempts: int) -> bool:
        nonlocal deadline
        now = time.monotonic()
        deadline = deadline if attempts else now + milliseconds / 1_000
        if now >= deadline:
            return False
        time.sleep(min(attempts + 1, POLL_MILLISECONDS) / 1_000)
        return True

    db.set_busy_handler(wait)


def prepare(address: SQLiteAddress, setup: Work[None]) -> apsw.Connection:
    """Open the writing connection, bring the schema up to date, and run `setup`."""
    with translate_errors(address.path):
        db = connect(address, readonly=False, create=True)
        try:
            _refuse_foreign_file(db, address.path)
            _migrate(db, address)
            _retry_while_busy(address, lambda: _set_up(db, setup))
        except BaseException:  # re-raised; the connection must not stay open
            db.close()
            raise
    return db


def _refuse_foreign_file(db: apsw.Connection, path: Path) -> None:
    # One statement, one snapshot: another process may be creating the schema at this moment.
    found = db.execute("SELECT application_id, (SELECT count(*) FROM sqlite_schema) FROM pragma_application_id")
    application, tables = found.fetchall()[0]
    if application != APPLICATION_ID and (application != 0 or tables):
        raise errors.NotADatabase(f"{path} is an SQLite file of another program, and was not changed")


def _set_up(db: apsw.Connection, setup: Work[None]) -> None:
    with db:
        setup(Tx(db, 0))


def _retry_while_busy(address: SQLiteAddress, work: Callable[[], object]) -> None:
    """Retry until the busy timeout, where SQLite itself does not wait because two processes could block each other.

    That is the switch to WAL, and a transaction that read before another process wrote and now wants to write.
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


def _migrate(db: apsw.Connection, address: SQLiteAddress) -> list[int]:
    """Run the missing migrations. Safe from many processes: the others wait for the lock, then find nothing to do."""
    steps = migrations("palaver.engines.sqlite.migrations")
    if _pragma(db, "user_version") == steps[-1].number:
        return []
    _refuse_newer(db, steps[-1].number)
    _retry_while_busy(address, lambda: db.execute("PRAGMA journal_mode = WAL").fetchall())
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
    except BaseException:  # re-raised; migrations are applied completely or not at all
        db.execute("ROLLBACK")
        raise
    return ran


def _refuse_newer(db: apsw.Connection, known: int) -> int:
    found = _pragma(db, "user_version")
    if found > known:
        raise errors.DatabaseTooNew(found=found, known=known)
    return found


def _pragma(db: apsw.Connection, name: str) -> int:
    return int(str(db.execute(f"PRAGMA {name}").get))
