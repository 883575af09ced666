"""Rows with bytes that are not valid text. SQLite stores them, and reading them raises."""

from __future__ import annotations

from collections.abc import Mapping

import apsw

from palaver.engines.rows import event_name, turn_name
from palaver.errors import RowUnreadable


def unreadable(db: apsw.Connection, sql: str, values: Mapping[str, apsw.SQLiteValue]) -> RowUnreadable:
    """Return the error for a statement that read such a row. Runs it again, to find out which row it is."""
    names = [column[0] for column in db.execute(sql, values).description]
    columns = [f"c{place}" for place in range(len(names))]
    # Read texts as bytes, and leave out other bytes.
    raw = [f"CASE typeof({c}) WHEN 'text' THEN CAST({c} AS BLOB) WHEN 'blob' THEN NULL ELSE {c} END" for c in columns]
    again = f"WITH answer ({', '.join(columns)}) AS ({sql}) SELECT {', '.join(raw)} FROM answer"
    try:
        damaged = next((row for row in db.execute(again, values) if not all(map(_is_readable, row))), None)
    except apsw.SQLError:  # a statement that writes and has a RETURNING clause
        damaged = None
    return (
        RowUnreadable("a row")
        if damaged is None
        else _error_for(dict(zip(names, map(_printable, damaged), strict=True)))
    )


def _is_readable(value: object) -> bool:
    try:
        return not isinstance(value, bytes) or value.decode() is not None
    except UnicodeDecodeError:
        return False


def _printable(value: object) -> object:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _error_for(row: dict[str, object]) -> RowUnreadable:
    """Name the row as `verify` does. Its columns show which table it is from."""
    if "seq" in row:
        return RowUnreadable(turn_name(row["id"], row["seq"]))
    if "filename" in row:
        return RowUnreadable(f"attachment {row['id']}")
    if "n" in row:
        return RowUnreadable(event_name(row["n"]))
    if "id" in row and ("owner" in row or "tip_hash" in row):
        return RowUnreadable("conversation", str(row["id"]))
    return RowUnreadable("a row")
