"""Copying an SQLite file while others write to it, and preparing a file to be replaced by a copy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import apsw

from palaver.engines.sqlite.connection import APPLICATION_ID, SQLiteAddress, connect, translate_errors
from palaver.engines.sqlite.erasure import erasures
from palaver.engines.sqlite.page_scrubbing import clear_all_gaps
from palaver.engines.sqlite.transaction import Tx
from palaver.errors import DatabaseCorrupt, EngineUnavailable, NotADatabase
from palaver.model import Scope
from palaver.ports.queries import Erasure

PAGES = 1_024  # copied in one step
Advance = Callable[[int], object]


def copy_database(source: Path, target: Path, advance: Advance) -> None:
    """Copy a snapshot of the file in steps, and call `advance` with the number of bytes of each. Blocks no writer.

    The read transaction keeps the snapshot: writes during the copy are not in it, and do not restart it.
    """
    with translate_errors(source):
        reading = connect(SQLiteAddress(source), readonly=True)
        writing = apsw.Connection(str(target))
        try:
            reading.execute("BEGIN")
            if reading.pragma("application_id") != APPLICATION_ID:
                raise NotADatabase(f"{source} is not a database of Palaver, and was not copied")
            size = int(str(reading.execute("SELECT page_size FROM pragma_page_size, sqlite_schema LIMIT 1").get))
            with writing.backup("main", reading, "main") as copying:
                left = None
                while not copying.done:
                    copying.step(PAGES)
                    advance(size * ((copying.page_count if left is None else left) - copying.remaining))
                    left = copying.remaining
            _check(writing, source)
            writing.execute("PRAGMA journal_mode = WAL").fetchall()
        finally:
            writing.close()  # removes the WAL: the copy is one file
            reading.close()
    clear_all_gaps(str(target))  # words of forgotten turns may be left between the cells of a page


def _check(db: apsw.Connection, source: Path) -> None:
    if db.execute("PRAGMA quick_check(1)").fetchall()[0][0] != "ok":
        raise DatabaseCorrupt(f"{source} is damaged, and so is the copy")


def attachment_paths(path: Path) -> set[str]:
    """Return the paths of the attachments of a database file."""
    with translate_errors(path):
        db = connect(SQLiteAddress(path), readonly=True)
        try:
            return {row[0] for row in db.execute("SELECT path FROM attachments")}
        finally:
            db.close()


def erasures_of(path: Path) -> dict[str, list[Erasure]]:
    """Return who was erased in each tenant of a database file, whatever its schema."""
    with translate_errors(path):
        db = connect(SQLiteAddress(path), readonly=True)
        try:
            if not db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'erasures'").fetchall():
                return {}
            tenants = [row[0] for row in db.execute("SELECT DISTINCT tenant FROM erasures")]
            return {one: erasures(Tx(db, 0), Scope.of(one, None)) for one in tenants}
        finally:
            db.close()


def schema_of(path: Path) -> int:
    with translate_errors(path):
        db = connect(SQLiteAddress(path), readonly=True)
        try:
            return int(str(db.execute("PRAGMA user_version").get))
        finally:
            db.close()


def merge_wal(path: Path) -> None:
    """Move the WAL into the file, so that it can be moved. Raises when another process has it open."""
    with translate_errors(path):
        db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            for mode in ("DELETE", "WAL"):  # leaving WAL mode needs exclusive access
                db.execute(f"PRAGMA journal_mode = {mode}").fetchall()
        except apsw.BusyError:
            raise EngineUnavailable(f"{path} is open elsewhere: stop what uses it, then try again") from None
        finally:
            db.close()
