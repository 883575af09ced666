"""`palaver migrate` with `--compat`, `--anon-tenant` and `--distribute`: effects, output and errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import pytest
from typer.testing import CliRunner, Result

import palaver
from palaver.cli import app
from palaver.engines.postgres import compat, migrate
from tests.engines.postgres.compat.conftest import SUPABASE_ROLES, application
from tests.support import postgres_server
from tests.support.postgres_server import Server, migrate_for_tests

SESSION = "6f1c3a52-3c9e-4a56-9f0e-1d2c3b4a5968"


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("PALAVER_URL", "PALAVER_TENANT", "PALAVER_USER"):
        monkeypatch.delenv(name, raising=False)
    return


async def run(*args: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, app, list(args))


async def fetch(url: str, sql: str, *args: Any) -> list[asyncpg.Record]:
    connection = await asyncpg.connect(url)
    try:
        return await connection.fetch(sql, *args)
    finally:
        await connection.close()


# ---- compat --------------------------------------------------------------------------------------------------------


async def test_one_command_makes_schema_and_tables(empty_database: str) -> None:
    done = await run("migrate", "--db", empty_database, "--compat", "hal", "--compat", "librarian", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["from"], told["compat"]) == (None, ["hal", "librarian"])
    for table in (*compat.TABLES["hal"], *compat.TABLES["librarian"]):
        assert await fetch(empty_database, f"SELECT * FROM public.{table}") == []
    again = await run("migrate", "--db", empty_database, "--compat", "librarian")
    assert again.exit_code == 0
    assert "with the tables of librarian" in again.stdout


async def test_what_is_printed_can_be_pasted(postgres_database: str) -> None:
    done = await run("migrate", "--sql", "--compat", "hal", "--compat", "librarian")
    await postgres_server.execute(postgres_database, done.stdout, done.stdout)
    assert await fetch(postgres_database, "SELECT * FROM public.conversation_messages") == []
    assert "CREATE TABLE palaver.conversations" not in done.stdout


@pytest.fixture
async def made_by_an_owner(postgres: Server) -> AsyncIterator[str]:
    """The URL of a database whose owner is not a superuser, so that policies apply to the owner too."""
    name = await postgres_server.new_database(postgres)
    with postgres_server.in_turn("owner"):
        await postgres_server.execute(postgres.at(await _any_migrated(postgres)), OWNER)
        await postgres_server.execute(
            postgres.at(name),
            f"ALTER DATABASE {name} OWNER TO palaver_owner",
            "CREATE SCHEMA extensions AUTHORIZATION palaver_owner",
            "CREATE EXTENSION vector WITH SCHEMA extensions",  # only superusers may create this build of the extension
        )
    yield postgres.at(name, "palaver_owner", "not a secret")
    await postgres_server.drop_database(postgres, name)


async def _any_migrated(server: Server) -> str:
    """Migrate a database, so that Palaver's roles and the login of the tests exist on the server."""
    return await postgres_server.migrated_template(server, "palaver", migrate_for_tests)


OWNER = """
DO $$ BEGIN
  CREATE ROLE palaver_owner LOGIN PASSWORD 'not a secret';
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
END $$;
GRANT palaver_app, palaver_worker, palaver_index, palaver_eraser TO palaver_owner WITH ADMIN OPTION;
"""


AUTHENTICATOR = """
DO $$ BEGIN
  CREATE ROLE authenticator LOGIN NOINHERIT PASSWORD 'not a secret';
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
END $$;
GRANT palaver_app, palaver_worker TO authenticator;
REVOKE ADMIN OPTION FOR palaver_app, palaver_worker FROM palaver_owner;
"""


async def test_what_another_database_has_granted_already_is_not_asked_for_again(
    postgres: Server, made_by_an_owner: str
) -> None:
    """Roles belong to the whole server: a login that may not grant them can still create the schema."""
    with postgres_server.in_turn("owner"):
        await postgres_server.execute(postgres.url, AUTHENTICATOR)
        owner = await asyncpg.connect(made_by_an_owner)
        await migrate.migrate(owner)
        assert await owner.fetchval("SELECT palaver.schema_number()") == migrate.known_version()
        await owner.close()


