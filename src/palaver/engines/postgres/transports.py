"""The ways to call the SQL functions. Names, arguments and results are the same for all transports.

Arguments are JSON values and bytes; results are rows. Bytes come back in hex over PostgREST.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, cast

import asyncpg

from palaver.core.event_loop import LoopGuard
from palaver.core.identity import canonical_json
from palaver.engines.postgres import citus, migrate
from palaver.engines.postgres.address import Address, parse_address
from palaver.engines.postgres.failures import DRIVER_ERRORS, is_lost, translate_errors
from palaver.errors import EngineUnavailable, StoreClosed

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]
    # asyncpg.Record behaves like a mapping, but its type is not one.
    Pool = asyncpg.Pool[Any]
    PooledConnection = asyncpg.pool.PoolConnectionProxy[Any]
else:
    Connection = asyncpg.Connection

Row = Mapping[str, Any]  # a row of the database: its columns have many types
CLOSE_SECONDS = 5.0  # for a connection to be reset or closed; then it is dropped
# Functions that write, or need the primary, and whose repetition changes nothing: they are called again when a
# connection turns out to be dead. Others are where their arguments allow it (RpcClient.write_once, append_batching.py).
REPEATABLE = frozenset(
    """
    any_key api_key blobs_deleted doomed_blobs health key_events next_job next_job_anywhere renew_job stream_renew
    tenants tenants_waiting waiting waiting_here
    """.split()
)


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
    """A pool of connections, and optionally one to a replica. A pool that was given is not closed."""

    def __init__(
        self,
        pool: Pool,
        replica: Pool | None,
        address: Address,
        *,
        owns_pool: bool = True,
        distributed: bool = False,
    ) -> None:
        self.pool, self.replica, self.address = pool, replica, address
        self.owns_pool = owns_pool
        self.distributed = distributed  # over the nodes of a cluster: a call is for one tenant, whose node runs it
        self.closed = False
        self._loop = LoopGuard()

    async def rows(self, function: str, args: Mapping[str, object], *, read: bool) -> Sequence[Row]:
        self._check()
        pool = self.replica if read and self.replica else self.pool
        sql = _statement(function, tuple(args))
        try:
            return await self._fetch(pool, sql, args)
        except EngineUnavailable as problem:
            if not is_lost(problem):
                raise
            await pool.expire_connections()  # the others may be dying, too
            if not (read or function in REPEATABLE):
                raise
        return await self._fetch(pool, sql, args)  # over a new connection

    async def _fetch(self, pool: Pool, sql: str, args: Mapping[str, object]) -> Sequence[Row]:
        seconds = self.address.command_timeout
        with translate_errors():
            async with borrow(pool, seconds) as connection:
                if not self.address.pgbouncer:
                    return await connection.fetch(sql, *args.values(), timeout=seconds)
                async with connection.transaction():  # one server connection
                    return await connection.fetch(sql, *args.values(), timeout=seconds)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Transport]:
        self._check()
        pool = self.replica or self.pool
        with translate_errors():
            async with (
                borrow(pool, self.address.command_timeout) as connection,
                connection.transaction(isolation="repeatable_read", readonly=True),
            ):
                yield _Snapshot(connection, self.address.command_timeout)

    def _check(self) -> None:
        """Refuse a call of a store that is closed or that belongs to another event loop."""
        if self.closed:
            raise StoreClosed
        self._loop.check()

    async def close(self) -> None:
        self.closed = True
        for pool in (self.pool if self.owns_pool else None, self.replica):
            if pool is not None:
                await _close(pool)


@asynccontextmanager
async def borrow(pool: Pool, seconds: float) -> AsyncIterator[PooledConnection]:
    """Take a connection from the pool, for one call. One that does not respond is dropped at once.

    Returning it to the pool would take as long again: the driver waits until the server has cancelled the statement.
    """
    connection = await pool.acquire(timeout=seconds)
    try:
        yield connection
    except TimeoutError:
        connection.terminate()
        raise
    finally:
        await pool.release(connection, timeout=CLOSE_SECONDS)


async def _close(pool: Pool) -> None:
    try:
        async with asyncio.timeout(CLOSE_SECONDS):
            await pool.close()
    except TimeoutError:  # a server that does not respond
        pool.terminate()


class _Snapshot:
    """Calls over one connection, inside one transaction."""

    def __init__(self, connection: PooledConnection, seconds: float) -> None:
        self.connection, self.seconds = connection, seconds

    async def rows(self, function: str, args: Mapping[str, object], *, read: bool) -> Sequence[Row]:
        with translate_errors():
            sql = _statement(function, tuple(args))
            return await self.connection.fetch(sql, *args.values(), timeout=self.seconds)

    def snapshot(self) -> AbstractAsyncContextManager[Transport]:
        return nullcontext(self)

    async def close(self) -> None:
        """Do nothing: `AsyncpgTransport.snapshot` ends the transaction."""


# ---- connections ---------------------------------------------------------------------------------------------------


async def open_pool(address: Address) -> Pool:
    with translate_errors():
        return await asyncpg.create_pool(
            address.dsn,
            min_size=0,
            max_size=address.pool_size,
            connection_class=_StatelessConnection,
            command_timeout=address.command_timeout,
            **address.driver_options(),
        )


@asynccontextmanager
async def open_connection(url: str, *, administrator: bool = False) -> AsyncIterator[Connection]:
    """Open a single connection, for migrations and other work outside the functions.

    The errors of an administrator's work contain the server's messages.
    """
    address = parse_address(url)
    with translate_errors():
        connection: Connection = await asyncpg.connect(address.dsn, **address.driver_options())
    try:
        with translate_errors(administrator=administrator):
            yield connection
    finally:
        with suppress(*DRIVER_ERRORS):
            await connection.close(timeout=CLOSE_SECONDS)


async def open_transport(
    address: Address, *, read_url: str | None = None, migrate_url: str | None = None, pool: Pool | None = None
) -> AsyncpgTransport:
    """Open the pools, after a check of the schema. With `pool`, use that one; it stays open."""
    if migrate_url is not None:
        async with open_connection(migrate_url, administrator=True) as connection:
            await migrate.migrate(connection)
    used = await open_pool(address) if pool is None else pool
    try:
        with translate_errors():
            async with borrow(used, address.command_timeout) as one, one.transaction():  # behind pgbouncer: one server
                await migrate.check_version(cast("Connection", one))
                distributed = await citus.is_distributed(cast("Connection", one))
        replica = None if read_url is None else await open_pool(_same_settings(read_url, address))
    except BaseException:  # re-raised: nobody else closes it
        if pool is None:
            await _close(used)
        raise
    return AsyncpgTransport(used, replica, address, owns_pool=pool is None, distributed=distributed)


def _same_settings(url: str, address: Address) -> Address:
    """Return another server's address. Settings that its URL lacks are those of the first one."""
    own = parse_address(url)
    if "application_name=" not in url:
        own = replace(own, application_name=address.application_name)
    return own if "pool_size=" in url else replace(own, pool_size=address.pool_size)
