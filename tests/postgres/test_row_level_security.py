"""The database itself keeps people apart: with plain SQL, through the verbs, as every role."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest
from tests import postgres_server

import palaver
from palaver import Scope
from palaver.engines.postgres import migrate, transports
from palaver.keys import create_key
from palaver.model import Request
from palaver.ports import CounterBound
from palaver.sealing import seal_everything

WORD = "zqbcdfghjklmnp"
SUPABASE = """
DO $$ BEGIN CREATE ROLE authenticated NOLOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$;
DO $$ BEGIN CREATE ROLE anon NOLOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$;
"""
DENIED = asyncpg.InsufficientPrivilegeError
KEYS = {"api_keys", "key_events"}  # for the application itself, and for admins
NEVER_SIGNED_IN = KEYS | {"seals"}


@pytest.fixture
async def admin(empty_database: str) -> AsyncIterator[Any]:
    """A superuser's connection to a database with everything of Ada's in it, made where Supabase's roles are known."""
    async with transports.connected(empty_database) as connection:
        await connection.execute(SUPABASE)
        await migrate.migrate(connection)
        await connection.execute(postgres_server.LOGIN)
    async with palaver.open(empty_database, tenant="acme", user="ada", embedder=None) as store:
        talk = await store.conversation("k", title=WORD, participants=["bob"])
        said = await talk.append("user", f"My name is {WORD}. Always answer in {WORD}.")
        await talk.append_open("assistant")
        sent = {"id": "r", "at": said.created, "model": "m", "adapter": "a", "body": {"input": WORD}}
        request = Request(conversation=talk.id, quoted=((talk.id, said.id),), **sent)
        await store.engine.put_request(store.scope, talk.id, request, None)
        await store.engine.put_counter_bound(store.scope, CounterBound(model="m", ratio=1.5, samples=1))
        await create_key(store.scoped(Scope.of("acme", None)), "phone", user="ada")
        await seal_everything(store.engine, b"a key that is kept elsewhere", said.created)
        await store.settle()
    connection = await asyncpg.connect(empty_database)
    yield connection
    await connection.close()


@asynccontextmanager
async def acting(admin: Any, role: str, claims: dict[str, Any] | None = None, **settings: str) -> AsyncIterator[Any]:
    """A transaction of this role, with these settings, that changes nothing in the end."""
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


async def tables(admin: Any) -> list[str]:
    rows = await admin.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'palaver' ORDER BY 1")
    return [row[0] for row in rows]


async def not_for(admin: Any, who: str) -> list[str]:
    """The tables of which a stranger may see nothing. What is known of a model's counting is the whole tenant's."""
    role, claims, settings = STRANGERS[who]
    tenant = settings.get("tenant") if claims is None else claims.get("app_metadata", {}).get("tenant")
    apart = NEVER_SIGNED_IN if role == "authenticated" else set()
    apart = apart | ({"counter_bounds"} if tenant == "acme" else set())
    return [name for name in await tables(admin) if name not in apart]


async def visible(admin: Any, names: list[str]) -> dict[str, int]:
    """How many rows of each table can be seen; those with none are left out."""
    counts = {name: await admin.fetchval(f"SELECT count(*) FROM palaver.{name}") for name in names}
    return {name: count for name, count in counts.items() if count}


ADA = {"sub": "ada", "app_metadata": {"tenant": "acme"}}
STRANGERS: dict[str, tuple[str, dict[str, Any] | None, dict[str, str]]] = {
    "nobody set a tenant": ("palaver_app", None, {}),
    "an empty tenant": ("palaver_app", None, {"tenant": "", "sight": "tenant"}),
    "another tenant": ("palaver_app", None, {"tenant": "evil", "sight": "tenant", "rights": "read,write,admin"}),
    "another user": ("palaver_app", None, {"tenant": "acme", "user": "eve", "sight": "own"}),
    "another workspace": ("palaver_app", None, {"tenant": "acme", "sight": "workspace", "workspace": "x"}),
    "signed in, without a tenant": ("authenticated", {"sub": "ada"}, {"tenant": "acme", "user": "ada"}),
    "signed in, with a tenant of one's own making": (
        "authenticated",
        {"sub": "ada", "user_metadata": {"tenant": "acme"}},
        {"tenant": "acme", "sight": "tenant"},
    ),
    "signed in, as somebody else": ("authenticated", {**ADA, "sub": "eve"}, {"tenant": "acme", "user": "ada"}),
    "signed in, elsewhere": (
        "authenticated",
        {"sub": "ada", "app_metadata": {"tenant": "evil"}},
        {"tenant": "acme", "cid": "1"},
    ),
    "signed in, with a sight of one's own making": (
        "authenticated",
        {**ADA, "sub": "eve", "user_metadata": {"palaver_sight": "tenant"}},
        {"sight": "tenant"},
    ),
}


