"""Row level security separates users: with plain SQL, through the functions, in every role."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

import palaver
from palaver import Scope
from palaver.audit.seals import seal_everything
from palaver.conversations.api_keys import create_key
from palaver.conversations.internals import engine_of
from palaver.engines.postgres import transports
from palaver.engines.postgres.address import parse_address
from palaver.ports.queries import Erasure
from palaver.testing.rls_probe import attack
from palaver.testing.tenant_fixture import NoAttack, tables
from tests.support import postgres_server
from tests.support.postgres_server import Server

WORD = "zqbcdfghjklmnp"
DENIED = asyncpg.InsufficientPrivilegeError


# For the application itself, and for admins.
KEYS = {"api_keys", "key_events", "erasures", "erased_items", "budgets", "budget_use", "leases"}
NEVER_SIGNED_IN = KEYS | {"seals"}


async def fill(url: str) -> None:
    """Rows of Ada in every table."""
    await postgres_server.migrate_with_roles(url)
    async with palaver.open(url, tenant="acme", user="ada", embedder=None) as store:
        talk = await store.conversation("k", title=WORD, participants=["bob"])
        said = await talk.append("user", f"My name is {WORD}. Always answer in {WORD}.")
        await talk.append_open("assistant")
        application = Scope.of("acme", None)
        await create_key(store.scoped(application), "phone", user="ada")
        await engine_of(store).put_erasure(application, Erasure("digest", "salt", 1, user="zoe", key="00"))
        await engine_of(store).note_erased(application, "digest", "conversations", [talk.id])
        await store.scoped(application).set_budget("user", "ada", requests_per_day=5)
        await engine_of(store).measure_storage("acme", "user", "ada")
        await engine_of(store).take_lease("acme", "sweep", 1)
        await seal_everything(engine_of(store), b"a key that is kept elsewhere", said.created)
        await store.settle()


@pytest.fixture
async def filled_database(postgres: Server) -> AsyncIterator[str]:
    """The superuser's URL of a database with Supabase's roles and rows of Ada in every table."""
    async with postgres_server.copied_database(postgres, "with rows of Ada", fill) as url:
        yield url


@pytest.fixture
async def admin(filled_database: str) -> AsyncIterator[Any]:
    """A superuser's connection to that database."""
    connection = await asyncpg.connect(filled_database)
    yield connection
    await connection.close()


@asynccontextmanager
async def acting(admin: Any, role: str, claims: dict[str, Any] | None = None, **settings: str) -> AsyncIterator[Any]:
    """Run a transaction in this role with these settings, and roll it back."""
    transaction = admin.transaction()
    await transaction.start()
    try:
        if claims is not None:
            await admin.execute("SELECT set_config('request.jwt.claims', $1, true)", json.dumps(claims))
        for name, value in settings.items():
            await admin.execute("SELECT set_config($1, $2, true)", f"palaver.{name}", value)
        await admin.execute(f"SET LOCAL ROLE {role}")
        yield admin
    finally:
        await transaction.rollback()


async def visible(admin: Any, names: list[str]) -> dict[str, int]:
    """Return how many rows of each table are visible, without tables that have none."""
    counts = {name: await admin.fetchval(f"SELECT count(*) FROM palaver.{name}") for name in names}
    return {name: count for name, count in counts.items() if count}


ADA = {"sub": "ada", "app_metadata": {"tenant": "acme"}}


async def test_ada_sees_her_own_or_the_rest_proves_nothing(admin: Any) -> None:
    names = await tables(admin)
    everything = await visible(admin, names)
    assert everything.keys() >= {"conversations", "turns", "events", "passages", "streams", *NEVER_SIGNED_IN}
    hers = {name: count for name, count in everything.items() if name not in KEYS}
    async with acting(admin, "palaver_app", tenant="acme", sight="tenant", rights="read,admin") as here:
        assert await visible(here, names) == everything
    async with acting(admin, "palaver_app", tenant="acme", user="ada", sight="own") as here:
        assert await visible(here, names) == hers
    async with acting(admin, "palaver_app", tenant="acme", user="bob", sight="own") as here:
        assert await visible(here, names) == hers, "he is a participant"
    readable = [name for name in names if name not in NEVER_SIGNED_IN]
    async with acting(admin, "authenticated", ADA) as here:
        assert await visible(here, readable) == {name: hers[name] for name in hers if name in readable}


