"""An open transaction on a connection: how statements are run in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import apsw

from palaver.engines.rows import Row
from palaver.engines.sqlite.unreadable_rows import unreadable

T = TypeVar("T")
SqlValue = str | int | float | bytes | None


@dataclass(slots=True)
class Tx:
    """An open transaction. Every read and every write is a function of one of these.

    `now` is its time in microseconds. A write collects in `touched` the names whose subscribers the commit wakes, sets
    `scrub` when old bytes must be removed after the commit, and collects in `removed_terms` the terms that it removed
    from the text index.
    """

    db: apsw.Connection
    now: int
    touched: set[str] = field(default_factory=set)
    scrub: bool = False
    removed_terms: set[str] = field(default_factory=set)

    def one(self, sql: str, **values: SqlValue) -> Row | None:
        """Run a statement and return its first row."""
        rows = self.all(sql, **values)
        return rows[0] if rows else None

    def all(self, sql: str, **values: SqlValue) -> list[Row]:
        """Run a statement and return its rows."""
        try:
            return self.db.execute(sql, values).fetchall()
        except UnicodeDecodeError:
            raise unreadable(self.db, sql, values) from None

    def each(self, sql: str, **values: SqlValue) -> Iterator[Row]:
        """Run a statement and yield its rows, for a caller that may stop early."""
        try:
            yield from self.db.execute(sql, values)
        except UnicodeDecodeError:
            raise unreadable(self.db, sql, values) from None

    def run(self, sql: str, **values: SqlValue) -> None:
        """Run a statement that returns nothing."""
        self.db.execute(sql, values)

    def put(self, sql: str, *values: SqlValue) -> None:
        """Run a statement with positional values, which is faster: for the few that every append runs."""
        self.db.execute(sql, values)

    def insert(self, sql: str, **values: SqlValue) -> int:
        """Insert a row and return its number."""
        self.db.execute(sql, values)
        return self.db.last_insert_rowid()


Work = Callable[[Tx], T]
