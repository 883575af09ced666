"""`palaver migrate`: its locks, the steps that take long, its messages, and several administrators on one server."""

from __future__ import annotations

import asyncio
import re
import secrets
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
from typer.testing import CliRunner

import palaver
from palaver.cli import app
from palaver.engines.migrate import Migration, migrations
from palaver.engines.postgres import migrate, online_steps, transports
from palaver.engines.postgres.failures import error_for, error_for_administrator
from palaver.errors import EngineError, EngineUnavailable
from tests.support import postgres_server
from tests.support.postgres_server import Server
from tests.upgrades.test_upgrades import postgres_at, rows_of

# ---- locks ----------------------------------------------------------------------------------------------------------


async def made_older(database: str) -> None:
    """Let a database seem to need the last migration again, without what this one adds."""
    async with transports.open_connection(database) as connection:
        for name in ("schema_tables", "schema_number"):
            number = migrate.known_version() - 1
            sql = f"CREATE OR REPLACE FUNCTION palaver.{name}() RETURNS integer LANGUAGE sql IMMUTABLE RETURN {number}"
            await connection.execute(sql)


async def test_a_migration_waits_briefly_for_a_lock_and_lets_others_go_first(
    postgres_database: str, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A transaction that holds a table keeps the migration from changing it, and not the others from reading it."""
    await made_older(postgres_database)
    change = "ALTER TABLE palaver.turns ADD COLUMN mood text;\n" + migrate._number_function("schema_tables", 99)
    monkeypatch.setattr(migrate, "_table_script", lambda since: change)
    tries = 0
    really = migrate._change_tables

    async def counted(connection: Any, lock_milliseconds: int) -> None:
        nonlocal tries
        tries += 1
        await really(connection, lock_milliseconds)

    monkeypatch.setattr(migrate, "_change_tables", counted)
    holder = await asyncpg.connect(postgres_database)
    async with transports.open_connection(postgres_database) as connection:
        transaction = holder.transaction()
        await transaction.start()
        await holder.fetch("SELECT 1 FROM palaver.turns")
        migrating = asyncio.create_task(migrate.migrate(connection, migrate.LockPatience(50, 0.05)))
        async with asyncio.timeout(60):
            while tries < 3:
                reader = await asyncpg.connect(postgres_database)
                await reader.fetch("SELECT 1 FROM palaver.turns")
                await reader.close()
        assert not migrating.done()
        await transaction.rollback()
        assert (await migrating)[1] == migrate.known_version()
        sql = "SELECT 1 FROM information_schema.columns WHERE table_name = 'turns' AND column_name = 'mood'"
        assert await connection.fetchval(sql) == 1
    await holder.close()


async def test_a_migration_that_gets_no_lock_changes_nothing_and_says_so(
    postgres_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await made_older(postgres_database)
    monkeypatch.setattr(migrate, "_table_script", lambda since: "ALTER TABLE palaver.turns ADD COLUMN mood text")
    holder = await asyncpg.connect(postgres_database)
    async with holder.transaction():
        await holder.fetch("SELECT 1 FROM palaver.turns")
        async with transports.open_connection(postgres_database, administrator=True) as connection:
            with pytest.raises(EngineUnavailable, match="nothing was changed"):
                await migrate.migrate(connection, migrate.LockPatience(20, 0.0, 2))
    await holder.close()


# ---- steps that take long --------------------------------------------------------------------------------------------

STEPS = """-- A comment.

-- step: index_roles
CREATE INDEX CONCURRENTLY IF NOT EXISTS turns_by_role ON palaver.turns (tenant, role);

-- step: fill_agents, repeat
UPDATE palaver.conversations SET agent = 'none' WHERE (tenant, cid) IN (
  SELECT c.tenant, c.cid FROM palaver.conversations c WHERE c.agent IS NULL LIMIT 2);
"""
VALID = "SELECT indisvalid FROM pg_index WHERE indexrelid = 'palaver.turns_by_role'::regclass"


async def test_long_steps_run_outside_of_a_transaction_in_batches_and_may_be_repeated(
    postgres_database: str, postgres_url: str
) -> None:
    async with palaver.open(postgres_url, worker=False) as store:
        for n in range(5):
            await (await store.conversation(f"k/{n}")).append("user", "hello")
    steps = online_steps.parse(STEPS)
    assert [(step.name, step.repeat) for step in steps] == [("index_roles", False), ("fill_agents", True)]
    async with transports.open_connection(postgres_database) as connection:
        for _ in range(2):
            await online_steps.run(connection, steps)
        assert await connection.fetchval("SELECT count(*) FROM palaver.conversations WHERE agent = 'none'") == 5
        assert await connection.fetchval(
            "SELECT indisvalid FROM pg_index WHERE indexrelid = 'palaver.turns_by_role'::regclass"
        )


async def test_an_index_whose_creation_was_interrupted_is_created_again(postgres_database: str) -> None:
    async with transports.open_connection(postgres_database) as connection:
        await online_steps.run(connection, online_steps.parse(STEPS)[:1])
        broken = "UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'palaver.turns_by_role'::regclass"
        await connection.execute(broken)
        await online_steps.run(connection, online_steps.parse(STEPS)[:1])
        assert await connection.fetchval(
            "SELECT indisvalid FROM pg_index WHERE indexrelid = 'palaver.turns_by_role'::regclass"
        )


async def test_steps_that_were_interrupted_run_with_the_next_migration(
    empty_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: Any) -> None:
        raise ConnectionError

    async with transports.open_connection(empty_database) as connection:
        with monkeypatch.context() as patch:
            patch.setattr(online_steps, "run", fail)
            with pytest.raises(EngineUnavailable):
                async with transports.open_connection(empty_database) as other:
                    await migrate.migrate(other)
        assert await connection.fetchval("SELECT palaver.schema_finished()") == 0
        await migrate.check_version(connection)  # it can be used already
        await migrate.migrate(connection)
        assert await connection.fetchval("SELECT palaver.schema_finished()") == migrate.known_version()


def test_the_printed_script_has_the_steps_after_the_transaction() -> None:
    script = migrate.editor_script(10)
    assert script.index("COMMIT;") < script.index("DROP FUNCTION IF EXISTS palaver.unshelve")
    assert "EXIT WHEN NOT FOUND; COMMIT;" in online_steps.editor_script(online_steps.parse(STEPS))


# ---- the rules for migrations (CONTRIBUTING.md) ----------------------------------------------------------------------

# Statements that hold a lock for long, or break code of the last release; and what to do instead.
FORBIDDEN = {
    r"CREATE (UNIQUE )?INDEX (?!CONCURRENTLY)": "CREATE INDEX CONCURRENTLY in the online steps",
    r"(?m)^UPDATE ": "in batches, in the online steps",
    r"SET NOT NULL|ALTER COLUMN \w+ (SET DATA )?TYPE": "rewrites or reads the whole table",
    r"ADD CONSTRAINT (?![^;]*NOT VALID)": "NOT VALID, and VALIDATE CONSTRAINT in the online steps",
    r"DROP (TABLE|COLUMN|VIEW)|RENAME (COLUMN|TO)": "in a later release, when no code that is served uses it",
    r"DROP FUNCTION (IF EXISTS )?palaver_api": "functions/older_code.sql",
}


def broken_rules(sql: str) -> list[str]:
    made = re.findall(r"CREATE TABLE (?:IF NOT EXISTS )?palaver\.(\w+)", sql)
    for table in made:  # a table that the migration itself makes is empty
        sql = re.sub(rf"CREATE (UNIQUE )?INDEX \w+ ON palaver\.{table}\b[^;]*;", "", sql)
    sql = re.sub(r"--[^\n]*", "", sql)
    return [hint for pattern, hint in FORBIDDEN.items() if re.search(pattern, sql)]


@pytest.mark.parametrize("step", [one for one in migrations("palaver.engines.postgres.migrations") if one.number > 11])
def test_a_migration_takes_no_long_locks_and_breaks_no_released_code(step: Migration) -> None:
    assert broken_rules(step.sql) == []


@pytest.mark.parametrize(
    ("sql", "broken"),
    [
        ("CREATE INDEX turns_by_role ON palaver.turns (tenant, role);", 1),
        ("CREATE TABLE palaver.x (a text);\nCREATE INDEX x_a ON palaver.x (a);", 0),
        ("ALTER TABLE palaver.turns ADD COLUMN mood text;", 0),
        ("ALTER TABLE palaver.turns ALTER COLUMN mood SET NOT NULL;", 1),
        ("ALTER TABLE palaver.turns ADD CONSTRAINT c CHECK (seq >= 0);", 1),
        ("ALTER TABLE palaver.turns ADD CONSTRAINT c CHECK (seq >= 0) NOT VALID;", 0),
        ("UPDATE palaver.turns SET mood = 'x';", 1),
        ("DROP FUNCTION IF EXISTS palaver_api.health(jsonb, boolean);", 1),
        ("-- DROP TABLE palaver.x\nDROP FUNCTION palaver.unused();", 0),
    ],
)
def test_the_rules_find_what_they_are_for(sql: str, broken: int) -> None:
    assert len(broken_rules(sql)) == broken


# ---- messages --------------------------------------------------------------------------------------------------------


def test_migrate_prints_what_postgres_says(empty_database: str) -> None:
    asyncio.run(postgres_server.execute(empty_database, "CREATE SCHEMA palaver_api"))
    ran = CliRunner().invoke(app, ["migrate", "--db", empty_database])
    assert ran.exit_code != 0
    assert 'schema "palaver_api" already exists' in ran.output
    assert "42P06" in ran.output


async def test_pgvector_in_another_schema_is_refused_with_the_statement_that_moves_it(empty_database: str) -> None:
    await postgres_server.execute(empty_database, "CREATE EXTENSION vector SCHEMA public")
    async with transports.open_connection(empty_database, administrator=True) as connection:
        with pytest.raises(EngineError, match="schema public") as problem:
            await migrate.migrate(connection)
        assert await connection.fetchval("SELECT to_regnamespace('palaver')") is None
        await connection.execute(str(problem.value).partition("has to run: ")[2])
        assert await migrate.migrate(connection) == (0, migrate.known_version())


def test_an_extension_that_cannot_be_created_names_what_to_do() -> None:
    missing = asyncpg.FeatureNotSupportedError('extension "vector" is not available')
    assert "install it there" in str(error_for_administrator(missing))
    denied = asyncpg.InsufficientPrivilegeError('permission denied to create extension "vector"')
    assert "in this database first: CREATE EXTENSION vector SCHEMA extensions" in str(error_for_administrator(denied))
    other = asyncpg.InsufficientPrivilegeError("permission denied for database chats")
    assert str(error_for_administrator(other)) == "Postgres says: permission denied for database chats (SQLSTATE 42501)"


async def test_a_wrong_database_or_login_names_what_to_check(postgres: Server) -> None:
    name = postgres.at("no_such_database"), "no database of this name .*: check its name in the address"
    login = postgres.at("postgres", "nobody", "a-secret"), "rejected this login .*: check the user, the password"
    for url, wanted in (name, login):
        with pytest.raises(EngineError, match=wanted) as problem:
            async with transports.open_connection(url):
                pass
        assert "a-secret" not in str(problem.value)


async def test_the_parts_of_a_message_of_postgres_are_separate_sentences(empty_database: str) -> None:
    with pytest.raises(EngineError, match=r"is not available\. .*The extension must .* \(SQLSTATE 0A000\)$"):
        async with transports.open_connection(empty_database, administrator=True) as connection:
            await connection.execute("CREATE EXTENSION no_such_extension")


def test_a_lost_prepared_statement_names_the_option_for_a_pooler() -> None:
    for sqlstate in ("26000", "42P05"):
        assert "?pgbouncer=true" in str(error_for(sqlstate, "prepared statement does not exist"))


def test_a_shard_that_moved_is_a_reason_to_retry() -> None:
    """Citus stops the function on the old node by an internal error; nothing was written."""
    found = error_for("XX000", "cannot execute a distributed query from a query on a shard")
    assert isinstance(found, EngineUnavailable)
    assert not isinstance(error_for("XX000", "could not find valid entry for shard 102008"), EngineUnavailable)


# ---- administrators and backups --------------------------------------------------------------------------------------


@asynccontextmanager
async def an_administrator(postgres: Server) -> AsyncIterator[tuple[str, str]]:
    """A login without superuser that may create roles and owns a database with the extensions."""
    name, database = f"palaver_admin_{secrets.token_hex(4)}", await postgres_server.new_database(postgres)
    await postgres_server.execute(
        postgres.url,
        f"CREATE ROLE {name} LOGIN PASSWORD 'x' CREATEROLE",
        f"ALTER DATABASE {database} OWNER TO {name}",
    )
    await postgres_server.execute(
        postgres.at(database),
        "CREATE SCHEMA extensions",
        "CREATE EXTENSION btree_gin SCHEMA extensions",
        "CREATE EXTENSION vector SCHEMA extensions",
        f"GRANT ALL ON SCHEMA extensions TO {name}",
    )
    try:
        yield name, postgres.at(database, name, "x")
    finally:
        await postgres_server.drop_database(postgres, database)
        await postgres_server.execute(postgres.url, f"DROP OWNED BY {name}", f"DROP ROLE {name}")


@pytest.fixture
def own_server(postgres: Server) -> Any:
    """A server of one's own: roles belong to all databases of a server."""
    with postgres_server.running() as server:
        yield server


async def test_two_administrators_share_a_server_and_neither_is_superuser(own_server: Server) -> None:
    async with an_administrator(own_server) as (_, first), an_administrator(own_server) as (name, second):
        async with transports.open_connection(first, administrator=True) as connection:
            await migrate.migrate(connection)
        async with transports.open_connection(second, administrator=True) as connection:
            with pytest.raises(EngineError, match=f"GRANT palaver_app.* TO {name}") as problem:
                await migrate.migrate(connection)
            cure = str(problem.value).partition("has to run: ")[2]
            async with transports.open_connection(first) as owner:
                await owner.execute(cure)
            await migrate.migrate(connection)
            await connection.execute(f"CREATE ROLE {name}_app LOGIN IN ROLE palaver_app, palaver_worker")
            await connection.execute(f"DROP ROLE {name}_app")
        await postgres_server.execute(own_server.url, postgres_server.LOGIN)
        async with palaver.open(postgres_server.as_application(second), worker=False) as store:
            await (await store.conversation("k")).append("user", "hello")


async def test_a_migration_with_another_login_names_the_owner_of_the_schema(own_server: Server) -> None:
    """The application's login must not be advised to become a member of every role."""
    async with an_administrator(own_server) as (name, url), transports.open_connection(url) as owner:
        await postgres_at(owner, 14)
        await postgres_server.execute(own_server.url, postgres_server.LOGIN)
        async with transports.open_connection(postgres_server.as_application(url)) as connection:
            with pytest.raises(EngineError, match=f"^the schema palaver belongs to {name}, .* login of the first"):
                await migrate.migrate(connection)
        await migrate.migrate(owner)


@pytest.mark.process
async def test_an_administrator_without_superuser_indexes_the_metadata_of_earlier_rows(own_server: Server) -> None:
    """Row level security holds for the owner of the tables, too."""
    async with an_administrator(own_server) as (_, url):
        async with transports.open_connection(url, administrator=True) as connection:
            await postgres_at(connection, 14)
            database = urlsplit(url).path[1:]
            await postgres_server.execute(own_server.at(database), rows_of("postgres", 14))
            await migrate.migrate(connection)
        await postgres_server.execute(own_server.url, postgres_server.LOGIN)
        async with palaver.open(postgres_server.as_application(url), tenant="acme", worker=False) as store:
            (info,) = (await store.conversations(where={"metadata": {"plan": "pro"}})).items
            (turn,) = await (await store.get(info.id)).history(where={"metadata": {"m": 1}})
            assert turn.text == "Rice and vegetables are fine."


async def test_metadata_that_was_deleted_while_it_was_read_does_not_stay(postgres_database: str) -> None:
    (step,) = [one for one in online_steps.read(f"{migrate.PACKAGE}.migrations", 14) if one.name == "read_metadata"]
    async with palaver.open(postgres_server.as_application(postgres_database), worker=False) as store:
        talk = await store.conversation("k", metadata={"plan": "pro"})
        kept = await talk.append("user", "One.", metadata={"n": 1})
        await talk.forget(await talk.append("user", "Two.", metadata={"n": 2}))
        async with transports.open_connection(postgres_database, administrator=True) as connection:
            await connection.execute(
                "INSERT INTO palaver.turn_metadata SELECT tenant, cid, 'n', palaver.metadata_value('2'), tid "
                "FROM palaver.turns WHERE status = 'forgotten'"
            )
            await connection.execute(
                "INSERT INTO palaver.conversation_metadata SELECT tenant, cid, 'old', palaver.metadata_value('1') "
                "FROM palaver.conversations"
            )
            await online_steps.run(connection, [step])
            assert await connection.fetchval("SELECT count(*) FROM palaver.turn_metadata") == 1
            assert await connection.fetchval("SELECT count(*) FROM palaver.conversation_metadata") == 1
        assert [one.id for one in await talk.history(where={"metadata": {"n": 1}})] == [kept.id]


def dumped(url: str, *options: str) -> subprocess.CompletedProcess[str]:
    program = postgres_server.programs() / "pg_dump"
    if not program.exists():
        pytest.skip("this Postgres has no pg_dump")
    return subprocess.run([program, *options, url], capture_output=True, text=True, check=False)


NOT_FORCED = """
DO $$ DECLARE name text; BEGIN
  FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'palaver' LOOP
    EXECUTE format('ALTER TABLE palaver.%I {} ROW LEVEL SECURITY', name);
  END LOOP;
END $$
"""


@pytest.mark.process
async def test_who_may_dump_is_as_documented(own_server: Server, tmp_path: Path) -> None:
    """The administrator who migrated may not, unless row level security is not forced; a role with BYPASSRLS may."""
    async with an_administrator(own_server) as (_, url):
        async with transports.open_connection(url, administrator=True) as connection:
            await migrate.migrate(connection)
        refused = await asyncio.to_thread(dumped, url, "--schema=palaver")
        assert refused.returncode != 0
        assert "row-level security" in refused.stderr
        await postgres_server.execute(url, NOT_FORCED.format("NO FORCE"))
        assert (await asyncio.to_thread(dumped, url, "--schema=palaver")).returncode == 0
        await postgres_server.execute(url, NOT_FORCED.format("FORCE"))
        bypassing = "CREATE ROLE dumper LOGIN PASSWORD 'x' BYPASSRLS IN ROLE pg_read_all_data"
        await postgres_server.execute(own_server.url, bypassing)
        database = urlsplit(url).path[1:]
        assert (await asyncio.to_thread(dumped, own_server.at(database, "dumper", "x"))).returncode == 0
        await postgres_server.execute(own_server.url, "DROP ROLE dumper")
