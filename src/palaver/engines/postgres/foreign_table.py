"""Reading a table that is somebody else's, from any Postgres: once, in order, in one snapshot."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from palaver.engines.postgres.failures import translated
from palaver.engines.postgres.transports import Connection, connected
from palaver.errors import InvalidInput

FETCH = 500  # rows at a time
COLUMNS = """
SELECT a.attname AS name, format_type(a.atttypid, NULL) AS type FROM pg_attribute a
WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""


@dataclass(frozen=True, slots=True)
class Table:
    connection: Connection
    name: str  # as SQL wants it, quoted where it must be
    columns: Mapping[str, str]  # with their types

    async def count(self) -> int:
        with translated():
            return int(await self.connection.fetchval(f"SELECT count(*) FROM {self.name}"))

    async def rows(self, columns: Sequence[str], order: Sequence[str]) -> AsyncIterator[Mapping[str, Any]]:
        """The named columns of every row; JSON as text, everything else as the driver has it."""
        chosen = ", ".join(dict.fromkeys(quoted(name) for name in columns))
        sorted_by = ", ".join(f"{quoted(name)} NULLS FIRST" for name in order)
        with translated():
            async for row in self.connection.cursor(
                f"SELECT {chosen} FROM {self.name} ORDER BY {sorted_by}", prefetch=FETCH
            ):
                yield dict(row)


def quoted(name: str) -> str:
    """As an identifier of SQL."""
    return '"' + name.replace('"', '""') + '"'


@asynccontextmanager
async def open_table(url: str, name: str) -> AsyncIterator[Table]:
    async with connected(url) as connection, connection.transaction(isolation="repeatable_read", readonly=True):
        columns = {row["name"]: row["type"] for row in await connection.fetch(COLUMNS, name)}
        if not columns:
            raise InvalidInput("table", f"there is no {name!r} in that database, or this login may not see it")
        found = await connection.fetchval("SELECT to_regclass($1)::text", name)
        yield Table(connection, found, columns)
