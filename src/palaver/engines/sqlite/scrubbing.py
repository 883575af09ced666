"""Removing the old bytes of deleted rows from the WAL and from the file, while others read and write.

A deletion leaves old bytes in two places: in the WAL, until it is truncated, and in the gaps of pages
(`page_scrubbing`). A thread with a connection of its own removes them. No step of it holds the write lock for more than
a few milliseconds:

1. Copy the WAL into the file without a lock, then truncate it. Truncating needs the write lock, and that no reader uses
   the WAL; if one does, the thread tries again until its time is up.
2. Clear the gaps of pages inside a transaction that reads the file while the WAL is empty. SQLite does not let
   anybody copy the WAL into the file while such a reader is there, so that the file does not change; writers continue
   in the WAL. After some thousand pages, begin again at 1, which has the system write them to the disk.
3. A writer that had a page in its cache may have written the old gap again. So the pages that had something in their
   gap are cleared once more, as in 2 until they are few, and then under the write lock.
4. Copy the WAL once more, so that the last pages are on the disk before the mark is removed.

`scrub` in the table `meta` is there until all is done: a process that opens the file later continues. Its value changes
with every deletion, so that a mark is never removed for a
deletion that came later.
"""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import apsw

from palaver.engines.sqlite.connection import SQLiteAddress, connect, poll_while_busy, translate_errors
from palaver.engines.sqlite.page_scrubbing import Cleared, clear_gaps
from palaver.errors import DatabaseFull, EngineError

RETRY_SECONDS = 1.0  # after a reader kept the WAL
WAIT_SECONDS = 1.0  # how long a deletion waits for readers that still need the WAL
PAUSE_SECONDS = 0.005  # between two attempts to truncate it; the lock is free
LOCKED_PAGES = 256  # that may be cleared under the write lock
PASSES = 20
BUSY_MILLISECONDS = 1_000  # how long one statement of the thread waits for other writers

Waiter = tuple[asyncio.AbstractEventLoop, "asyncio.Future[bool]"]


