"""Creates and upgrades the schema: plain SQL that also runs in an SQL editor.

Code of earlier versions keeps working while and after this runs: CONTRIBUTING.md has the rules,
docs/how-to/upgrading.md the order of an upgrade.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

import asyncpg

from palaver.engines.migrate import migrations
from palaver.engines.postgres import citus, compat, online_steps
from palaver.errors import DatabaseTooNew, EngineError, EngineUnavailable, SchemaMissing

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]

PACKAGE = "palaver.engines.postgres"
LOCK = 0x70616C61  # "pala": the advisory lock that lets one migration run at a time
OLDEST_CODE = 3  # code that knows this schema, or a later one, may use the current schema: 0.1.0 knows 3
OLDEST_SCHEMA = 13  # the oldest schema that this code may use
FIRST_WITH_RANGE = 11  # databases before this schema say one number, and serve only code that knows the same one
# In the order in which they depend on each other.
FUNCTIONS = (
    "core", "redaction_rules", "redaction", "checks", "proof", "filters", "memory_invalidation", "subjects",
    "conversations", "turns", "streams", "answer_places", "deletion", "files", "log", "export_rows", "memory", "recall",
    "replication", "requests", "jobs", "embeddings", "repair", "keys", "budgets", "erasure", "stats", "operator_views",
    "older_code", "rights", "grants",
)  # fmt: skip
GRANT_VERSION = "GRANT EXECUTE ON FUNCTION palaver.schema_version(), palaver.schema_number() TO PUBLIC;\n"
FOR_LOGINS = ("palaver_app", "palaver_worker")  # an administrator grants these to logins of the application
ROLES = (*FOR_LOGINS, "palaver_index", "palaver_eraser")


@dataclass(frozen=True, slots=True)
class Version:
    """The schema of a database (0: none), and the oldest code that may use it, by the schema that this code knows."""

    number: int
    oldest_code: int

    @property
    def is_too_new(self) -> bool:
        return min(self.number, self.oldest_code) > known_version()

    @property
    def is_too_old(self) -> bool:
        return self.number < OLDEST_SCHEMA


def known_version() -> int:
    return migrations(f"{PACKAGE}.migrations")[-1].number


# ---- the SQL -------------------------------------------------------------------------------------------------------


def editor_script(since: int = 0, *, storage: bool = False) -> str:
    """Return `script` as one transaction for an SQL editor; with `storage`, also the bucket for Supabase.

    The steps that must not be in a transaction follow it.
    """
    main = as_transaction("\n".join([script(since), storage_script()] if storage else [script(since)]))
    steps = online_steps.read(f"{PACKAGE}.migrations", since)
    return main + (online_steps.editor_script(steps) + _finished_function(known_version()) if steps else "")


def as_transaction(steps: str) -> str:
    return f"BEGIN;\nSELECT pg_advisory_xact_lock({LOCK});\n{steps}\nCOMMIT;\n"


def storage_script() -> str:
    """Return the SQL for Supabase's bucket of attachments and its policies."""
    return files(PACKAGE).joinpath("storage.sql").read_text()


def script(since: int = 0) -> str:
    """Return the SQL that brings a database from schema `since` up to date; to be run as one transaction."""
    return f"{_table_script(since)}\n{_function_script(since)}"


def _table_script(since: int) -> str:
    """Return the migrations after a number, which a database with code of the last release may have by themselves."""
    steps = [one.sql for one in migrations(f"{PACKAGE}.migrations") if one.number > since]
    return "\n".join([citus.BEFORE_MIGRATION, *steps, _number_function("schema_tables", known_version())])


def _function_script(finished: int) -> str:
    """Return the functions, and the numbers that say that they are there.

    `finished` is the schema whose online steps have run.
    """
    if not online_steps.read(f"{PACKAGE}.migrations", finished):
        finished = known_version()
    versions = [version_functions(known_version()), _finished_function(finished)]
    return "\n".join([citus.BEFORE_MIGRATION, *versions, *_functions(), GRANT_VERSION])


def _functions() -> list[str]:
    folder = files(PACKAGE).joinpath("functions")
    return [folder.joinpath(f"{name}.sql").read_text() for name in FUNCTIONS]


