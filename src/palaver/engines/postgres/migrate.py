"""Creates and upgrades the schema: plain SQL that also runs in an SQL editor."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from palaver.engines.migrate import migrations
from palaver.engines.postgres import compat
from palaver.errors import DatabaseTooNew, InvalidInput, SchemaMissing

if TYPE_CHECKING:
    import asyncpg

PACKAGE = "palaver.engines.postgres"
LOCK = 0x70616C61  # "pala": the advisory lock that lets one migration run at a time
# In the order in which they depend on each other.
FUNCTIONS = (
    "core", "checks", "memory_invalidation", "conversations", "turns", "streams", "answer_places", "deletion", "files",
    "log", "export_rows", "memory", "recall", "requests", "jobs", "embeddings", "keys", "stats", "rights", "grants",
)  # fmt: skip
GRANT_VERSION = "GRANT EXECUTE ON FUNCTION palaver.schema_version() TO PUBLIC;\n"


def known_version() -> int:
    return migrations(f"{PACKAGE}.migrations")[-1].number


def editor_script(since: int = 0, *, storage: bool = False) -> str:
    """Return `script` as one transaction for an SQL editor; with `storage`, also the bucket for Supabase."""
    return as_transaction("\n".join([script(since), storage_script()] if storage else [script(since)]))


def as_transaction(steps: str) -> str:
    return f"BEGIN;\nSELECT pg_advisory_xact_lock({LOCK});\n{steps}\nCOMMIT;\n"


def storage_script() -> str:
    """Return the SQL for Supabase's bucket of attachments and its policies."""
    return files(PACKAGE).joinpath("storage.sql").read_text()


def script(since: int = 0) -> str:
    """Return the SQL that brings a database from schema `since` up to date; to be run as one transaction."""
    steps = [one.sql for one in migrations(f"{PACKAGE}.migrations") if one.number > since]
    return "\n".join([*steps, version_function(known_version()), *_functions(), GRANT_VERSION])


def _functions() -> list[str]:
    folder = files(PACKAGE).joinpath("functions")
    return [folder.joinpath(f"{name}.sql").read_text() for name in FUNCTIONS]


def citus_script() -> str:
    """Return the SQL that distributes the tables over a Citus cluster, by tenant; to be run as one transaction."""
    return files(PACKAGE).joinpath("citus.sql").read_text()


async def distribute(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    if await connection.fetchval("SELECT 1 FROM pg_extension WHERE extname = 'citus'") is None:
        raise InvalidInput("distribute", "needs the extension citus, which this database does not have")
    if (await compat.installed(connection))[0]:
        raise InvalidInput("distribute", "cannot be combined with --compat: distributed tables have no triggers")
    if await connection.fetchval("SELECT palaver.is_distributed()"):
        raise InvalidInput("distribute", "was done already: the tables are distributed")
    async with connection.transaction():
        await connection.execute(citus_script())


def version_function(number: int) -> str:
    return f"""
CREATE OR REPLACE FUNCTION palaver.schema_version() RETURNS integer LANGUAGE sql IMMUTABLE RETURN {number};
"""


async def read_version(connection: asyncpg.Connection[asyncpg.Record]) -> int:
    """Return the version of a database's schema; 0 when it has none."""
    if await connection.fetchval("SELECT to_regnamespace('palaver')") is None:
        return 0
    known = "SELECT 1 FROM pg_proc WHERE pronamespace = to_regnamespace('palaver') AND proname = 'schema_version'"
    if await connection.fetchval(known) is None:
        return 0
    return int(await connection.fetchval("SELECT palaver.schema_version()"))


async def check_version(connection: asyncpg.Connection[asyncpg.Record]) -> None:
    """Raise when this version of Palaver cannot work with the database's schema."""
    found, known = await read_version(connection), known_version()
    if found > known:
        raise DatabaseTooNew(found=found, known=known)
    if found < known:
        problem = "has no Palaver schema" if not found else f"has schema {found}, but {known} is needed"
        raise SchemaMissing(f"the database {problem}: run `palaver migrate`, or open it with migrate_url=")


async def migrate(connection: asyncpg.Connection[asyncpg.Record]) -> tuple[int, int]:
    """Bring a database up to date. Returns the schema before (0: none) and after. Safe to run concurrently."""
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
        found, known = await read_version(connection), known_version()
        if found > known:
            raise DatabaseTooNew(found=found, known=known)
        if found < known:
            await connection.execute(script(found))
            await compat.refresh(connection)
    return found, known
