"""How the engine reaches its SQL functions. One contract: names, arguments and results are the same for all transports.

Arguments are what JSON can say, and bytes; results are rows. Bytes may come back as PostgREST writes them, in hex.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg

from palaver.core.identity import canonical_json
from palaver.engines.postgres import migrate
from palaver.engines.postgres.failures import translated
from palaver.errors import InvalidInput, StoreClosed

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]
else:
    Connection = asyncpg.Connection

CONNECTIONS = 16


class Transport(Protocol):
    async def rows(self, function: str, args: Mapping[str, Any], *, read: bool) -> Sequence[Mapping[str, Any]]:
        """The rows that `palaver_api.<function>` answers with. `read` allows a replica to answer."""
        ...

    def snapshot(self) -> AbstractAsyncContextManager[Transport]:
        """A transport whose answers all come from one moment."""
        ...

    async def close(self) -> None: ...


class Json(str):
    """An argument of type jsonb. A plain str is one of type text, whatever it holds."""


def as_json(value: Any) -> Json:
    return Json(canonical_json(value))


def unhex(value: bytes | str | None) -> bytes | None:
    """Bytes, however they travelled."""
    return bytes.fromhex(value[2:]) if isinstance(value, str) else value


@lru_cache(maxsize=256)
def _statement(function: str, names: tuple[str, ...]) -> str:
    given = ", ".join(f"{name} => ${place}" for place, name in enumerate(names, 1))
    return f"SELECT * FROM palaver_api.{function}({given})"


class _Stateless(Connection):
    """A connection that nobody leaves anything behind in: settings end with their transaction."""

    def get_reset_query(self) -> str:
        return ""


class AsyncpgTransport:
    """A pool of connections, and perhaps one to a replica."""

    def __init__(self, pool: asyncpg.Pool[Any], replica: asyncpg.Pool[Any] | None, prepared: bool) -> None:
        self.pool, self.replica, self.prepared = pool, replica, prepared
        self.closed = False

    async def rows(self, function: str, args: Mapping[str, Any], *, read: bool) -> Sequence[Mapping[str, Any]]:
        if self.closed:
            raise StoreClosed
        pool = self.replica if read and self.replica else self.pool
        sql = _statement(function, tuple(args))
        with translated():
            if self.prepared:
                found: list[Any] = await pool.fetch(sql, *args.values())
                return found
            async with pool.acquire() as connection, connection.transaction():  # one server for all of it
                return await connection.fetch(sql, *args.values())

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Transport]:
        if self.closed:
            raise StoreClosed
        with translated():
            async with (
                (self.replica or self.pool).acquire() as connection,
                connection.transaction(isolation="repeatable_read", readonly=True),
            ):
                yield _Snapshot(connection)

    async def close(self) -> None:
        self.closed = True
        for pool in (self.pool, self.replica):
            if pool is not None:
                await pool.close()


class _Snapshot(AsyncpgTransport):
    """One connection, inside one transaction."""

    def __init__(self, connection: Any) -> None:
        super().__init__(connection, None, prepared=True)


# ---- addresses -----------------------------------------------------------------------------------------------------


def address(url: str) -> tuple[str, bool]:
    """The URL as the driver wants it, and whether prepared statements may be used (`?pgbouncer=true`: no)."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    pooled = query.pop("pgbouncer", "false")
    if pooled not in ("true", "false"):
        raise InvalidInput("url", "pgbouncer must be true or false")
    scheme = "postgresql"
    return urlunsplit(parts._replace(scheme=scheme, query=urlencode(query))), pooled == "false"


async def open_pool(url: str, *, size: int = CONNECTIONS) -> asyncpg.Pool[Any]:
    dsn, prepared = address(url)
    with translated():
        return await asyncpg.create_pool(
            dsn,
            min_size=0,
            max_size=size,
            connection_class=_Stateless,
            statement_cache_size=100 if prepared else 0,
            server_settings={"application_name": "palaver"} if prepared else None,
        )


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Connection]:
    """One connection, for what is not a verb."""
    dsn, prepared = address(url)
    with translated():
        connection = await asyncpg.connect(dsn, statement_cache_size=100 if prepared else 0)
    try:
        with translated():
            yield connection
    finally:
        await connection.close()


async def open_transport(url: str, *, read_url: str | None = None, migrate_url: str | None = None) -> AsyncpgTransport:
    if migrate_url is not None:
        async with connected(migrate_url) as connection:
            await migrate.migrate(connection)
    async with connected(url) as connection, connection.transaction():  # behind pgbouncer: one server for all of it
        await migrate.check(connection)
    pool = await open_pool(url)
    replica = None if read_url is None else await open_pool(read_url)
    return AsyncpgTransport(pool, replica, address(url)[1])