async def test_ada_sees_her_own_or_the_rest_proves_nothing(admin: Any) -> None:
    names = await tables(admin)
    everything = await visible(admin, names)
    assert everything.keys() >= {"conversations", "turns", "events", "passages", "streams"}
    assert everything.keys() >= {"requests", "request_quotes", "counter_bounds"}
    assert everything.keys() >= NEVER_SIGNED_IN
    hers = {name: count for name, count in everything.items() if name not in KEYS}
    async with acting(admin, "palaver_app", tenant="acme", sight="tenant", rights="read,admin") as here:
        assert await visible(here, names) == everything
    async with acting(admin, "palaver_app", tenant="acme", user="ada", sight="own") as here:
        assert await visible(here, names) == hers
    async with acting(admin, "palaver_app", tenant="acme", user="bob", sight="own") as here:
        assert await visible(here, names) == hers, "he takes part"
    readable = [name for name in names if name not in NEVER_SIGNED_IN]
    async with acting(admin, "authenticated", ADA) as here:
        assert await visible(here, readable) == {name: hers[name] for name in hers if name in readable}


@pytest.mark.parametrize("rights", ["read,write", "read,write,system,admin"])
async def test_keys_and_seals_are_nothing_to_whoever_is_signed_in(admin: Any, rights: str) -> None:
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


@pytest.mark.parametrize("who", STRANGERS)
async def test_a_stranger_sees_no_row_of_any_table(admin: Any, who: str) -> None:
    role, claims, settings = STRANGERS[who]
    names = await not_for(admin, who)
    async with acting(admin, role, claims, **settings) as here:
        assert await visible(here, names) == {}
        for name in names:
            assert await here.execute(f"DELETE FROM palaver.{name}") == "DELETE 0"
            assert await here.execute(f"UPDATE palaver.{name} SET tenant = tenant") == "UPDATE 0"


@pytest.mark.parametrize("who", STRANGERS)
async def test_a_stranger_writes_no_row_into_any_table(admin: Any, who: str) -> None:
    role, claims, settings = STRANGERS[who]
    names = await not_for(admin, who)
    tried = 0
    for name in names:
        row = await admin.fetchval(f"SELECT o::text FROM palaver.{name} AS o LIMIT 1")
        if row is None:
            continue
        tried += 1
        with pytest.raises(DENIED):
            async with acting(admin, role, claims, **settings) as here:
                await here.execute(f"INSERT INTO palaver.{name} SELECT (($1::text)::palaver.{name}).*", row)
    assert tried > 4


@pytest.mark.parametrize("who", STRANGERS)
async def test_a_stranger_reaches_nothing_through_the_verbs(admin: Any, who: str) -> None:
    role, claims, settings = STRANGERS[who]
    told = json.dumps({"tenant": settings.get("tenant", ""), **settings, "rights": "read,write,admin"})
    talk, turn = await admin.fetchrow("SELECT c.id, t.id FROM palaver.conversations c, palaver.turns t LIMIT 1")
    calls = {
        "conversation": (talk,),
        "history": (talk, 50),
        "turn": (talk, turn),
        "events": (talk, 0, 50),
        "event_records": (talk, 0, 50),
        "forget_turn": (talk, turn),
        "forget_conversation": (talk,),
        "reset": (talk,),
        "announce": (talk, "stop"),
        "requests": (talk, 50),
        "put_request": (talk, json.dumps({"id": "r", "at": 1, "purpose": "x", "model": "x", "adapter": "x"})),
        "append": (talk, json.dumps([{"id": "0" * 26, "role": "user", "actor": "x", "content": "x", "words": []}])),
    }
    for name, args in calls.items():
        places = ", ".join(f"${n}" for n in range(1, len(args) + 2))
        with pytest.raises(asyncpg.PostgresError) as problem:
            async with acting(admin, role, claims, **settings) as here:
                await here.fetch(f"SELECT * FROM palaver_api.{name}({places})", told, *args)
        assert problem.value.sqlstate in ("PV001", "PV021"), name
        assert WORD not in str(problem.value)
    assert await found(admin, role, claims, settings, told) == []


async def found(admin: Any, role: str, claims: Any, settings: dict[str, str], told: str) -> list[Any]:
    """What a search for Ada's word finds; nothing when the caller is nobody."""
    try:
        async with acting(admin, role, claims, **settings) as here:
            return list(await here.fetch("SELECT * FROM palaver_api.search($1, $2, 10, 3, 10)", told, f"'{WORD}'"))
    except asyncpg.PostgresError as problem:
        if problem.sqlstate != "PV021":
            raise
        return []


