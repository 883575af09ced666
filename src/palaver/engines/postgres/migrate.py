"""Making and upgrading the schema: plain SQL that also runs in an SQL editor."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from palaver.engines.migrate import migrations
from palaver.engines.postgres import compat
from palaver.errors import DatabaseTooNew, InvalidInput, SchemaMissing

if TYPE_CHECKING:
    import asyncpg

PACKAGE = "palaver.engines.postgres"
LOCK = 0x70616C61  # "pala": one migration at a time, whoever runs it
# In the order in which they need each other.
FUNCTIONS = (
    "core", "checks", "upkeep", "conversations", "turns", "streams", "forgetting", "files", "records",
    "callers", "memory", "recall", "requests", "outbox", "serving", "grants",
)  # fmt: skip
VERSION_IS_FOR_ALL = "GRANT EXECUTE ON FUNCTION palaver.schema_version() TO PUBLIC;\n"


def known_version() -> int:
    return migrations(f"{PACKAGE}.migrations")[-1].number


def pasted(since: int = 0, *, storage: bool = False) -> str:
    """The same, for an SQL editor; with `storage`, also the bucket that only Supabase has."""
    return as_transaction("\n".join([script(since), storage_script()] if storage else [script(since)]))


def as_transaction(steps: str) -> str:
    return f"BEGIN;\nSELECT pg_advisory_xact_lock({LOCK});\n{steps}\nCOMMIT;\n"


def storage_script() -> str:
    """Supabase's bucket for attachments, and who may do what with a file in it."""
    return files(PACKAGE).joinpath("storage.sql").read_text()


def script(since: int = 0) -> str:
    """Everything that brings a database from schema `since` up to date; to be run as one transaction."""
    steps = [one.sql for one in migrations(f"{PACKAGE}.migrations") if one.number > since]
    return "\n".join([*steps, _version(known_version()), *_functions(), VERSION_IS_FOR_ALL])


def _functions() -> list[str]:
    folder = files(PACKAGE).joinpath("functions")
    named = [folder.joinpath(f"{name}.sql") for name in FUNCTIONS]
    return [file.read_text() for file in named if file.is_file()]


def distribution() -> str:
    """What spreads the tables over a Citus cluster, by tenant; to be run as one transaction."""
    return files(PACKAGE).joinpath("citus.sql").read_text()


async def distribute(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    if await connection.fetchval("SELECT 1 FROM pg_extension WHERE extname = 'citus'") is None:
        raise InvalidInput("distribute", "needs the extension citus, and this database has not got it")
    if (await compat.installed(connection))[0]:
        raise InvalidInput("distribute", "and --compat exclude each other: distributed tables have no triggers")
    if await connection.fetchval("SELECT palaver.is_distributed()"):
        raise InvalidInput("distribute", "was done before: the tables are distributed")
    async with connection.transaction():
        await connection.execute(distribution())


def _version(number: int) -> str:
    return f"""
CREATE OR REPLACE FUNCTION palaver.schema_version() RETURNS integer LANGUAGE sql IMMUTABLE RETURN {number};
"""


async def found_version(connection: asyncpg.Connection[asyncpg.Record]) -> int:
    """The schema that a database has; 0 when it has none."""
    if await connection.fetchval("SELECT to_regnamespace('palaver')") is None:
        return 0
    known = "SELECT 1 FROM pg_proc WHERE pronamespace = to_regnamespace('palaver') AND proname = 'schema_version'"
    if await connection.fetchval(known) is None:
        return 0
    return int(await connection.fetchval("SELECT palaver.schema_version()"))


async def check(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    """Refuse a database that this version of Palaver cannot work with."""
    found, known = await found_version(connection), known_version()
    if found > known:
        raise DatabaseTooNew(found=found, known=known)
    if found < known:
        problem = "has no Palaver schema" if not found else f"has schema {found}, and {known} is needed"
        raise SchemaMissing(f"the database {problem}: run `palaver migrate`, or open it with migrate_url=")


async def migrate(connection: asyncpg.Connection[asyncpg.Record]) -> tuple[int, int]:
    """Bring a database up to date, and answer from which schema (0: none) to which. Safe from many places at once."""
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
        found, known = await found_version(connection), known_version()
        if found > known:
            raise DatabaseTooNew(found=found, known=known)
        if found < known:
            await connection.execute(script(found))
            await compat.renew(connection)
    return found, known