async def test_conversations_that_are_there_already_are_rows(made_by_an_owner: str) -> None:
    postgres_url = postgres_server.as_application(made_by_an_owner)
    owner = await asyncpg.connect(made_by_an_owner)
    await migrate.migrate(owner)
    await owner.close()
    async with palaver.open(postgres_url, tenant="acme", worker=False) as store:
        talk = await store.conversation("shop/standup")
        await talk.append_many([{"role": "user", "content": f"say {n}"} for n in range(60)])
        await talk.remember("goals", "Sell tea")
        await (await store.conversation(SESSION)).append("user", "Hello")
        await store.settle()
        summaries = await talk.summaries()
    connection = await asyncpg.connect(made_by_an_owner)
    await compat.apply(connection, ["hal", "librarian"])
    await compat.apply(connection, ["hal", "librarian"])
    await connection.close()
    connection = await asyncpg.connect(postgres_url)
    async with connection.transaction():
        for name, value in application("acme").items():
            await connection.execute("SELECT set_config($1, $2, true)", name, value)
        assert await connection.fetchval("SELECT count(*) FROM hal_conversation_messages") == 60
        summary = await connection.fetchrow("SELECT * FROM hal_conversation_summaries")
        assert summary["through_sequence"] == max(one.through_seq for one in summaries)
        memory = await connection.fetchrow("SELECT * FROM hal_conversation_working_memory")
        assert (memory["project_id"], memory["agent"], memory["goals"]) == ("shop", "standup", ["Sell tea"])
        assert [row["content"] for row in await connection.fetch("SELECT * FROM conversation_messages")] == ["Hello"]
    await connection.close()


async def test_a_table_of_theirs_is_never_touched(postgres_database: str) -> None:
    await postgres_server.execute(
        postgres_database,
        "CREATE TABLE conversation_messages (session_id uuid, role text, content text)",
        f"INSERT INTO conversation_messages VALUES ('{SESSION}', 'user', 'old')",
    )
    done = await run("migrate", "--db", postgres_database, "--compat", "librarian")
    assert done.exit_code == 1
    assert "Rename it" in done.output
    assert "docs/how-to/tables.md" in done.output
    assert [row["content"] for row in await fetch(postgres_database, "SELECT * FROM conversation_messages")] == ["old"]
    with pytest.raises(asyncpg.RaiseError, match="is a table"):
        await postgres_server.execute(postgres_database, migrate.as_transaction(compat.script(["librarian"])))


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--compat", "hall"), "'hall' is not one of hal, librarian"),
        (("--anon-tenant", "x"), "anon-tenant: needs --compat hal or --compat librarian"),
        (("--service-tenant", "x"), "service-tenant: needs --compat hal or --compat librarian"),
        (("--distribute", "magic"), "'magic' is unknown"),
    ],
)
async def test_what_makes_no_sense_is_refused_before_anything_is_done(
    empty_database: str, args: tuple[str, ...], told: str
) -> None:
    done = await run("migrate", "--db", empty_database, *args)
    assert done.exit_code == 1
    assert told in done.output
    assert await fetch(empty_database, "SELECT 1 WHERE to_regnamespace('palaver') IS NOT NULL") == []


async def test_files_have_no_such_tables(tmp_path: Any) -> None:
    done = await run("migrate", "--db", str(tmp_path / "chat.db"), "--compat", "hal")
    assert done.exit_code == 1
    assert "must be a Postgres database" in done.output


async def test_binding_the_anonymous_role_is_warned_of(empty_database: str) -> None:
    await postgres_server.execute(empty_database, SUPABASE_ROLES)
    done = await run("migrate", "--db", empty_database, "--compat", "hal", "--anon-tenant", "kiosk")
    assert done.exit_code == 0, done.output
    assert "Anyone with the public key" in done.stderr
    (row,) = await fetch(empty_database, "SELECT (palaver.anonymous()).tenant")
    assert row["tenant"] == "kiosk"


