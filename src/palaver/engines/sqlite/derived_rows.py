"""Reading tables of derived data in which rows or pages may be damaged: what can be read is read."""

from __future__ import annotations

import logging
from typing import NamedTuple

import apsw

from palaver.engines.rows import Row
from palaver.engines.sqlite.transaction import SqlValue, Tx
from palaver.errors import RowUnreadable
from palaver.ports.damage import UNREADABLE, Damage

log = logging.getLogger("palaver.sqlite")  # names of tables only

# A page that cannot be decoded, and a row that cannot be read.
BROKEN_PAGES = (apsw.CorruptError, apsw.NotADBError, apsw.FormatError)


class Found(NamedTuple):
    """The rows that could be read, and the damage that was met."""

    rows: list[Row]
    damage: list[Damage]


def read_derived(tx: Tx, table: str, sql: str, **values: SqlValue) -> Found:
    """Run a statement over a derived table. Rows that cannot be read are left out and reported."""
    try:
        return Found(tx.all(sql, **values), [])
    except (RowUnreadable, *BROKEN_PAGES):
        log.warning("rows of %s are damaged and were left out", table)
        return _read_one_by_one(tx, table, sql, values)


def _read_one_by_one(tx: Tx, table: str, sql: str, values: dict[str, SqlValue]) -> Found:
    """Read texts as bytes and decode them here, so that one bad row does not end the reading."""
    found, damage = Found([], []), Damage(table=table, problem=UNREADABLE)
    try:
        width = len(tx.db.execute(sql, values).description)
        columns = [f"c{place}" for place in range(width)]
        as_bytes = ", ".join(
            f"typeof({c}) = 'text', CASE typeof({c}) WHEN 'text' THEN CAST({c} AS BLOB) ELSE {c} END" for c in columns
        )
        cursor = tx.db.execute(f"WITH answer ({', '.join(columns)}) AS ({sql}) SELECT {as_bytes} FROM answer", values)
        for row in cursor:
            decoded = _decode(row)
            if decoded is None:
                found.damage.append(damage)
            else:
                found.rows.append(decoded)
    except BROKEN_PAGES:
        found.damage.append(damage)
    return found


def _decode(row: Row) -> Row | None:
    """Decode the texts of a row of pairs (is it text, the value). None if one of them is not text."""
    try:
        return tuple(row[n + 1].decode() if row[n] else row[n + 1] for n in range(0, len(row), 2))
    except UnicodeDecodeError:
        return None
