"""Notices that the files of an open database were deleted, replaced or truncated, before a write is acknowledged."""

from __future__ import annotations

import os
from pathlib import Path

import apsw

from palaver import errors


class FileGuard:
    """Compares the files at the path of a database with those that a connection has open.

    While a connection is open, SQLite itself never deletes or replaces either file. It makes the main file shorter
    after a VACUUM only.
    """

    def __init__(self, path: Path, db: apsw.Connection) -> None:
        self.path, self.db = path, db
        self._main, self._wal = str(path), db.filename_wal  # converted once: every commit needs them
        self._main_id, self._size = _look(self._main)
        self._wal_id, _ = _look(self._wal)

    def check(self) -> None:
        """Raise unless both files are the ones that are open. Costs two calls of `stat`."""
        main, size = _look(self._main)
        if main != self._main_id:
            raise errors.EngineUnavailable(f"{self.path} was deleted or replaced: open the store again")
        if size < self._size:
            self._check_shorter()
        self._size = size
        wal, _ = _look(self._wal)
        if wal != self._wal_id:
            self._rescue()
            raise errors.EngineUnavailable(
                f"{self._wal} was deleted or replaced while in use: open the store again, then run `palaver verify`"
            )

    def _check_shorter(self) -> None:
        """Raise unless a VACUUM of some process made the file shorter: then every page can still be read."""
        self.db.release_memory()
        try:
            sound = self.db.execute("PRAGMA quick_check(1)").fetchall() == [("ok",)]
        except apsw.Error:
            sound = False
        if not sound:
            raise errors.DatabaseCorrupt(f"{self.path} was truncated while it was in use: restore a backup")

    def _rescue(self) -> None:
        """Copy what the deleted WAL holds into the file: the connection still has it open."""
        try:
            self.db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        except apsw.Error:
            pass  # the error about the WAL is raised in any case


def _look(name: str) -> tuple[tuple[int, int] | None, int]:
    """Return what identifies the file at a path, and its size."""
    try:
        found = os.stat(name)
    except OSError:
        return None, 0
    return (found.st_dev, found.st_ino), found.st_size