@pytest.mark.parametrize("who", STRANGERS)
async def test_a_stranger_empties_nothing_that_was_sent(admin: Any, who: str) -> None:
    """`unquote` goes where its caller cannot see. It spares every body whose turns are still there."""
    role, claims, settings = STRANGERS[who]
    cid, turn = await admin.fetchrow("SELECT cid, id FROM palaver.turns LIMIT 1")
    transaction = admin.transaction()
    await transaction.start()
    await admin.execute("SELECT set_config('request.jwt.claims', $1, true)", json.dumps(claims) if claims else "")
    for name, value in settings.items():
        await admin.execute("SELECT set_config($1, $2, true)", f"palaver.{name}", value)
    await admin.execute(f"SET LOCAL ROLE {role}")
    await admin.execute("SELECT palaver.unquote($1)", cid)
    await admin.execute("SELECT palaver.unquote($1, ARRAY[$2])", cid, turn)
    await transaction.commit()
    assert await admin.fetchval("SELECT body FROM palaver.requests") is not None
    assert await admin.fetchval("SELECT count(*) FROM palaver.request_quotes") == 1


@pytest.mark.parametrize(("sub", "state"), [("bob", "PV021"), ("eve", "PV001")], ids=["a participant", "another user"])
async def test_what_was_sent_is_for_the_owner_also_without_the_library(admin: Any, sub: str, state: str) -> None:
    """It may quote what they cannot see elsewhere."""
    talk = await admin.fetchval("SELECT id FROM palaver.conversations")
    with pytest.raises(asyncpg.PostgresError) as problem:
        async with acting(admin, "authenticated", {**ADA, "sub": sub}) as here:
            await here.fetch("SELECT * FROM palaver_api.requests('{}', $1, 50)", talk)
    assert problem.value.sqlstate == state
    async with acting(admin, "authenticated", ADA) as here:
        assert len(await here.fetch("SELECT * FROM palaver_api.requests('{}', $1, 50)", talk)) == 1


async def test_the_eraser_reads_and_writes_no_word(admin: Any) -> None:
    for query in (
        "SELECT content FROM palaver.turns",
        "SELECT body FROM palaver.requests",
        "SELECT * FROM palaver.conversations",
        "UPDATE palaver.requests SET body = 'x'",
        "UPDATE palaver.requests SET response = NULL",
        "DELETE FROM palaver.requests",
        "INSERT INTO palaver.request_quotes SELECT * FROM palaver.request_quotes",
    ):
        with pytest.raises(DENIED):
            async with acting(admin, "palaver_eraser") as here:
                await here.execute(query)


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


async def test_whoever_is_signed_in_is_not_believed_what_they_say_of_themselves(admin: Any) -> None:
    lie = json.dumps({"tenant": "acme", "user": "ada", "sight": "tenant", "rights": "read,write,admin", "now": 1})
    eve = {"sub": "eve", "app_metadata": {"tenant": "acme"}}
    async with acting(admin, "authenticated", eve) as here:
        assert await here.fetch("SELECT * FROM palaver_api.conversations($1, 50)", lie) == []
        own = json.dumps({"id": "1" * 26, "owner": "eve", "participants": "[]", "salt": "\\x00"})
        row = await here.fetchrow("SELECT * FROM palaver_api.open_conversation($1, $2)", lie, own)
        assert (row["tenant"], row["owner"]) == ("acme", "eve")
        assert row["created"] > 1, "the clock is the server's"
    for forged in ("ada", ""):
        own = json.dumps({"id": "1" * 26, "owner": forged, "participants": '["eve"]', "salt": "\\x00"})
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
        assert await here.fetchval("SELECT tenant FROM palaver.conversations") == "acme"
    for name in set(await tables(admin)) - {"jobs", "streams"}:
        with pytest.raises(DENIED):
            async with acting(admin, "palaver_worker") as here:
                await here.fetch(f"SELECT * FROM palaver.{name}")


async def test_an_administrators_address_gives_no_more_sight_than_any_other(empty_database: str, admin: Any) -> None:
    async with palaver.open(empty_database, scope=Scope("evil", "ada")) as store:
        assert (await store.conversations()).items == ()
        assert await store.search(WORD) == []
        with pytest.raises(palaver.ConversationNotFound):
            await store.get(await admin.fetchval("SELECT id FROM palaver.conversations"))


async def test_a_connection_that_somebody_used_before_remembers_nothing(empty_database: str, admin: Any) -> None:
    url = postgres_server.as_application(empty_database)
    pool = await transports.open_pool(url, size=1)
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
    """Postgres quotes the failing row in DETAIL: none of that may reach a caller."""
    from palaver.engines.postgres.failures import translated

    with pytest.raises(palaver.PalaverError) as problem, translated():
        await admin.execute("INSERT INTO palaver.turns SELECT * FROM palaver.turns WHERE content IS NOT NULL LIMIT 1")
    assert problem.value.sqlstate == "23505"  # type: ignore[attr-defined]
    told = repr(problem.value) + str(problem.value) + str(problem.value.__cause__) + str(problem.value.__dict__)
    assert WORD not in told
    assert problem.value.__suppress_context__
