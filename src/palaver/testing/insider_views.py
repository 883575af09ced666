"""Writes of the insider to the tables of older systems (`palaver migrate --compat`): hostile values in every column."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from palaver.engines.postgres.compat import VIEWS

COLUMNS = """SELECT c.relname AS name, a.attname AS column, format_type(a.atttypid, NULL) AS type
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'v' AND c.relname = ANY ($1) ORDER BY 1, a.attnum"""
KEYS = ("session_id", "project_id")  # the column that names the conversation
# Proper values of the columns without which a row is refused.
USUAL = {
    "agent": "pm", "role": "user", "content": "hello", "summary_text": "short", "summary": "short",
    "through_sequence": "0",
}  # fmt: skip
HOSTILE: dict[str, list[str]] = {
    "uuid": ["00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff", "x"],
    "timestamp with time zone": ["infinity", "-infinity", "0044-03-15 BC", "0001-01-01", "294276-12-31", "x"],
}


@dataclass(frozen=True, slots=True)
class Step:
    """A statement; its parameters are texts that it converts itself."""

    sql: str
    args: Sequence[str]


@dataclass(frozen=True, slots=True)
class View:
    """A view, and the types of its columns."""

    name: str
    columns: Mapping[str, str]

    @property
    def key(self) -> str:
        return next(name for name in KEYS if name in self.columns)

    def changes(self) -> Iterator[tuple[str, Sequence[Step]]]:
        """Yield each kind of write, with proper values."""
        row = self._row()
        where, key = f"WHERE {self.key} = $1::text::{self.columns[self.key]}", row[self.key]
        target = next(name for name in ("content", "summary_text", "summary") if name in self.columns)
        change = Step(f"UPDATE public.{self.name} SET {target} = 'changed' {where}", [key])
        for way, more in (
            ("INSERT", []),
            ("UPDATE", [change]),
            ("DELETE", [Step(f"DELETE FROM public.{self.name} {where}", [key])]),
        ):
            yield f"{way}, {self.name}", [self._insert(row), *more]

    def attacks(self, values: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, Sequence[Step]]]:
        """Yield writes in which one column is hostile: a new row, and a change of a proper one."""
        for column, kind in self.columns.items():
            for value in HOSTILE.get(kind) or values.get(kind) or values["text"]:
                row = self._row()
                way = f"{self.name}, with {column} = {value[:200]}"
                yield f"INSERT, {way}", [self._insert({**row, column: value})]
                change = f"UPDATE public.{self.name} SET {column} = $1::text::{kind}"
                where = f"WHERE {self.key} = $2::text::{self.columns[self.key]}"
                yield f"UPDATE, {way}", [self._insert(row), Step(f"{change} {where}", [value, row[self.key]])]

    def _row(self) -> dict[str, str]:
        """Return proper values for a row of a conversation of its own."""
        return {self.key: str(uuid4())} | {name: value for name, value in USUAL.items() if name in self.columns}

    def _insert(self, row: Mapping[str, str]) -> Step:
        places = ", ".join(f"${n}::text::{self.columns[name]}" for n, name in enumerate(row, 1))
        return Step(f"INSERT INTO public.{self.name} ({', '.join(row)}) VALUES ({places})", list(row.values()))


async def views(admin: Any, only: Collection[str] | None) -> list[View]:
    """Return the views of older systems that this database has."""
    found: dict[str, dict[str, str]] = {}
    for row in await admin.fetch(COLUMNS, [name for name in VIEWS if only is None or name in only]):
        found.setdefault(row["name"], {})[row["column"]] = row["type"]
    return [View(name, columns) for name, columns in found.items()]
