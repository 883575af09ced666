"""Reads a table of another application, in any Postgres: once, in order, from one snapshot."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from palaver.engines.postgres.failures import translate_errors
from palaver.engines.postgres.transports import Connection, open_connection
from palaver.errors import InvalidInput

FETCH = 500  # rows at a time
COLUMNS = """
SELECT a.attname AS name, format_type(a.atttypid, NULL) AS type FROM pg_attribute a
WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
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


def sql_identifier(name: str) -> str:
    """Quote a name as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


@asynccontextmanager
async def open_table(url: str, name: str) -> AsyncIterator[ForeignTable]:
    async with open_connection(url) as connection, connection.transaction(isolation="repeatable_read", readonly=True):
        columns = {row["name"]: row["type"] for row in await connection.fetch(COLUMNS, name)}
        if not columns:
            raise InvalidInput("table", f"{name!r} does not exist in that database, or this login may not see it")
        found = await connection.fetchval("SELECT to_regclass($1)::text", name)
        yield ForeignTable(connection, found, columns)