def version_functions(number: int) -> str:
    """Return the SQL with which a database says its schema.

    0.1.0 accepts only its own number in `schema_version`, so that is the oldest code that may use the schema.
    """
    if number < FIRST_WITH_RANGE:
        return _number_function("schema_version", number)
    return _number_function("schema_version", OLDEST_CODE) + _number_function("schema_number", number)


def _finished_function(number: int) -> str:
    return _number_function("schema_finished", number)


def _number_function(name: str, number: int) -> str:
    return f"""
CREATE OR REPLACE FUNCTION palaver.{name}() RETURNS integer LANGUAGE sql IMMUTABLE RETURN {number};
"""


# ---- reading a database --------------------------------------------------------------------------------------------


async def read_version(connection: Connection) -> Version:
    oldest = await _call(connection, "schema_version")
    number = await _call(connection, "schema_number")
    return Version(number or oldest or 0, oldest or 0)


async def _call(connection: Connection, name: str) -> int | None:
    """Call a function that returns a number. None if the database does not have the function."""
    # Not to_regnamespace: in a transaction that waited for another migration, it may still not find the schema.
    known = """SELECT 1 FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
      WHERE n.nspname = 'palaver' AND p.proname = $1"""
    if await connection.fetchval(known, name) is None:
        return None
    return int(await connection.fetchval(f"SELECT palaver.{name}()"))


async def roles_of_login(connection: Connection) -> list[str]:
    """Return the roles of Palaver that this login is a member of."""
    sql = "SELECT rolname FROM pg_roles WHERE rolname = ANY($1::text[]) AND pg_has_role(oid, 'MEMBER') ORDER BY rolname"
    return [name for (name,) in await connection.fetch(sql, ROLES)]


async def check_version(connection: Connection) -> None:
    """Raise when this version of Palaver cannot work with the database's schema."""
    refuse_version(await read_version(connection), "database")


def refuse_version(found: Version, what: str) -> None:
    """Raise when this version of Palaver cannot work with a schema."""
    if found.is_too_new:
        raise DatabaseTooNew(found=found.number, known=known_version())
    if found.is_too_old:
        needed = f"has schema {found.number}, but {OLDEST_SCHEMA} is needed"
        problem = needed if found.number else "has no Palaver schema"
        raise SchemaMissing(f"the {what} {problem}: run `palaver migrate`, or open it with migrate_url=")


# ---- migrating -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LockPatience:
    """How long a migration waits for the lock of a table, how long it pauses after that, and how often it tries."""

    milliseconds: int = 500
    pause: float = 0.5
    attempts: int = 300


PATIENCE = LockPatience()


async def migrate(connection: Connection, patience: LockPatience = PATIENCE) -> tuple[int, int]:
    """Bring a database up to date. Returns the schema before (0: none) and after. Safe to run concurrently.

    Tables are changed first, in a transaction that is short because it locks them. Then come the functions, and then
    the steps that take long.
    """
    found, known = await read_version(connection), known_version()
    if found.is_too_new:
        raise DatabaseTooNew(found=found.number, known=known)
    if found.number > known:
        return found.number, found.number
    await _with_short_locks(connection, patience)
    before = await _change_functions(connection)
    await _finish(connection)
    return before, known


async def _with_short_locks(connection: Connection, patience: LockPatience) -> None:
    """Change the tables. If a lock cannot be obtained soon, let the waiting transactions go first, and retry.

    The wait is shorter than Postgres' `deadlock_timeout`, so that a deadlock ends here and not in a request.
    """
    for attempt in range(1, patience.attempts + 1):
        try:
            await _change_tables(connection, patience.milliseconds)
        except (asyncpg.LockNotAvailableError, asyncpg.DeadlockDetectedError) as problem:
            if attempt == patience.attempts:
                why = "could not lock a table that long transactions use; nothing was changed"
                raise EngineUnavailable(f"the migration {why} (SQLSTATE {problem.sqlstate})") from None
        else:
            return
        await asyncio.sleep(patience.pause)


