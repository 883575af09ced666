"""Tables of older systems as views over Palaver's data: plain SQL that also runs in an SQL editor."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

from palaver.core.validation import clean_name
from palaver.errors import InvalidInput, SchemaMissing

if TYPE_CHECKING:
    import asyncpg

    Connection = asyncpg.Connection[asyncpg.Record]

# The views that each one has in the schema `public`; and the table that exists only when it is installed.
TABLES = {
    "hal": ("hal_conversation_messages", "hal_conversation_summaries", "hal_conversation_working_memory"),
    "librarian": ("conversation_messages",),
}
VIEWS = [view for views in TABLES.values() for view in views]
MARKERS = {"hal": "palaver_compat.threads", "librarian": "palaver_compat.sessions"}


@dataclass(frozen=True, slots=True)
class Bindings:
    """The tenants of Supabase's keys, for programs in which nobody signs in. '': no tenant; None: as it is already."""

    anon: str | None = None  # the public key
    service: str | None = None  # the server key

    def completed(self, known: Bindings) -> Bindings:
        """Return these with the known ones where nothing was given."""
        return Bindings(
            known.anon if self.anon is None else self.anon, known.service if self.service is None else self.service
        )


NO_BINDINGS = Bindings()


def script(names: Collection[str], bindings: Bindings = NO_BINDINGS) -> str:
    """Return the SQL that creates these tables; to be run as one transaction. Repeating it is harmless."""
    unknown = [name for name in names if name not in TABLES]
    if unknown:
        raise InvalidInput("compat", f"{unknown[0]!r} is not one of {', '.join(TABLES)}")
    for option, value in (("anon-tenant", bindings.anon), ("service-tenant", bindings.service)):
        if value is not None and not names:
            raise InvalidInput(option, f"needs --compat {' or --compat '.join(TABLES)}")
        if value:
            clean_name(option, value)
    steps = [_file("common"), *(_file(name) for name in TABLES if name in names)] if names else []
    if bindings.anon is not None:
        step = _file("anon").replace("{tenant}", sql_literal(bindings.anon))
        steps.append(step.replace("{views}", ", ".join(sql_literal(view) for view in VIEWS)))
    if bindings.service is not None:
        steps.append(_file("service").replace("{tenant}", sql_literal(bindings.service)))
    return "\n".join(steps)


def sql_literal(text: str) -> str:
    """Quote a text as an SQL literal."""
    return "'" + text.replace("'", "''") + "'"


def _file(name: str) -> str:
    return files(__name__).joinpath(f"{name}.sql").read_text()


async def apply(connection: Connection, names: Collection[str], bindings: Bindings = NO_BINDINGS) -> None:
    """Create or replace these tables. Existing tables with these names are left alone and reported."""
    script(names, bindings)  # refuses what makes no sense
    async with connection.transaction():
        if await connection.fetchval("SELECT to_regnamespace('palaver')") is None:
            raise SchemaMissing("the database has no Palaver schema: run `palaver migrate` first")
        if names and await connection.fetchval("SELECT palaver.is_distributed()"):
            raise InvalidInput("compat", "cannot be combined with Citus: distributed tables have no triggers")
        for table in (table for name in names for table in TABLES[name]):
            await _reject_table(connection, table)
        for option, role, tenant in (
            ("anon-tenant", "anon", bindings.anon),
            ("service-tenant", "service_role", bindings.service),
        ):
            if tenant is not None and not await _role_exists(connection, role):
                raise InvalidInput(option, f"needs a database with a role named {role}, as on Supabase")
        _, bound = await installed(connection)
        await connection.execute(script(names, bindings.completed(bound)))


async def _reject_table(connection: Connection, table: str) -> None:
    kind = await connection.fetchval("SELECT relkind FROM pg_class WHERE oid = to_regclass($1)", f"public.{table}")
    if kind not in (None, b"v"):
        raise InvalidInput(
            "compat",
            f"public.{table} is a table. Rename it (ALTER TABLE {table} RENAME TO {table}_before), run this again, "
            "and then copy its rows: docs/how-to/tables.md",
        )


async def _role_exists(connection: Connection, role: str) -> bool:
    return bool(await connection.fetchval("SELECT 1 FROM pg_roles WHERE rolname = $1", role))


async def installed(connection: Connection) -> tuple[list[str], Bindings]:
    """Return which ones a database has, and the tenants that its keys are bound to."""
    names = [name for name, marker in MARKERS.items() if await connection.fetchval("SELECT to_regclass($1)", marker)]
    if not names:
        return [], NO_BINDINGS
    anon = await connection.fetchval("SELECT (palaver.anonymous()).tenant")
    has_service = await connection.fetchval("SELECT to_regprocedure('palaver_compat.service()') IS NOT NULL")
    service = await connection.fetchval("SELECT (palaver_compat.service()).tenant") if has_service else None
    return names, Bindings(anon, service)


async def refresh(connection: Connection) -> None:
    """After an upgrade of the schema, replace what is installed with this version's SQL."""
    names, bindings = await installed(connection)
    if names:
        await connection.execute(script(names, bindings))