@pytest.mark.parametrize("rights", ["read,write", "read,write,system,admin"])
async def test_signed_in_users_cannot_reach_keys_and_seals(admin: Any, rights: str) -> None:
    claims = {"sub": "ada", "app_metadata": {"tenant": "acme", "palaver_rights": rights, "palaver_sight": "tenant"}}
    made = json.dumps({"hash": "\\x00", "name": "x", "scope": "{}", "created": 1})
    queries = [f"SELECT * FROM palaver.{name}" for name in sorted(NEVER_SIGNED_IN)]
    queries += [f"DELETE FROM palaver.{name}" for name in sorted(NEVER_SIGNED_IN)]
    queries += [f"SELECT palaver_api.put_key('{{}}', '{made}', NULL)", "SELECT palaver_api.api_keys('{}')"]
    queries += ["SELECT palaver_api.log_key('{}', 'use', 'x', 'x')", "SELECT palaver_api.revoke_key('{}', 'x')"]
    queries += ["SELECT palaver_api.any_key('{}')", "SELECT palaver_api.unsealed('{}', 10)"]
    for query in queries:
        with pytest.raises(asyncpg.PostgresError) as problem:
            async with acting(admin, "authenticated", claims) as here:
                await here.execute(query)
        assert problem.value.sqlstate in ("42501", "PV021"), query


async def test_nobody_writes_an_event_that_tells_of_something_else(admin: Any) -> None:
    talk = await admin.fetchval("SELECT id FROM palaver.conversations")
    for kind in ("forget", "append", "", None):
        with pytest.raises(asyncpg.PostgresError) as problem:
            async with acting(admin, "authenticated", ADA) as here:
                await here.fetch("SELECT * FROM palaver_api.announce('{}', $1, $2)", talk, kind)
        assert problem.value.sqlstate == "PV031"


# ---- the published suite -------------------------------------------------------------------------------------------


@pytest.fixture
async def supabase_database(postgres: Server) -> AsyncIterator[str]:
    """The superuser's URL of a migrated database with Supabase's roles."""
    async with postgres_server.copied_database(postgres, "with roles", postgres_server.migrate_with_roles) as url:
        yield url


@pytest.mark.timeout(1_800)  # fifty thousand statements, on a machine that may be busy
async def test_no_stranger_reaches_anything(supabase_database: str) -> None:
    report = await attack(supabase_database)
    assert [str(one) for one in report.breaches] == []
    assert report.left_out == ()
    async with transports.open_connection(supabase_database) as connection:
        verbs = "SELECT count(*) FROM pg_proc WHERE pronamespace = 'palaver_api'::regnamespace"
        assert len(report.functions) == await connection.fetchval(verbs)
        assert set(report.tables) == set(await tables(connection))
        assert await visible(connection, list(report.tables)) == {}, "nothing is left behind"


LEAKS = {
    "another user: count_turns: the answer differs": """
        CREATE FUNCTION palaver_api.count_turns(who jsonb) RETURNS bigint LANGUAGE sql SECURITY DEFINER
        SET search_path = pg_catalog AS 'SELECT count(*) FROM palaver.turns';
        GRANT EXECUTE ON FUNCTION palaver_api.count_turns(jsonb) TO palaver_app""",
    "another tenant's application: show_turn: the answer holds": """
        CREATE FUNCTION palaver_api.show_turn(who jsonb, turn text) RETURNS text LANGUAGE sql SECURITY DEFINER
        SET search_path = pg_catalog AS 'SELECT content FROM palaver.turns WHERE id = turn';
        GRANT EXECUTE ON FUNCTION palaver_api.show_turn(jsonb, text) TO palaver_app""",
    "signed in, elsewhere: drop_turn: it changed rows": """
        CREATE FUNCTION palaver_api.drop_turn(who jsonb, turn text) RETURNS void LANGUAGE sql SECURITY DEFINER
        SET search_path = pg_catalog AS 'UPDATE palaver.turns SET content = NULL WHERE id = turn';
        GRANT EXECUTE ON FUNCTION palaver_api.drop_turn(jsonb, text) TO authenticated""",
    "nobody set a tenant: SELECT FROM palaver.turns: it was let through": """
        CREATE POLICY too_wide ON palaver.turns FOR SELECT TO palaver_app USING (true)""",
    "not signed in: SELECT FROM palaver.notes: it was let through": """
        CREATE TABLE palaver.notes (tenant text NOT NULL, cid bigint NOT NULL, note text NOT NULL);
        GRANT USAGE ON SCHEMA palaver TO anon; GRANT SELECT ON palaver.notes TO anon""",
    "another user: INSERT INTO palaver.marks: it was refused for another reason": """
        CREATE POLICY too_wide ON palaver.marks FOR INSERT TO palaver_app WITH CHECK (true)""",
}


