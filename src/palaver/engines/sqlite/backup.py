"""A copy of an SQLite file while others write to it, and what its place needs when one is put back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import apsw

from palaver.engines.sqlite.connection import SQLiteAddress, connect, translate_errors
from palaver.engines.sqlite.page_scrubbing import clear_gaps
from palaver.errors import DatabaseCorrupt, EngineUnavailable

PAGES = 1_024  # at a time
Advance = Callable[[int], object]


def copy_database(source: Path, target: Path, advance: Advance) -> None:
    """Copy one moment of the file, page by page, and tell how many bytes were copied each time. Nobody is held up.

    The read transaction holds that moment: what is written meanwhile is not in the copy, and does not begin it anew.
    """
    with translate_errors(source):
        reading = connect(SQLiteAddress(source), readonly=True)
        writing = apsw.Connection(str(target))
        try:
            reading.execute("BEGIN")
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
            writing.close()  # and with it the WAL: the copy is one file
            reading.close()
    clear_gaps(str(target))  # words of turns that were forgotten may stand between the cells of a page


def _check(db: apsw.Connection, source: Path) -> None:
    if db.execute("PRAGMA quick_check(1)").fetchall()[0][0] != "ok":
        raise DatabaseCorrupt(f"{source} is damaged: what was copied is not sound")


def files_of(path: Path) -> set[str]:
    """Where the attachments are that a file names."""
    with translate_errors(path):
        db = connect(SQLiteAddress(path), readonly=True)
        try:
            return {row[0] for row in db.execute("SELECT path FROM attachments")}
        finally:
            db.close()


def schema_of(path: Path) -> int:
    with translate_errors(path):
        db = connect(SQLiteAddress(path), readonly=True)
        try:
            return int(str(db.execute("PRAGMA user_version").get))
        finally:
            db.close()


def make_whole(path: Path) -> None:
    """Bring everything into the one file, so that it can be moved. Raises when somebody else has it open."""
    with translate_errors(path):
        db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            for mode in ("DELETE", "WAL"):  # the first needs the file for itself
                db.execute(f"PRAGMA journal_mode = {mode}").fetchall()
        except apsw.BusyError:
            raise EngineUnavailable(f"{path} is open elsewhere: stop what uses it, then try again") from None
        finally:
            db.close()
