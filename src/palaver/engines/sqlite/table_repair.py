"""Damaged pages in tables of derived data: the table is created again with the rows that can still be read.

A table with a damaged page cannot be dropped, because SQLite walks its pages to free them. Its entries are taken out of
the schema instead, and the pages that nobody refers to any more are removed by a VACUUM after the commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import apsw

from palaver.engines.rows import Row
from palaver.engines.sqlite.connection import SQLiteAddress, connect
from palaver.engines.sqlite.derived_rows import BROKEN_PAGES
from palaver.engines.sqlite.transaction import Tx
from palaver.ports.damage import UNREADABLE, Damage

INDEX = "text_index"
SHADOWS = ("text_index_data", "text_index_idx", "text_index_docsize", "text_index_config")  # where FTS5 keeps it
# Everything that can be rebuilt from turns, files and the log.
DERIVED = (
    "passages", "embeddings", "summaries", "working_memory", "facts", "marks", "file_passages", "jobs", "set_aside",
)  # fmt: skip
MATCHED = "name = 'text_index' OR name GLOB 'text_index_*'"
# fts5_dri() in fts5_index.c: the row id of a page is its segment's number, six bits that are 0 for a leaf, and its own.
_SEGMENT_SHIFT, _PAGE_BITS, _NO_LEAF = 37, 31, 63
SECURE = f"INSERT INTO {INDEX} ({INDEX}, rank) VALUES ('secure-delete', 1)"


def find_broken(db: apsw.Connection, names: Sequence[str] = (*DERIVED, INDEX)) -> list[Damage]:
    """Check every page and every index of derived tables, inside a transaction of the caller. Reads all of them."""
    if INDEX in names:
        _refresh_index(db)
    return [Damage(table=name, problem=UNREADABLE) for name in names if not _is_sound(db, name)]


def _refresh_index(db: apsw.Connection) -> None:
    """Make FTS5 read the structure of the index again.

    It keeps it from one transaction to the next. A query notices that another connection has changed the index, but
    the integrity check does not, and takes the difference for damage.
    """
    try:
        db.execute(f"SELECT 1 FROM {INDEX} LIMIT 1").fetchall()
    except apsw.Error:
        pass  # damaged: the check finds it


def _is_sound(db: apsw.Connection, name: str) -> bool:
    if name != INDEX:
        return _is_whole(db, name)
    return all(_is_whole(db, one) for one in (*SHADOWS, INDEX)) and not _has_lost_separators(db)


def _has_lost_separators(db: apsw.Connection) -> bool:
    """Return whether a leaf of the index begins with a term and cannot be found: FTS5's own check does not notice."""
    try:
        found = {(segment, page >> 1) for segment, page in db.execute("SELECT segid, pgno FROM text_index_idx")}
        leaves = db.execute("SELECT id, length(block), substr(block, 3, 2) FROM text_index_data WHERE id > 10")
        return any(_is_leaf_with_terms(*leaf) and _place_of(leaf[0]) not in found for leaf in leaves)
    except apsw.Error:
        return True


def _is_leaf_with_terms(id: int, size: int, footer: bytes) -> bool:
    """Return whether a row of `text_index_data` is a leaf, and its footer names terms that begin in it."""
    return not (id >> _PAGE_BITS) & _NO_LEAF and int.from_bytes(footer, "big") < size


def _place_of(id: int) -> tuple[int, int]:
    """Return the segment and the page of a leaf."""
    return id >> _SEGMENT_SHIFT, id & ((1 << _PAGE_BITS) - 1)


def _is_whole(db: apsw.Connection, name: str) -> bool:
    try:
        return db.execute(f"PRAGMA integrity_check('{name}')").fetchall() == [("ok",)]
    except apsw.Error:  # a damaged page, or an index whose configuration cannot be read
        return False


