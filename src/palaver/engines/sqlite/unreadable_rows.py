"""Rows that hold bytes which are no text: SQLite stores them, and nobody can read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import apsw

from palaver.engines.rows import event_name, turn_name
from palaver.errors import RowUnreadable


def unreadable(db: apsw.Connection, sql: str, values: Mapping[str, Any]) -> RowUnreadable:
    """What to raise when a statement met such a row. It runs once more, to find out which row that is."""
    names = [column[0] for column in db.execute(sql, values).description]
    columns = [f"c{place}" for place in range(len(names))]
    # A text as its bytes, and no other bytes.
    raw = [f"CASE typeof({c}) WHEN 'text' THEN CAST({c} AS BLOB) WHEN 'blob' THEN NULL ELSE {c} END" for c in columns]
    again = f"WITH answer ({', '.join(columns)}) AS ({sql}) SELECT {', '.join(raw)} FROM answer"
    try:
        damaged = next((row for row in db.execute(again, values) if not all(map(_is_readable, row))), None)
    except apsw.SQLError:  # a statement that writes, and answers with what it wrote
        damaged = None
    return RowUnreadable("a row") if damaged is None else _named(dict(zip(names, map(_shown, damaged), strict=True)))


def _is_readable(value: Any) -> bool:
    try:
        return not isinstance(value, bytes) or value.decode() is not None
    except UnicodeDecodeError:
        return False


def _shown(value: Any) -> Any:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _named(row: dict[str, Any]) -> RowUnreadable:
    """As `verify` calls it. Its columns tell what it is a row of."""
    if "seq" in row:
        return RowUnreadable(turn_name(row["id"], row["seq"]))
    if "filename" in row:
        return RowUnreadable(f"attachment {row['id']}")
    if "n" in row:
        return RowUnreadable(event_name(row["n"]))
    if "id" in row and ("owner" in row or "tip_hash" in row):
        return RowUnreadable("conversation", row["id"])
    return RowUnreadable("a row")
