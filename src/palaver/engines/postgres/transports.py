"""The ways to call the SQL functions. Names, arguments and results are the same for all transports.

Arguments are JSON values and bytes; results are rows. Bytes come back in hex over PostgREST.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg

from palaver.core.event_loop import LoopGuard
from palaver.core.identity import canonical_json
from palaver.engines.postgres import citus, migrate
from palaver.engines.postgres.failures import translate_errors
from palaver.errors import InvalidInput, StoreClosed

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]
    # asyncpg.Record behaves like a mapping, but its type is not one.
    Pool = asyncpg.Pool[Any]
    PooledConnection = asyncpg.pool.PoolConnectionProxy[Any]
else:
    Connection = asyncpg.Connection

Row = Mapping[str, Any]  # a row of the database: its columns have many types
CONNECTIONS = 16


class Transport(Protocol):
    async def rows(self, function: str, args: Mapping[str, object], *, read: bool) -> Sequence[Row]:
        """Call `palaver_api.<function>` and return its rows. With `read`, a replica may run it."""
        ...

    def snapshot(self) -> AbstractAsyncContextManager[Transport]:
        """Return a transport whose calls all read from one snapshot."""
        ...

    async def close(self) -> None: ...


class Json(str):
    """An argument of type jsonb. A plain str is an argument of type text."""


def as_json(value: object) -> Json:
    return Json(canonical_json(value))


def unhex(value: bytes | str | None) -> bytes | None:
    """Return bytes that arrive as such over asyncpg, and in hex over HTTP."""
    return bytes.fromhex(value[2:]) if isinstance(value, str) else value


@lru_cache(maxsize=256)
def _statement(function: str, names: tuple[str, ...]) -> str:
    args = ", ".join(f"{name} => ${place}" for place, name in enumerate(names, 1))
    return f"SELECT * FROM palaver_api.{function}({args})"


class _StatelessConnection(Connection):
    """A connection without a reset query: settings end with their transaction, so there is nothing to reset."""

    def get_reset_query(self) -> str:
        return ""


class AsyncpgTransport:
    """A pool of connections, and optionally one to a replica."""

    def __init__(self, pool: Pool, replica: Pool | None, prepared: bool, distributed: bool = False) -> None:
        self.pool, self.replica, self.prepared = pool, replica, prepared
        self.distributed = distributed  # over the nodes of a cluster: a call is for one tenant, whose node runs it
        self.closed = False
        self._loop = LoopGuard()

    async def rows(self, function: str, args: Mapping[str, object], *, read: bool) -> Sequence[Row]:
        self._check()
        pool = self.replica if read and self.replica else self.pool
        sql = _statement(function, tuple(args))
        with translate_errors():
            if self.prepared:
                return await pool.fetch(sql, *args.values())
            async with (
                pool.acquire() as connection,
                connection.transaction(),
            ):  # behind pgbouncer: one server connection
                return await connection.fetch(sql, *args.values())

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Transport]:
        self._check()
        with translate_errors():
            async with (
                (self.replica or self.pool).acquire() as connection,
                connection.transaction(isolation="repeatable_read", readonly=True),
            ):
                yield _Snapshot(connection)

    def _check(self) -> None:
        """Refuse a call of a store that is closed or that belongs to another event loop."""
        if self.closed:
            raise StoreClosed
        self._loop.check()

    async def close(self) -> None:
        self.closed = True
        for pool in (self.pool, self.replica):
            if pool is not None:
                await pool.close()


class _Snapshot:
    """Calls over one connection, inside one transaction."""

    def __init__(self, connection: PooledConnection) -> None:
        self.connection = connection

    async def rows(self, function: str, args: Mapping[str, object], *, read: bool) -> Sequence[Row]:
        with translate_errors():
            return await self.connection.fetch(_statement(function, tuple(args)), *args.values())

    def snapshot(self) -> AbstractAsyncContextManager[Transport]:
        return nullcontext(self)

    async def close(self) -> None:
        """Do nothing: `AsyncpgTransport.snapshot` ends the transaction."""


# ---- connections ---------------------------------------------------------------------------------------------------


def parse_url(url: str) -> tuple[str, bool]:
    """Return the URL for the driver, and whether prepared statements may be used (`?pgbouncer=true`: no)."""
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    pooled = query.pop("pgbouncer", "false")
    if pooled not in ("true", "false"):
        raise InvalidInput("url", "pgbouncer must be true or false")
    scheme = "postgresql"
    return urlunsplit(parts._replace(scheme=scheme, query=urlencode(query))), pooled == "false"


async def open_pool(url: str, *, size: int = CONNECTIONS) -> Pool:
    dsn, prepared = parse_url(url)
    with translate_errors():
        return await asyncpg.create_pool(
            dsn,
            min_size=0,
            max_size=size,
            connection_class=_StatelessConnection,
            statement_cache_size=100 if prepared else 0,
            server_settings={"application_name": "palaver"} if prepared else None,
        )


@asynccontextmanager
async def open_connection(url: str, *, administrator: bool = False) -> AsyncIterator[Connection]:
    """Open a single connection, for migrations and other work outside of the functions.

    The errors of an administrator's work contain the server's messages.
    """
    dsn, prepared = parse_url(url)
    with translate_errors():
        connection = await asyncpg.connect(dsn, statement_cache_size=100 if prepared else 0)
    try:
        with translate_errors(administrator=administrator):
            yield connection
    finally:
        await connection.close()


async def open_transport(url: str, *, read_url: str | None = None, migrate_url: str | None = None) -> AsyncpgTransport:
    if migrate_url is not None:
        async with open_connection(migrate_url, administrator=True) as connection:
            await migrate.migrate(connection)
    async with open_connection(url) as connection, connection.transaction():  # behind pgbouncer: one server
        await migrate.check_version(connection)
        distributed = await citus.is_distributed(connection)
    pool = await open_pool(url)
    replica = None if read_url is None else await open_pool(read_url)
    return AsyncpgTransport(pool, replica, parse_url(url)[1], distributed)