def repair_tables(address: SQLiteAddress) -> list[Damage]:
    """Create damaged tables again with the rows that can be read. Returns which there were. Blocks.

    Works on a connection of its own, which has read nothing of the damaged tables: SQLite changes no schema after that.
    """
    with closing(connect(address, readonly=True)) as reading, closing(connect(address, readonly=False)) as db:
        reading.execute("BEGIN")  # what others write now is not damage
        broken = find_broken(reading)
        reading.execute("ROLLBACK")
        if broken:
            db.execute("BEGIN IMMEDIATE")
            _repair(Tx(db, 0), reading, {damage.table for damage in broken})
            db.execute("COMMIT")
            db.execute("VACUUM")  # nothing refers to the old pages any more, and they may hold text
    return broken


def _repair(tx: Tx, reading: apsw.Connection, broken: set[str]) -> None:
    for name in sorted(broken - {"passages", INDEX}):
        _rebuild_table(tx, name, list(_salvage(reading, name)))
    if broken & {"passages", INDEX}:  # the index is filled again from the turns: see `repair.repair_index`
        empty_index(tx)
        _create_again(tx, "tbl_name = 'passages'")
    if broken & {"marks", "embeddings"}:
        tx.db.execute("UPDATE meta SET value = 0 WHERE name LIKE 'embedded_pid/%'")


def are_sources_whole(path: Path) -> bool:
    """Return whether every table that derived data is made from is whole, and only derived ones are damaged."""
    db = connect(SQLiteAddress(path), readonly=True)
    try:
        rows = db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' AND rootpage > 0").fetchall()
        others = [str(name) for (name,) in rows if name not in (*DERIVED, *SHADOWS)]
        return all(_is_whole(db, name) for name in others if not name.startswith("sqlite_"))
    except apsw.Error:
        return False
    finally:
        db.close()


def _rebuild_table(tx: Tx, name: str, rows: Sequence[Row]) -> None:
    """Create a table again with the rows that could be read."""
    _create_again(tx, f"tbl_name = '{name}'")
    values = ", ".join("CAST(? AS TEXT)" if kind == "TEXT" else "?" for _, kind in _columns(tx.db, name))
    for row in rows:
        try:
            tx.db.execute(f"INSERT OR IGNORE INTO {name} VALUES ({values})", row)
        except apsw.ConstraintError:
            pass  # it names a row that does not exist: it was damaged as well


def empty_index(tx: Tx) -> None:
    """Create the text index again, without any rows."""
    _create_again(tx, MATCHED, only=INDEX)
    tx.db.execute(SECURE)


def _create_again(tx: Tx, matching: str, only: str | None = None) -> None:
    """Take tables out of the schema and create them again; with `only`, that one, which creates the others."""
    db = tx.db
    found = db.execute(f"SELECT name, sql FROM sqlite_schema WHERE ({matching}) AND sql IS NOT NULL ORDER BY rowid")
    statements = [str(sql) for name, sql in found.fetchall() if only in (None, name)]
    db.execute("PRAGMA writable_schema = ON")
    try:
        db.execute(f"DELETE FROM sqlite_schema WHERE {matching}")
    finally:
        db.execute("PRAGMA writable_schema = RESET")  # and the schema is read again
    for sql in statements:
        db.execute(sql)


def _salvage(db: apsw.Connection, name: str) -> Iterator[Row]:
    """Read a table forwards up to a damaged page, and then backwards down to one."""
    last = None
    try:
        for rowid, row in _walk(db, name, "ASC"):
            last = rowid
            yield row
        return
    except BROKEN_PAGES:
        pass
    try:
        for rowid, row in _walk(db, name, "DESC"):
            if last is not None and rowid <= last:
                return
            yield row
    except BROKEN_PAGES:
        return


def _walk(db: apsw.Connection, name: str, order: str) -> Iterator[tuple[int, Row]]:
    """Yield rows with their numbers. Texts are read as bytes, because they may not be text any more."""
    columns = _columns(db, name)
    wanted = ", ".join(f"CAST({column} AS BLOB)" if kind == "TEXT" else column for column, kind in columns)
    for number, *row in db.execute(f"SELECT rowid, {wanted} FROM {name} NOT INDEXED ORDER BY rowid {order}"):
        yield number, tuple(row)


def _columns(db: apsw.Connection, name: str) -> list[tuple[str, str]]:
    return [(str(row[1]), str(row[2])) for row in db.execute(f"PRAGMA table_info({name})").fetchall()]
