"""Databases on a Citus cluster: distributing the tables by tenant, and keeping the nodes up to date (citus.sql)."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files
from typing import TYPE_CHECKING

from palaver.engines.postgres import compat
from palaver.errors import InvalidInput

if TYPE_CHECKING:
    import asyncpg

# The first step of every migration. A schema that is not distributed stays on the coordinator: Citus would send each
# function to the nodes before the tables that it uses are there. In a distributed one, changes go to one shard after
# the other: functions can be sent to the nodes in no other way.
BEFORE_MIGRATION = """
DO $$
DECLARE distributed boolean := false;
BEGIN
  IF EXISTS (SELECT 1 FROM pg_extension WHERE extname = 'citus') THEN
    IF to_regproc('palaver.is_distributed') IS NOT NULL THEN
      EXECUTE 'SELECT palaver.is_distributed()' INTO distributed;
    END IF;
    PERFORM set_config('citus.enable_ddl_propagation', CASE WHEN distributed THEN 'on' ELSE 'off' END, true);
    PERFORM set_config('citus.multi_shard_modify_mode', 'sequential', true);
  END IF;
END $$;
"""


def script() -> str:
    """Return the SQL that distributes what is not distributed yet; to be run as one transaction."""
    return files("palaver.engines.postgres").joinpath("citus.sql").read_text()


async def has_extension(connection: asyncpg.Connection[asyncpg.Record]) -> bool:
    return await connection.fetchval("SELECT 1 FROM pg_extension WHERE extname = 'citus'") is not None


async def is_distributed(connection: asyncpg.Connection[asyncpg.Record]) -> bool:
    """Return whether the tables are distributed. Works for any login: it reads the catalog only."""
    sql = """
      SELECT pg_get_function_sqlbody(p.oid) FROM pg_proc p
      WHERE p.pronamespace = to_regnamespace('palaver') AND p.proname = 'is_distributed'
    """
    return "true" in (await connection.fetchval(sql) or "")


async def count_nodes(connection: asyncpg.Connection[asyncpg.Record]) -> int:
    """Return how many nodes hold rows of Palaver's tables."""
    sql = """
      SELECT count(DISTINCT p.groupid) FROM pg_dist_placement p JOIN pg_dist_shard s ON s.shardid = p.shardid
      WHERE s.logicalrelid = to_regclass('palaver.conversations')
    """
    return int(await connection.fetchval(sql))


async def count_asynchronous_nodes(connection: asyncpg.Connection[asyncpg.Record]) -> int:
    """Return how many nodes acknowledge commits before they are written, for this login.

    When Citus moves a shard, it waits for the log as far as it is written, and loses the commits after that.
    """
    sql = "SELECT count(*) FROM run_command_on_workers('SHOW synchronous_commit') WHERE result = 'off'"
    return int(await connection.fetchval(sql))


async def describe(connection: asyncpg.Connection[asyncpg.Record]) -> str | None:
    """Say whether the tables are distributed, and over how many nodes. None without the extension."""
    if not await has_extension(connection):
        return None
    if not await is_distributed(connection):
        return "Citus, not distributed: palaver migrate --distribute citus"
    found = f"Citus, distributed over {await count_nodes(connection)} nodes"
    if await count_asynchronous_nodes(connection):
        found += ", with synchronous_commit = off on a node: moving shards under writes loses acknowledged turns"
    return found


async def distribute(
    connection: asyncpg.Connection[asyncpg.Record], report: Callable[[str], None] | None = None
) -> None:
    """Distribute the tables over the nodes. A second run distributes only what is new. `report` gets each step."""
    if not await has_extension(connection):
        raise InvalidInput("distribute", "needs the extension citus, which this database does not have")
    if (await compat.installed(connection))[0]:
        raise InvalidInput("distribute", "cannot be combined with --compat: distributed tables have no triggers")
    if report is not None:
        connection.add_log_listener(lambda _, message: report(message.message))
    async with connection.transaction():
        await connection.execute(script())


async def follow_migration(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    """Distribute the tables and functions that a migration has added. To be called in its transaction."""
    if await is_distributed(connection):
        await connection.execute(script())