BOUND = "SELECT (palaver.anonymous()).tenant AS anon, (palaver_compat.service()).tenant AS service"


async def test_keys_stay_bound_until_they_are_bound_to_nothing(empty_database: str) -> None:
    await postgres_server.execute(empty_database, SUPABASE_ROLES)
    command = ("migrate", "--db", empty_database, "--compat", "librarian")
    for options, anon, service in (
        (("--anon-tenant", "kiosk's", "--service-tenant", "acme"), "kiosk's", "acme"),
        ((), "kiosk's", "acme"),
        (("--service-tenant", "globex"), "kiosk's", "globex"),
        (("--anon-tenant", ""), None, "globex"),
        (("--service-tenant", ""), None, None),
    ):
        done = await run(*command, *options)
        assert done.exit_code == 0, done.output
        (row,) = await fetch(empty_database, BOUND)
        assert (row["anon"], row["service"]) == (anon, service)
        may = "SELECT has_table_privilege('anon', 'public.conversation_messages', 'SELECT')"
        assert await fetch(empty_database, may) == [(anon is not None,)]
    left = await fetch(
        empty_database,
        "SELECT 1 FROM pg_policies WHERE 'anon' = ANY (roles) UNION ALL"
        " SELECT 1 FROM pg_class WHERE relacl::text LIKE '%anon=%'"
        " AND relnamespace IN ('palaver'::regnamespace, 'palaver_compat'::regnamespace)",
    )
    assert left == []


async def test_an_upgrade_brings_them_along(empty_database: str) -> None:
    await postgres_server.execute(empty_database, SUPABASE_ROLES)
    connection = await asyncpg.connect(empty_database)
    await migrate.migrate(connection)
    await compat.apply(connection, ["hal"], compat.Bindings("kiosk", "acme"))
    grants = "SELECT has_function_privilege('anon', 'palaver_compat.append(text, palaver.turns, text)', 'EXECUTE')"
    await connection.execute("REVOKE ALL ON ALL FUNCTIONS IN SCHEMA palaver_compat FROM anon")
    assert not await connection.fetchval(grants)
    await compat.refresh(connection)
    assert await connection.fetchval(grants)
    assert await connection.fetchrow(BOUND) == ("kiosk", "acme")
    await connection.close()


async def test_every_table_has_forced_policies_and_every_view_asks_as_its_caller(empty_database: str) -> None:
    connection = await asyncpg.connect(empty_database)
    await migrate.migrate(connection)
    await compat.apply(connection, ["hal", "librarian"])
    open_tables = await connection.fetch(
        "SELECT relname FROM pg_class WHERE relnamespace = 'palaver_compat'::regnamespace AND relkind = 'r'"
        " AND NOT (relrowsecurity AND relforcerowsecurity)"
    )
    assert open_tables == []
    views = await connection.fetch(
        "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'v'"
        " AND NOT coalesce(reloptions @> '{security_invoker=true}', false)"
    )
    assert views == []
    definers = await connection.fetch(
        "SELECT proname FROM pg_proc WHERE pronamespace = 'palaver_compat'::regnamespace AND prosecdef"
    )
    assert [row["proname"] for row in definers] == ["step_aside"]
    await connection.close()


# ---- citus: what needs no cluster; the rest is in tests/engines/citus ----------------------------------------------


async def test_without_the_extension_it_is_refused_in_plain_words(postgres_database: str) -> None:
    done = await run("migrate", "--db", postgres_database, "--distribute", "citus")
    assert done.exit_code == 1
    assert "needs the extension citus" in done.output
    printed = (await run("migrate", "--sql", "--distribute", "citus")).stdout
    with pytest.raises(asyncpg.RaiseError, match="this database has no extension citus"):
        await postgres_server.execute(postgres_database, printed)
