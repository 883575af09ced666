"""Rules for every table, index, policy and function of the schema, checked in the catalogue."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import palaver
from palaver.conversations.internals import engine_of
from palaver.engines.postgres import migrate, transports
from palaver.errors import DatabaseTooNew, SchemaMissing
from tests.support import postgres_server

# It cannot begin with the tenant, and no result depends on it (see the migration).
NEAREST = "embeddings_nearest_384"


@pytest.fixture
async def catalogue(postgres_database: str) -> AsyncIterator[Any]:
    async with transports.open_connection(postgres_database) as connection:
        yield connection


async def names(catalogue: Any, query: str) -> list[str]:
    return sorted(row[0] for row in await catalogue.fetch(query))


async def test_the_tenant_leads_every_key_and_every_index(catalogue: Any) -> None:
    found = await names(
        catalogue,
        """SELECT i.indexrelid::regclass::text FROM pg_index i JOIN pg_class t ON t.oid = i.indrelid
        LEFT JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = i.indkey[0]
        WHERE t.relnamespace = 'palaver'::regnamespace AND a.attname IS DISTINCT FROM 'tenant'""",
    )
    assert found == [f"palaver.{NEAREST}"]


async def test_the_tenant_leads_every_foreign_key_on_both_sides(catalogue: Any) -> None:
    found = await names(
        catalogue,
        """SELECT c.conrelid::regclass || '.' || c.conname FROM pg_constraint c
        JOIN pg_attribute here ON here.attrelid = c.conrelid AND here.attnum = c.conkey[1]
        JOIN pg_attribute there ON there.attrelid = c.confrelid AND there.attnum = c.confkey[1]
        WHERE c.contype = 'f' AND c.connamespace = 'palaver'::regnamespace
        AND (here.attname <> 'tenant' OR there.attname <> 'tenant')""",
    )
    assert found == []
    assert await catalogue.fetchval("SELECT count(*) FROM pg_constraint WHERE contype = 'f'") > 5


async def test_row_level_security_is_on_and_forced_on_every_table(catalogue: Any) -> None:
    found = await names(
        catalogue,
        """SELECT relname FROM pg_class WHERE relnamespace = 'palaver'::regnamespace AND relkind IN ('r', 'p')
        AND NOT (relrowsecurity AND relforcerowsecurity)""",
    )
    assert found == []


async def test_every_policy_names_its_role(catalogue: Any) -> None:
    roles = await names(catalogue, "SELECT DISTINCT unnest(roles) FROM pg_policies WHERE schemaname = 'palaver'")
    assert set(roles) <= {"palaver_app", "authenticated", "palaver_worker", "palaver_index", "palaver_eraser"}


async def test_the_worker_and_the_index_see_what_holds_no_content_or_says_only_numbers(catalogue: Any) -> None:
    found = await catalogue.fetch(
        """SELECT roles[1], tablename FROM pg_policies WHERE schemaname = 'palaver'
        AND roles && '{palaver_worker,palaver_index}'::name[]"""
    )
    # Where there are callers with tokens, the index reads which conversations they may see: see below for the columns.
    assert {tuple(row) for row in found} - {("palaver_index", "conversations")} == {
        ("palaver_worker", "jobs"),
        ("palaver_worker", "streams"),
        ("palaver_worker", "doomed_blobs"),
        ("palaver_worker", "conversations"),
        ("palaver_worker", "api_keys"),
        ("palaver_index", "passages"),
        ("palaver_index", "turns"),
        ("palaver_index", "embeddings"),
        ("palaver_index", "marks"),
    }
    seen = await names(
        catalogue,
        """SELECT column_name FROM information_schema.column_privileges
        WHERE grantee = 'palaver_index' AND table_name = 'conversations'""",
    )
    assert set(seen) <= {"cid", "members", "owner", "tenant", "workspace"}
    columns = await names(
        catalogue,
        """SELECT table_name || '.' || column_name FROM information_schema.column_privileges
        WHERE grantee = 'palaver_worker' AND table_name NOT IN ('jobs', 'streams', 'table_sizes', 'tenant_work')""",
    )
    # A path contains a user's name and a file name.
    assert columns == ["api_keys.expires_at", "api_keys.revoked_at", "conversations.tenant", "doomed_blobs.tenant"]
    of_turns = await names(
        catalogue,
        """SELECT column_name FROM information_schema.column_privileges
        WHERE grantee = 'palaver_index' AND table_name = 'turns' ORDER BY 1""",
    )
    assert of_turns == "active actor cid created position role status tenant tid token_count".split()


async def test_the_eraser_can_read_no_word_and_write_nothing_but_emptiness(catalogue: Any) -> None:
    granted = await catalogue.fetch(
        """SELECT privilege_type, table_name, string_agg(column_name, ',' ORDER BY column_name)
        FROM information_schema.column_privileges WHERE grantee = 'palaver_eraser' GROUP BY 1, 2"""
    )
    assert {tuple(row) for row in granted} == {
        ("SELECT", "turns", "active,cid,id,seq,status,tenant"),
        ("SELECT", "items", "cid,id,origin,tenant"),
        ("SELECT", "item_sources", "cid,item,source_cid,tenant,turn"),
        ("SELECT", "requests", "cid,id,rid,tenant"),
        ("UPDATE", "requests", "body"),
        ("SELECT", "proofs", "cid,key,tenant"),
        ("SELECT", "request_quotes", "cid,quoted_cid,rid,tenant,turn"),
    }
    written = await catalogue.fetch(
        """SELECT tablename, cmd, with_check FROM pg_policies
        WHERE schemaname = 'palaver' AND roles = '{palaver_eraser}'::name[]"""
    )
    assert {tuple(row) for row in written} == {
        ("turns", "SELECT", None),
        ("requests", "ALL", "(body IS NULL)"),
        ("request_quotes", "ALL", "false"),
        ("proofs", "ALL", "false"),
        ("items", "ALL", "false"),
        ("item_sources", "ALL", "false"),
    }


async def test_every_function_pins_its_search_path(catalogue: Any) -> None:
    found = await names(
        catalogue,
        """SELECT oid::regprocedure::text FROM pg_proc
        WHERE pronamespace IN ('palaver'::regnamespace, 'palaver_api'::regnamespace)
        AND prosqlbody IS NULL  -- its names were looked up when it was made
        AND NOT coalesce(array_to_string(proconfig, ',') LIKE '%search_path=%', false)""",
    )
    assert found == []


async def test_functions_run_with_the_rights_of_their_caller(catalogue: Any) -> None:
    found = await names(
        catalogue,
        """SELECT p.oid::regprocedure || ' of ' || r.rolname FROM pg_proc p JOIN pg_roles r ON r.oid = p.proowner
        WHERE p.pronamespace IN ('palaver'::regnamespace, 'palaver_api'::regnamespace) AND p.prosecdef""",
    )
    assert {one.rpartition(" of ")[2] for one in found} == {"palaver_index", "palaver_eraser"}
    erasers = ["palaver.unlearn(bigint,text[]) of palaver_eraser", "palaver.unquote(bigint,text[]) of palaver_eraser"]
    assert sorted(one for one in found if one.endswith("eraser")) == erasers
    assert not [one for one in found if one.startswith("palaver_api.")]


async def test_the_application_owns_nothing(catalogue: Any) -> None:
    found = await names(
        catalogue,
        """SELECT relname FROM pg_class WHERE relowner IN (SELECT oid FROM pg_roles WHERE rolname LIKE 'palaver%')""",
    )
    assert found == []
    weak = await names(
        catalogue,
        """SELECT rolname FROM pg_roles WHERE rolname LIKE 'palaver_%'
        AND (rolsuper OR rolbypassrls OR rolcreaterole)""",
    )
    assert weak == []


async def test_the_public_may_do_nothing(catalogue: Any) -> None:
    found = await names(
        catalogue,
        """SELECT p.oid::regprocedure::text
        FROM pg_proc p, aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) a
        WHERE p.pronamespace IN ('palaver'::regnamespace, 'palaver_api'::regnamespace) AND a.grantee = 0""",
    )
    assert sorted(found) == ["palaver.schema_number()", "palaver.schema_version()"]
    tables = await names(
        catalogue,
        """SELECT c.relname FROM pg_class c, aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) a
        WHERE c.relnamespace = 'palaver'::regnamespace AND c.relkind = 'r' AND a.grantee = 0""",
    )
    assert tables == []


def test_every_file_of_functions_is_loaded() -> None:
    folder = Path(migrate.__file__).parent / "functions"
    assert sorted(file.stem for file in folder.glob("*.sql")) == sorted(migrate.FUNCTIONS)


# ---- migrating -----------------------------------------------------------------------------------------------------


async def test_a_database_without_the_schema_is_refused_and_the_cure_is_named(empty_database: str) -> None:
    with pytest.raises(SchemaMissing, match="palaver migrate"):
        async with palaver.open(empty_database):
            pass


async def test_migrate_url_makes_the_schema_at_open(empty_database: str) -> None:
    async with palaver.open(empty_database, migrate_url=empty_database) as store:
        assert (await (await store.conversation("k")).append("user", "hello")).seq == 0


async def test_a_schema_is_seen_by_a_transaction_that_waited_for_it(empty_database: str) -> None:
    """In a transaction, Postgres may keep names in its cache that were not found at first."""
    opened = transports.open_connection
    async with opened(empty_database) as other, opened(empty_database) as waits, waits.transaction():
        assert (await migrate.read_version(waits)).number == 0
        await other.execute("CREATE SCHEMA palaver")
        await other.execute("CREATE FUNCTION palaver.schema_version() RETURNS integer LANGUAGE sql RETURN 7")
        assert (await migrate.read_version(waits)).number == 7


async def test_many_may_migrate_at_once(empty_database: str) -> None:
    async def one() -> tuple[int, int]:
        async with transports.open_connection(empty_database) as connection:
            return await migrate.migrate(connection)

    known = migrate.known_version()
    assert sorted(await asyncio.gather(*(one() for _ in range(6)))) == [(0, known)] + [(known, known)] * 5


async def says(database: str, *, schema: int, oldest_code: int) -> None:
    """Let a database say that it has another schema, as a later version would leave it."""
    for name, number in (("schema_number", schema), ("schema_version", oldest_code)):
        sql = f"CREATE OR REPLACE FUNCTION palaver.{name}() RETURNS integer LANGUAGE sql IMMUTABLE RETURN {number}"
        await postgres_server.execute(database, sql)


async def test_a_newer_schema_that_does_not_serve_this_code_is_refused(postgres_database: str) -> None:
    newer = migrate.known_version() + 1
    await says(postgres_database, schema=newer, oldest_code=newer)
    with pytest.raises(DatabaseTooNew) as problem:
        async with palaver.open(postgres_server.as_application(postgres_database)):
            pass
    assert problem.value.found == newer
    async with transports.open_connection(postgres_database) as connection:
        with pytest.raises(DatabaseTooNew):
            await migrate.migrate(connection)


async def test_a_newer_schema_that_serves_this_code_is_used(postgres_database: str, postgres_url: str) -> None:
    newer = migrate.known_version() + 1
    await says(postgres_database, schema=newer, oldest_code=migrate.known_version())
    async with palaver.open(postgres_url, migrate_url=postgres_database) as store:
        assert (await (await store.conversation("k")).append("user", "hello")).seq == 0
        health = await engine_of(store).health()
        assert (health.schema, health.schema_known, health.compatible) == (newer, newer - 1, True)
        await says(postgres_database, schema=newer, oldest_code=newer)
        assert not (await engine_of(store).health()).compatible
    async with transports.open_connection(postgres_database) as connection:
        assert (await migrate.read_version(connection)).number == newer, "an earlier version changes nothing"


async def test_an_older_schema_says_what_to_run(postgres_database: str, postgres_url: str) -> None:
    old = migrate.OLDEST_SCHEMA - 1
    await says(postgres_database, schema=old, oldest_code=migrate.OLDEST_CODE)
    with pytest.raises(SchemaMissing, match=f"schema {old}.*palaver migrate"):
        async with palaver.open(postgres_url):
            pass


async def test_what_is_printed_can_be_pasted(empty_database: str) -> None:
    connection = await asyncpg.connect(empty_database)
    try:
        await connection.execute(migrate.editor_script())
    finally:
        await connection.close()
    async with palaver.open(empty_database) as store:
        await store.conversation("k")


async def test_a_login_that_is_not_a_member_is_told_of_which_role(postgres_database: str) -> None:
    await postgres_server.execute(
        postgres_database,
        "DO $$ BEGIN CREATE ROLE palaver_stranger LOGIN PASSWORD 'x'; EXCEPTION WHEN OTHERS THEN NULL; END $$",
    )
    stranger = postgres_server.at(postgres_database, postgres_database.rpartition("/")[2], "palaver_stranger", "x")
    with pytest.raises(palaver.PalaverError, match="palaver_app"):
        async with palaver.open(stranger):
            pass


def test_tables_are_not_joined_with_the_tenant_of_a_function_s_result() -> None:
    """Citus finds the shard of a table by a variable: `f.tenant = me.tenant`."""
    joined = re.compile(r"(?:looked_at|held|find|tail)\([^)]*\) AS (\w+)\s+JOIN \w+ (\w+) ON \2\.tenant = \1\.tenant")
    assert [found[0] for text in migrate._functions() for found in joined.finditer(text)] == []


def test_functions_insert_as_citus_takes_it() -> None:
    """Only `make citus` runs them there. Values are variables: neither a sub-select nor all columns of a row."""
    insert = re.compile(r"INSERT INTO \w+[^;]*?\bVALUES\b([^;]*?)(?:ON CONFLICT|RETURNING|;)")
    for text in migrate._functions():
        for found in insert.finditer(re.sub(r"--[^\n]*", "", text)):
            assert "SELECT" not in found[1], found[0]
            assert ".*" not in found[1], found[0]
