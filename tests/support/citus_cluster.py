"""A scratch database on a Citus cluster: the one whose coordinator PALAVER_TEST_CITUS_URL names.

The address is a superuser's, at a database that has the extension and its nodes. The scratch database is created on the
coordinator and on every node, and dropped afterwards together with a login of the same name. Palaver's roles remain.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from tests.support import postgres_server

COORDINATOR = "PALAVER_TEST_CITUS_URL"
SPARE = "PALAVER_TEST_CITUS_SPARE_URL"  # a server with the extension that is not a node yet, to be added and filled
SHARDS = 4  # per table: enough for every node, and quicker to create than the usual 32
NODES = "SELECT nodename, nodeport, groupid FROM pg_dist_node WHERE noderole = 'primary' AND isactive ORDER BY groupid"


@dataclass(frozen=True, slots=True)
class Cluster:
    """A scratch database: the superuser's address at the coordinator, and at each node."""

    url: str
    nodes: tuple[str, ...]

    @property
    def name(self) -> str:
        return urlsplit(self.url).path[1:]

    def application(self, url: str) -> str:
        """The same database on the same server, as an application would open it."""
        return postgres_server.at(url, self.name, self.name, postgres_server.APPLICATION_PASSWORD)

    async def create_login(self) -> str:
        """Create a login for the application, named like the database. Citus creates it on the nodes, too."""
        login = f"LOGIN PASSWORD '{postgres_server.APPLICATION_PASSWORD}' IN ROLE palaver_app, palaver_worker"
        await postgres_server.execute(self.url, f"CREATE ROLE {self.name} {login}")
        return self.application(self.url)

    async def fetch(self, sql: str, *args: object) -> list[asyncpg.Record]:
        connection = await asyncpg.connect(self.url)
        try:
            return await connection.fetch(sql, *args)
        finally:
            await connection.close()

    async def empty(self) -> None:
        """Delete every row; much faster than a new database."""
        connection = await asyncpg.connect(self.url)
        try:
            tables = await connection.fetch(
                "SELECT logicalrelid::text AS name FROM pg_dist_partition ORDER BY logicalrelid::oid DESC"
            )
            for table in tables:
                await connection.execute(f"DELETE FROM {table['name']}")
        finally:
            await connection.close()


def on_server(url: str, host: str, port: int) -> str:
    """The same login and database on another server."""
    parts = urlsplit(url)
    login = parts.netloc.rpartition("@")[0]
    return urlunsplit(parts._replace(netloc=f"{login}@{host}:{port}" if login else f"{host}:{port}"))


@asynccontextmanager
async def scratch() -> AsyncIterator[Cluster]:
    """A database on every server of the cluster, with the extension and the nodes, and nothing else."""
    given = os.environ[COORDINATOR]
    connection = await asyncpg.connect(given)
    servers = await connection.fetch(NODES)
    await connection.close()
    workers = [(one["nodename"], one["nodeport"]) for one in servers if one["groupid"]]
    assert workers, f"the database of {COORDINATOR} has no nodes: SELECT citus_add_node('host', 5432)"
    home = next(((one["nodename"], one["nodeport"]) for one in servers if not one["groupid"]), None)
    name = f"palaver_citus_{secrets.token_hex(4)}"
    addresses = [given, *(on_server(given, *worker) for worker in workers)]
    try:
        for address in addresses:
            await create(address, name)
        url = postgres_server.at(given, name)
        await postgres_server.execute(url, f"ALTER DATABASE {name} SET citus.shard_count = {SHARDS}")
        host, port = home or (urlsplit(given).hostname, urlsplit(given).port or 5432)
        await postgres_server.execute(url, f"SELECT citus_set_coordinator_host('{host}', {port})")
        for host, port in workers:
            await postgres_server.execute(url, f"SELECT citus_add_node('{host}', {port})")
        yield Cluster(url, tuple(postgres_server.at(address, name) for address in addresses[1:]))
    finally:
        for address in addresses:
            await drop(address, name)


async def create(address: str, name: str) -> None:
    await postgres_server.execute(address, f"CREATE DATABASE {name}")
    # Not the server's default: with "off", Citus loses the newest commits when it moves a shard (scale-out.md).
    await postgres_server.execute(address, f"ALTER DATABASE {name} SET synchronous_commit = on")
    await postgres_server.execute(postgres_server.at(address, name), "CREATE EXTENSION citus")


async def drop(address: str, name: str) -> None:
    """Drop the scratch database of a server, and the login of the same name."""
    off = "SET citus.enable_ddl_propagation = off"
    await postgres_server.execute(
        address, off, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)", f"DROP ROLE IF EXISTS {name}"
    )