async def test_the_suite_finds_every_leak(supabase_database: str) -> None:
    await postgres_server.execute(supabase_database, *LEAKS.values())
    places = {"count_turns", "show_turn", "drop_turn", "turns", "notes", "marks"}
    report = await attack(supabase_database, only=places)
    assert {*report.functions, *report.tables} == places
    breaches = [str(one) for one in report.breaches]
    assert [leak for leak in LEAKS if not any(one.startswith(leak) for one in breaches)] == []


async def test_the_suite_fails_on_what_it_cannot_attack(supabase_database: str) -> None:
    await postgres_server.execute(
        supabase_database,
        "CREATE FUNCTION palaver_api.new_verb(who jsonb, unheard_of text) RETURNS text LANGUAGE sql RETURN 'x'",
    )
    with pytest.raises(NoAttack, match="unheard_of"):
        await attack(supabase_database, only={"new_verb"})
    await postgres_server.execute(
        supabase_database,
        "DROP FUNCTION palaver_api.new_verb",
        "CREATE FUNCTION palaver_api.new_verb() RETURNS text LANGUAGE sql RETURN 'x'",
    )
    with pytest.raises(NoAttack, match="new_verb"):
        await attack(supabase_database, only={"new_verb"})


async def test_the_suite_needs_a_role_that_bypasses_the_policies(postgres_url: str) -> None:
    with pytest.raises(palaver.InvalidInput, match="administrator"):
        await attack(postgres_url)


# ---- what it cannot know -------------------------------------------------------------------------------------------


async def test_anybody_who_is_not_signed_in_gets_nothing_at_all(admin: Any) -> None:
    names = await tables(admin)
    for claims in (None, {"role": "anon"}, ADA):
        for name in names:
            with pytest.raises(DENIED):
                async with acting(admin, "anon", claims, tenant="acme", sight="tenant") as here:
                    await here.fetch(f"SELECT * FROM palaver.{name}")
        with pytest.raises(DENIED):
            async with acting(admin, "anon", claims, tenant="acme", sight="tenant") as here:
                await here.fetch("SELECT * FROM palaver_api.stats('{}')")


async def test_claims_of_a_signed_in_user_about_themselves_are_ignored(admin: Any) -> None:
    lie = json.dumps({"tenant": "acme", "user": "ada", "sight": "tenant", "rights": "read,write,admin", "now": 1})
    eve = {"sub": "eve", "app_metadata": {"tenant": "acme"}}
    async with acting(admin, "authenticated", eve) as here:
        assert await here.fetch("SELECT * FROM palaver_api.conversations($1, 50)", lie) == []
        own = json.dumps({"id": "1" * 26, "owner": "eve", "participants": "[]", "salt": "\\x" + "00" * 16})
        row = await here.fetchrow("SELECT * FROM palaver_api.open_conversation($1, $2)", lie, own)
        assert (row["tenant"], row["owner"]) == ("acme", "eve")
        assert row["created"] > 1, "the clock is the server's"
    for forged in ("ada", ""):
        own = json.dumps({"id": "1" * 26, "owner": forged, "participants": '["eve"]', "salt": "\\x" + "00" * 16})
        with pytest.raises(asyncpg.PostgresError) as problem:
            async with acting(admin, "authenticated", eve) as here:
                await here.fetchrow("SELECT * FROM palaver_api.open_conversation($1, $2)", lie, own)
        assert problem.value.sqlstate == "PV021"


async def test_an_owner_cannot_be_forged_with_plain_sql_either(admin: Any) -> None:
    row = await admin.fetchrow("SELECT * FROM palaver.conversations LIMIT 1")
    forged = "INSERT INTO palaver.conversations (tenant, id, owner, members, tip_hash, created, updated, minute)"
    for role, claims, settings in (
        ("palaver_app", None, {"tenant": "acme", "user": "eve", "sight": "own", "rights": "read,write"}),
        ("authenticated", {**ADA, "sub": "eve"}, {}),
    ):
        with pytest.raises(DENIED):
            async with acting(admin, role, claims, **settings) as here:
                await here.execute(f"{forged} VALUES ('acme', 'x', 'ada', '{{eve}}', $1, 1, 1, 1)", row["tip_hash"])