async def _change_tables(connection: Connection, lock_milliseconds: int) -> None:
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
        found = await read_version(connection)
        tables = await _call(connection, "schema_tables")
        since = found.number if tables is None else tables
        if since < known_version():
            await _require_own_schema(connection)
            await _require_roles(connection)
            await _require_vector_in_its_schema(connection)
            await connection.execute(f"SET LOCAL lock_timeout = {lock_milliseconds}")
            await connection.execute(_table_script(since))


async def _change_functions(connection: Connection) -> int:
    """Replace the functions, unless another process has. Returns the schema before."""
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
        found = (await read_version(connection)).number
        if found < known_version():
            finished = await _call(connection, "schema_finished")
            await connection.execute(_function_script(found if finished is None else finished))
            await compat.refresh(connection)
            await citus.follow_migration(connection)
    return found


async def _require_own_schema(connection: Connection) -> None:
    """Raise when the schema exists and belongs to another login, such as when the application's login is used."""
    found = await connection.fetchrow(OTHER_OWNER)
    if found is not None:
        raise EngineError(
            f"the schema palaver belongs to {found['owner']}, and the login {found['login']} is not a member of it: "
            "run `palaver migrate` with the login of the first migration"
        )


OTHER_OWNER = """
SELECT pg_get_userbyid(nspowner) AS owner, current_user AS login FROM pg_namespace
WHERE nspname = 'palaver' AND NOT pg_has_role(nspowner, 'MEMBER')
"""


async def _require_roles(connection: Connection) -> None:
    """Raise when the roles exist already and this login can neither become them nor grant them to itself.

    Roles belong to the whole server: the administrator of another database may have created them.
    """
    blocked = await connection.fetch(BLOCKED_ROLES, list(ROLES))
    if not blocked:
        return
    name = await connection.fetchval("SELECT quote_ident(current_user)")
    raise EngineError(
        f"the role {blocked[0][0]} was created by another administrator of this server (roles belong to all of its "
        "databases). Use the login of the first migration. For another administrator of another database, a superuser "
        f"or the administrator that created the role has to run: GRANT {', '.join(FOR_LOGINS)} TO {name} "
        f"WITH ADMIN OPTION; GRANT {', '.join(role for role in ROLES if role not in FOR_LOGINS)} TO {name}"
    )


# Since Postgres 16, membership and the right to SET ROLE are separate, and CREATEROLE alone may not grant every role.
BLOCKED_ROLES = """
WITH server AS (SELECT current_setting('server_version_num')::integer >= 160000 AS is_16)
SELECT r.rolname FROM pg_roles r, server s, pg_roles me
WHERE r.rolname = ANY ($1) AND me.rolname = current_user
  AND NOT pg_has_role(current_user, r.oid, CASE WHEN s.is_16 THEN 'SET' ELSE 'MEMBER' END)
  AND NOT pg_has_role(current_user, r.oid, 'MEMBER WITH ADMIN OPTION')
  AND (s.is_16 OR NOT me.rolcreaterole)
ORDER BY 1
"""


async def _require_vector_in_its_schema(connection: Connection) -> None:
    """Raise when pgvector was created elsewhere: the functions name its types as `extensions.vector`."""
    home = await connection.fetchval(SCHEMA_OF_VECTOR)
    if home is None or home == "extensions":
        return
    name = await connection.fetchval("SELECT quote_ident(current_user)")
    raise EngineError(
        f"the extension vector is in the schema {home}; Palaver needs it in the schema extensions. The owner of the "
        f"extension or a superuser has to run: CREATE SCHEMA IF NOT EXISTS extensions AUTHORIZATION {name}; "
        "ALTER EXTENSION vector SET SCHEMA extensions"
    )


SCHEMA_OF_VECTOR = """
SELECT n.nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector'
"""


async def _finish(connection: Connection) -> None:
    """Run the online steps that have not run yet, after the migration is committed."""
    known, finished = known_version(), await _call(connection, "schema_finished")
    if finished is not None and finished >= known:
        return
    steps = online_steps.read(f"{PACKAGE}.migrations", finished or 0)
    async with online_steps.one_at_a_time(connection, LOCK + 1):
        await online_steps.run(connection, steps)
        await connection.execute(_finished_function(known))
