"""The yardstick: the bare row in a bare table, by apsw, called directly. No product: no index, log, hash or search."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import apsw

from palaver.core.identity import new_id

CREATE = """
CREATE TABLE turns (
  id TEXT NOT NULL, conversation TEXT NOT NULL, seq INTEGER NOT NULL, role TEXT NOT NULL, content TEXT NOT NULL,
  created INTEGER NOT NULL, PRIMARY KEY (conversation, seq)
) WITHOUT ROWID  -- one tree and nothing else: as little as can be written and still be read back
"""
INSERT = "INSERT INTO turns (id, conversation, seq, role, content, created) VALUES (?, ?, ?, ?, ?, ?)"
LAST = (
    "SELECT id, conversation, seq, role, content, created FROM turns WHERE conversation = ? ORDER BY seq DESC LIMIT ?"
)
EVERYTHING = "SELECT id, conversation, seq, role, content, created FROM turns WHERE conversation = ? ORDER BY seq"


class Raw:
    def __init__(self, path: Path, synchronous: str = "FULL") -> None:
        self.path, self.conversation, self.seq = path, new_id(), 0
        self.db = connect(path, synchronous)
        self.db.execute(CREATE)

    def append(self, content: str) -> None:
        """Insert each row in its own transaction."""
        self.db.execute(INSERT, self._row(content))

    def append_many(self, contents: Iterable[str]) -> None:
        with self.db:
            self.db.executemany(INSERT, (self._row(content) for content in contents))

    def last(self, count: int) -> list[Any]:
        return self.db.execute(LAST, (self.conversation, count)).fetchall()[::-1]

    def everything(self) -> Iterable[Any]:
        return self.db.execute(EVERYTHING, (self.conversation,))

    def close(self) -> None:
        self.db.close()

    def _row(self, content: str) -> tuple[Any, ...]:
        row = (new_id(), self.conversation, self.seq, "user", content, time.time_ns() // 1_000)
        self.seq += 1
        return row


def connect(path: Path, synchronous: str = "FULL") -> apsw.Connection:
    db = apsw.Connection(str(path))
    db.execute(f"PRAGMA journal_mode = WAL; PRAGMA synchronous = {synchronous}").fetchall()
    return db


def bytes_of(path: Path) -> int:
    """Return the size of the database file and the files next to it."""
    return sum(file.stat().st_size for file in path.parent.glob(path.name + "*") if file.is_file())