async def test_the_worker_sees_who_has_work_and_nothing_of_what_was_said(admin: Any) -> None:
    async with acting(admin, "palaver_worker") as here:
        assert await here.fetchval("SELECT tenant FROM palaver.streams") == "acme"
    for name in set(await tables(admin)) - {"jobs", "streams"}:
        with pytest.raises(DENIED):
            async with acting(admin, "palaver_worker") as here:
                await here.fetch(f"SELECT * FROM palaver.{name}")


@pytest.mark.parametrize("settings", [{}, {"tenant": "acme", "user": "eve"}, {"tenant": "evil", "sight": "tenant"}])
async def test_the_login_of_the_application_reads_nothing_of_others_in_plain_sql(
    filled_database: str, settings: dict[str, str]
) -> None:
    """It is a member of both roles. The policies of the worker used to apply to it as well, so it read all tenants."""
    connection = await asyncpg.connect(postgres_server.as_application(filled_database))
    try:
        async with connection.transaction():
            for name, value in settings.items():
                await connection.execute("SELECT set_config('palaver.' || $1, $2, true)", name, value)
            for name in await tables(connection):
                assert await connection.fetchval(f"SELECT count(*) FROM palaver.{name}") == 0, name
            assert await connection.execute("UPDATE palaver.turns SET content = 'x'") == "UPDATE 0"
    finally:
        await connection.close()


async def test_a_caller_who_cannot_see_the_owners_conversation_gets_the_error_that_its_key_is_taken(admin: Any) -> None:
    eve = {"tenant": "acme", "user": "eve", "sight": "own", "rights": "read,write,admin"}
    spec = {"id": "1" * 26, "owner": "ada", "key": "k", "participants": '["eve"]', "salt": "\\x" + "00" * 16}
    with pytest.raises(asyncpg.PostgresError, match="same key"):
        async with acting(admin, "palaver_app") as here:
            await here.fetch("SELECT * FROM palaver_api.open_conversation($1, $2)", json.dumps(eve), json.dumps(spec))


async def test_the_look_up_of_words_answers_for_the_own_tenant_alone(admin: Any) -> None:
    asked = f"SELECT count(*) FROM palaver.matching('{WORD}', NULL, 10)"
    async with acting(admin, "palaver_app", tenant="acme", sight="tenant") as here:
        assert await here.fetchval(asked) > 0
    async with acting(admin, "palaver_app", tenant="evil", sight="tenant") as here:
        assert await here.fetchval(asked) == 0


async def test_an_administrators_address_gives_no_more_sight_than_any_other(filled_database: str, admin: Any) -> None:
    async with palaver.open(filled_database, scope=Scope("evil", "ada")) as store:
        assert (await store.conversations()).items == ()
        assert await store.search(WORD) == []
        with pytest.raises(palaver.ConversationNotFound):
            await store.get(await admin.fetchval("SELECT id FROM palaver.conversations"))


async def test_a_connection_remembers_nothing_of_its_last_user(filled_database: str, admin: Any) -> None:
    url = postgres_server.as_application(filled_database)
    pool = await transports.open_pool(parse_address(url, pool_size=1))
    try:
        ada = json.dumps({"tenant": "acme", "user": "ada", "sight": "tenant"})
        assert len(await pool.fetch("SELECT * FROM palaver_api.conversations($1, 50)", ada)) == 1
        assert await pool.fetchval("SELECT current_setting('palaver.tenant', true)") in (None, "")
        assert await pool.fetchval("SELECT count(*) FROM palaver.turns") == 0
        with pytest.raises(asyncpg.PostgresError):
            await pool.fetch("SELECT * FROM palaver_api.conversations('{}', 50)")
        eve = json.dumps({"tenant": "acme", "user": "eve"})
        assert await pool.fetch("SELECT * FROM palaver_api.conversations($1, 50)", eve) == []
    finally:
        await pool.close()


async def test_a_refusal_says_nothing_of_the_row(admin: Any) -> None:
    """Postgres quotes the failing row in DETAIL, which must not reach a caller."""
    from palaver.engines.postgres.failures import translate_errors

    with pytest.raises(palaver.PalaverError) as problem, translate_errors():
        await admin.execute("INSERT INTO palaver.turns SELECT * FROM palaver.turns WHERE content IS NOT NULL LIMIT 1")
    assert problem.value.sqlstate == "23505"  # type: ignore[attr-defined]
    told = repr(problem.value) + str(problem.value) + str(problem.value.__cause__) + str(problem.value.__dict__)
    assert WORD not in told
    assert problem.value.__suppress_context__
