"""Reads a table of another application, in any Postgres: once, in order, from one snapshot."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from palaver.engines.postgres.failures import translate_errors
from palaver.engines.postgres.transports import Connection, open_connection
from palaver.errors import InvalidInput

FETCH = 500  # rows at a time
# Types that ids usually have, and what a value of them looks like.
IDS = {"text": "(?s).*", "uuid": "[0-9a-fA-F-]{36}", "integer": r"\d{1,9}", "bigint": r"\d{1,18}"}
COLUMNS = """
SELECT a.attname AS name, format_type(a.atttypid, NULL) AS type FROM pg_attribute a
WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""

# A view that `palaver migrate --compat` created: it shows nothing to a login without a tenant.
IS_OWN_VIEW = """
SELECT EXISTS (SELECT 1 FROM pg_rewrite r JOIN pg_depend d ON d.classid = 'pg_rewrite'::regclass AND d.objid = r.oid
  JOIN pg_proc p ON d.refclassid = 'pg_proc'::regclass AND p.oid = d.refobjid
  WHERE r.ev_class = to_regclass($1) AND p.pronamespace = to_regnamespace('palaver_compat'))
"""


@dataclass(frozen=True, slots=True)
class ForeignTable:
    connection: Connection
    name: str  # in SQL, quoted where necessary
    columns: Mapping[str, str]  # and their types

    async def count(self) -> int:
        with translate_errors():
            return int(await self.connection.fetchval(f"SELECT count(*) FROM {self.name}"))

    async def rows(self, columns: Sequence[str], order: Sequence[str]) -> AsyncIterator[Mapping[str, object]]:
        """Yield these columns of every row: JSON as text, everything else as the driver's type."""
        chosen = ", ".join(dict.fromkeys(sql_identifier(name) for name in columns))
        sorted_by = ", ".join(f"{sql_identifier(name)} NULLS FIRST" for name in order)
        with translate_errors():
            async for row in self.connection.cursor(
                f"SELECT {chosen} FROM {self.name} ORDER BY {sorted_by}", prefetch=FETCH
            ):
                yield dict(row)

    async def row(self, columns: Sequence[str], id: str, value: str) -> Mapping[str, object] | None:
        """Return the row whose column `id` has this value, written as text."""
        chosen = ", ".join(dict.fromkeys(sql_identifier(name) for name in columns))
        where = _condition(sql_identifier(id), self.columns[id], value)
        with translate_errors():
            found = await self.connection.fetchrow(f"SELECT {chosen} FROM {self.name} WHERE {where}", value)
        return None if found is None else dict(found)

    async def filled(self, columns: Sequence[str]) -> Mapping[str, int]:
        """Return how many rows have a value in each of these columns."""
        counts = ", ".join(f"count({sql_identifier(name)})" for name in columns)
        with translate_errors():
            found = await self.connection.fetchrow(f"SELECT {counts} FROM {self.name}")
        return {} if found is None else dict(zip(columns, found.values(), strict=True))


def _condition(column: str, kind: str, value: str) -> str:
    """Compare in the column's own type, so that its index is used, unless the value is not of that type."""
    form = IDS.get(kind)
    return f"{column} = $1::text::{kind}" if form and re.fullmatch(form, value) else f"{column}::text = $1::text"


def sql_identifier(name: str) -> str:
    """Quote a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


@asynccontextmanager
async def open_table(url: str, name: str) -> AsyncIterator[ForeignTable]:
    async with open_tables(url, name) as (found,):
        yield found


@asynccontextmanager
async def open_tables(url: str, *names: str) -> AsyncIterator[list[ForeignTable]]:
    """Open several tables of one database, in one snapshot."""
    async with open_connection(url) as connection, connection.transaction(isolation="repeatable_read", readonly=True):
        yield [await _describe(connection, name) for name in names]


async def _describe(connection: Connection, name: str) -> ForeignTable:
    columns = {row["name"]: row["type"] for row in await connection.fetch(COLUMNS, name)}
    if not columns:
        raise InvalidInput("table", f"{name!r} does not exist in that database, or this login may not see it")
    found = await connection.fetchval("SELECT to_regclass($1)::text", name)
    if await connection.fetchval(IS_OWN_VIEW, name) and not await connection.fetchval(
        f"SELECT EXISTS (SELECT 1 FROM {found})"
    ):
        hint = f"to import the old table, use the name that you gave it, such as {found}_before"
        raise InvalidInput("table", f"{name!r} is a view of Palaver's data, and this login sees no rows in it; {hint}")
    return ForeignTable(connection, found, columns)