class Scrubber:
    """A thread that removes old bytes. It starts with the first deletion."""

    def __init__(self, address: SQLiteAddress) -> None:
        self.address = address
        self.pending = False  # old bytes may be left
        self.problem: str | None = None  # why, if the database failed and no reader keeps them
        self._changed = threading.Condition()  # guards the fields below
        self._asked = False
        self._closing = False
        self._waiters: list[Waiter] = []
        self._thread: threading.Thread | None = None

    def request(self) -> None:
        """Ask for the removal of old bytes, after the commit of a deletion. Does not wait."""
        with self._changed:
            self.pending = self._asked = True
            if self._thread is None and not self._closing:
                self._thread = threading.Thread(target=self._run, name="palaver-scrubber", daemon=True)
                self._thread.start()
            self._changed.notify()

    async def finished(self) -> bool:
        """Wait until the old bytes are removed. False when a reader still keeps some in the WAL."""
        if not self.pending:
            return True
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        with self._changed:
            self._waiters.append((loop, future))
        self.request()
        return await future

    def close(self) -> None:
        """Try once more if something is left, then end the thread. Blocks."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    # ---- the thread

    def _run(self) -> None:
        db: apsw.Connection | None = None
        closing = False
        while not closing:
            closing, waiters = self._next_round()
            try:
                db = db or connect(self.address, readonly=False)
                done, self.problem = _scrub(db, 0 if closing else WAIT_SECONDS), None
            except (apsw.Error, OSError) as problem:  # tried again a second later, and when the file is opened next
                done, self.problem = False, _describe(problem, self.address.path)
            with self._changed:
                self.pending = not done or self._asked
            _resolve(waiters, done)
        if db is not None:
            db.close()

    def _next_round(self) -> tuple[bool, list[Waiter]]:
        """Wait until there is something to do. Returns whether the store is closing, and who waits for the outcome."""
        with self._changed:
            while not self._asked and not self._closing:
                if not self._changed.wait(RETRY_SECONDS if self.pending else None) and self.pending:
                    break
            self._asked = False
            waiters, self._waiters = self._waiters, []
            return self._closing, waiters


def _describe(problem: Exception, path: Path) -> str | None:
    """Say what failed; None when it was only locked."""
    try:
        with translate_errors(path):
            raise problem
    except DatabaseFull:
        return "the disk is full"
    except (EngineError, OSError, apsw.Error):
        return None if isinstance(problem, apsw.BusyError) else f"the disk failed ({type(problem).__name__})"


def _resolve(waiters: list[Waiter], done: bool) -> None:
    for loop, future in waiters:
        try:
            loop.call_soon_threadsafe(_set_result, future, done)
        except RuntimeError:
            pass  # that loop is closed, and its tasks are gone


def _set_result(future: asyncio.Future[bool], done: bool) -> None:
    if not future.done():
        future.set_result(done)


# ---- one attempt ---------------------------------------------------------------------------------------------------


def is_marked(db: apsw.Connection) -> bool:
    return _mark(db) is not None


def _mark(db: apsw.Connection) -> object:
    rows = db.execute("SELECT value FROM meta WHERE name = 'scrub'").fetchall()
    return rows[0][0] if rows else None


def _scrub(db: apsw.Connection, wait: float) -> bool:
    """Remove the old bytes that are there now. False when a reader keeps the WAL, or writers never pause."""
    mark = _mark(db)
    if mark is None:
        return True
    pages = _clear_until_few(db, wait)
    if pages is None or not _clear_rest(db, pages, wait) or not _copy_wal(db, "FULL", time.monotonic() + wait):
        return False
    db.execute("DELETE FROM meta WHERE name = 'scrub' AND value = ?", (mark,))
    return True


def _clear_until_few(db: apsw.Connection, wait: float) -> list[int] | None:
    """Clear the gaps of all pages. Returns the few that must be looked at again; None: not possible."""
    pages: list[int] | None = None
    for _ in range(PASSES):
        pages = _clear_pass(db, pages, wait)
        if pages is None or len(pages) <= LOCKED_PAGES:
            return pages
    return None


def _clear_rest(db: apsw.Connection, pages: list[int], wait: float) -> bool:
    for _ in range(PASSES):
        if not _begin_step(db, wait):
            return False
        if _clear_locked(db, pages):
            return True
    return False


def _clear_pass(db: apsw.Connection, pages: list[int] | None, wait: float) -> list[int] | None:
    """Clear the gaps of these pages, or of all. Returns those that had something in their gap; None: not possible."""
    found: list[int] = []
    rest: int | None = 0
    attempts = PASSES
    while rest is not None:
        if not attempts or not _begin_step(db, wait):
            return None
        cleared = _clear_frozen(db, pages, rest)
        attempts = attempts - 1 if cleared is None else PASSES
        if cleared is not None:
            found, rest = found + cleared.found, cleared.rest
    return found


def _begin_step(db: apsw.Connection, wait: float) -> bool:
    # Every process drops its cache after this commit, and with it gaps that are cleared in the file already.
    db.execute("UPDATE meta SET value = value WHERE name = 'scrub'")
    return _copy_wal(db, "TRUNCATE", time.monotonic() + wait)


def _copy_wal(db: apsw.Connection, mode: str, deadline: float) -> bool:
    """Copy the whole WAL into the file and have the file written to the disk; TRUNCATE: truncate the WAL, too."""
    while True:
        try:
            db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)  # needs no lock, and does nearly all of the work
            db.set_busy_timeout(0)  # waiting here would mean to wait for readers with the write lock in hand
            if not db.execute(f"PRAGMA wal_checkpoint({mode})").fetchall()[0][0]:
                return True
        except apsw.BusyError:
            pass
        finally:
            poll_while_busy(db, BUSY_MILLISECONDS)
        if time.monotonic() >= deadline:
            return False
        time.sleep(PAUSE_SECONDS)


def _clear_frozen(db: apsw.Connection, pages: list[int] | None, first: int) -> Cleared | None:
    """Clear gaps while the file cannot change. None: the WAL is in use."""
    db.execute("BEGIN")
    try:
        db.execute("SELECT 1 FROM meta LIMIT 1").fetchall()  # the transaction reads from here on
        if not _is_wal_empty(db):
            return None
        return clear_gaps(db.filename, pages, first=first)
    finally:
        db.execute("ROLLBACK")


def _clear_locked(db: apsw.Connection, pages: list[int]) -> bool:
    """Clear the last gaps under the write lock. False when another process has written since."""
    db.execute("BEGIN IMMEDIATE")
    try:
        if not _is_wal_empty(db):
            return False
        clear_gaps(db.filename, pages)
        db.release_memory()  # cached pages still have their old gaps
        db.execute("UPDATE meta SET value = value WHERE name = 'scrub'")  # others drop theirs
        db.execute("COMMIT")
        return True
    finally:
        if db.in_transaction:
            db.execute("ROLLBACK")


def _is_wal_empty(db: apsw.Connection) -> bool:
    wal = Path(db.filename_wal)
    return not wal.exists() or not wal.stat().st_size
