"""The tables of older systems over Palaver's own data: plain SQL that also runs in an SQL editor."""

from __future__ import annotations

from collections.abc import Collection
from importlib.resources import files
from typing import TYPE_CHECKING

from palaver.errors import InvalidInput, SchemaMissing

if TYPE_CHECKING:
    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]

# What each has in the schema `public`, and what tells that it is there.
TABLES = {
    "hal": ("hal_conversation_messages", "hal_conversation_summaries", "hal_conversation_working_memory"),
    "librarian": ("conversation_messages",),
}
MARKS = {"hal": "palaver_compat.threads", "librarian": "palaver_compat.sessions"}


def script(names: Collection[str], anon_tenant: str | None = None) -> str:
    """What gives a database those tables; to be run as one transaction, as often as one likes."""
    unknown = [name for name in names if name not in TABLES]
    if unknown:
        raise InvalidInput("compat", f"{unknown[0]!r} is not one of {', '.join(TABLES)}")
    if anon_tenant is not None and "hal" not in names:
        raise InvalidInput("anon-tenant", "goes with --compat hal")
    steps = [_file("common"), *(_file(name) for name in TABLES if name in names)] if names else []
    if anon_tenant is not None:
        steps.append(_file("anon").replace("{tenant}", quoted(anon_tenant)))
    return "\n".join(steps)


def quoted(text: str) -> str:
    """As a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


def _file(name: str) -> str:
    return files(__name__).joinpath(f"{name}.sql").read_text()


async def apply(connection: Connection, names: Collection[str], anon_tenant: str | None = None) -> None:
    """Make them, or make them anew. Tables of those names that are somebody else's are left alone, and said."""
    sql = script(names, anon_tenant)
    async with connection.transaction():
        if await connection.fetchval("SELECT to_regnamespace('palaver')") is None:
            raise SchemaMissing("the database has no Palaver schema: run `palaver migrate` first")
        for table in (table for name in names for table in TABLES[name]):
            await _refuse_table(connection, table)
        if anon_tenant is not None and not await _exists(connection, "anon"):
            raise InvalidInput("anon-tenant", "is for databases with a role named anon, as Supabase has it")
        await connection.execute(sql)


async def _refuse_table(connection: Connection, table: str) -> None:
    kind = await connection.fetchval("SELECT relkind FROM pg_class WHERE oid = to_regclass($1)", f"public.{table}")
    if kind not in (None, b"v"):
        raise InvalidInput(
            "compat",
            f"public.{table} is a table. Rename it (ALTER TABLE {table} RENAME TO {table}_before), run this again, "
            f"and then `palaver import --from … --table {table}_before`",
        )


async def _exists(connection: Connection, role: str) -> bool:
    return bool(await connection.fetchval("SELECT 1 FROM pg_roles WHERE rolname = $1", role))


async def installed(connection: Connection) -> tuple[list[str], str | None]:
    """Which of them a database has, and the tenant that its anonymous role is bound to."""
    names = [name for name, mark in MARKS.items() if await connection.fetchval("SELECT to_regclass($1)", mark)]
    anon = await connection.fetchval("SELECT (palaver.anonymous()).tenant") if names else None
    return names, anon


async def renew(connection: Connection) -> None:
    """After an upgrade of the schema: what is installed, as this version writes it."""
    names, anon = await installed(connection)
    if names:
        await connection.execute(script(names, anon))
