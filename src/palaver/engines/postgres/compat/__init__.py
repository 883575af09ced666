"""Tables of older systems as views over Palaver's data: plain SQL that also runs in an SQL editor."""

from __future__ import annotations

from collections.abc import Collection
from importlib.resources import files
from typing import TYPE_CHECKING

from palaver.errors import InvalidInput, SchemaMissing

if TYPE_CHECKING:
    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]

# The views that each one has in the schema `public`; and the table that exists only when it is installed.
TABLES = {
    "hal": ("hal_conversation_messages", "hal_conversation_summaries", "hal_conversation_working_memory"),
    "librarian": ("conversation_messages",),
}
MARKERS = {"hal": "palaver_compat.threads", "librarian": "palaver_compat.sessions"}


def script(names: Collection[str], anon_tenant: str | None = None) -> str:
    """Return the SQL that creates these tables; to be run as one transaction. Repeating it is harmless."""
    unknown = [name for name in names if name not in TABLES]
    if unknown:
        raise InvalidInput("compat", f"{unknown[0]!r} is not one of {', '.join(TABLES)}")
    if anon_tenant is not None and "hal" not in names:
        raise InvalidInput("anon-tenant", "needs --compat hal")
    steps = [_file("common"), *(_file(name) for name in TABLES if name in names)] if names else []
    if anon_tenant is not None:
        steps.append(_file("anon").replace("{tenant}", sql_literal(anon_tenant)))
    return "\n".join(steps)


def sql_literal(text: str) -> str:
    """Quote a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def _file(name: str) -> str:
    return files(__name__).joinpath(f"{name}.sql").read_text()


async def apply(connection: Connection, names: Collection[str], anon_tenant: str | None = None) -> None:
    """Create or replace these tables. Existing tables with these names are left alone and reported."""
    sql = script(names, anon_tenant)
    async with connection.transaction():
        if await connection.fetchval("SELECT to_regnamespace('palaver')") is None:
            raise SchemaMissing("the database has no Palaver schema: run `palaver migrate` first")
        for table in (table for name in names for table in TABLES[name]):
            await _reject_table(connection, table)
        if anon_tenant is not None and not await _role_exists(connection, "anon"):
            raise InvalidInput("anon-tenant", "needs a database with a role named anon, as on Supabase")
        await connection.execute(sql)


async def _reject_table(connection: Connection, table: str) -> None:
    kind = await connection.fetchval("SELECT relkind FROM pg_class WHERE oid = to_regclass($1)", f"public.{table}")
    if kind not in (None, b"v"):
        raise InvalidInput(
            "compat",
            f"public.{table} is a table. Rename it (ALTER TABLE {table} RENAME TO {table}_before), run this again, "
            f"and then `palaver import --from … --table {table}_before`",
        )


async def _role_exists(connection: Connection, role: str) -> bool:
    return bool(await connection.fetchval("SELECT 1 FROM pg_roles WHERE rolname = $1", role))


async def installed(connection: Connection) -> tuple[list[str], str | None]:
    """Return which ones a database has, and the tenant that its anonymous role is bound to."""
    names = [name for name, marker in MARKERS.items() if await connection.fetchval("SELECT to_regclass($1)", marker)]
    anon = await connection.fetchval("SELECT (palaver.anonymous()).tenant") if names else None
    return names, anon


async def refresh(connection: Connection) -> None:
    """After an upgrade of the schema, replace what is installed by this version's SQL."""
    names, anon = await installed(connection)
    if names:
        await connection.execute(script(names, anon))
