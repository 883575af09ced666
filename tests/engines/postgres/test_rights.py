"""The rights that functions need: one table, the functions themselves, and callers who lack a right."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

import palaver
from palaver.engines.postgres.failures import translate_errors
from palaver.errors import InvalidInput, PalaverError, PermissionDenied
from palaver.model import RIGHTS, Scope
from palaver.testing import HashEmbedder
from tests.support import postgres_server
from tests.support.postgres_server import Server

ADA = {"sub": "ada", "app_metadata": {"tenant": "acme"}}
# In databases with tables of earlier systems only: see engines/postgres/compat.
COMPAT = {"kept_file", "put_words", "to_index"}
VERBS = """
SELECT p.proname AS name, p.prosrc AS body, array_agg(format_type(t.oid, NULL) ORDER BY t.n) AS types
FROM pg_proc p, unnest(p.proargtypes) WITH ORDINALITY AS t (oid, n)
WHERE p.pronamespace = 'palaver_api'::regnamespace GROUP BY p.oid, p.proname ORDER BY 1
"""
ENTERED = re.compile(r"\benter(_worker)?\((?:who|asking)(?:, '(\w+)')?\)")
PASSED_ON = re.compile(r"SELECT [^;]* FROM palaver_api\.(\w+)\([^;]*")
CHANGES = re.compile(r"\b(INSERT\s+INTO|UPDATE\s+(?!SKIP|OF\b)\w|DELETE\s+FROM|nextval|pg_notify)", re.IGNORECASE)
BODIES = """
SELECT n.nspname || '.' || p.proname AS name, coalesce(pg_get_function_sqlbody(p.oid), p.prosrc) AS body
FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname IN ('palaver', 'palaver_api')
"""


async def _fill(url: str) -> None:
    await postgres_server.migrate_with_roles(url)
    async with palaver.open(url, tenant="acme", user="ada", embedder=HashEmbedder()) as store:
        talk = await store.conversation("k", participants=["bob"])
        await talk.append("user", "I am allergic to peanuts.")
        await store.settle()


@pytest.fixture
async def admin(postgres: Server) -> AsyncIterator[Any]:
    """A superuser's connection to a database with Supabase's roles and a conversation of Ada and Bob."""
    async with postgres_server.copied_database(postgres, "rights", _fill) as url:
        connection = await asyncpg.connect(url)
        yield connection
        await connection.close()


async def act(admin: Any, claims: dict[str, Any], sql: str, *args: Any, after: str | None = None) -> list[Any]:
    """Run a statement as a signed-in user, and roll it back. Returns its rows, or those of the statement `after` it."""
    transaction = admin.transaction()
    await transaction.start()
    try:
        await admin.execute("SELECT set_config('request.jwt.claims', $1, true)", json.dumps(claims))
        await admin.execute("SET LOCAL ROLE authenticated")
        with translate_errors():
            found: list[Any] = await admin.fetch(sql, *args)
            return found if after is None else await admin.fetch(after)
    finally:
        await transaction.rollback()


async def rights_of(admin: Any) -> dict[str, set[str]]:
    rows = await admin.fetch("SELECT function, rights FROM palaver.function_rights")
    assert len({row["function"] for row in rows}) == len(rows), "a function is listed once"
    return {row["function"]: set(row["rights"].split(",")) for row in rows}


# ---- the table ------------------------------------------------------------------------------------------------------


async def test_every_function_is_in_the_table_with_a_known_right(admin: Any) -> None:
    needed = await rights_of(admin)
    assert {row["name"] for row in await admin.fetch(VERBS)} == needed.keys() - COMPAT
    assert set().union(*needed.values()) <= {*RIGHTS, "worker"}


async def test_every_function_enters_with_the_right_in_the_table(admin: Any) -> None:
    needed = await rights_of(admin)
    for row in await admin.fetch(VERBS):
        if passed_on := PASSED_ON.fullmatch(row["body"].strip()):  # for older code: the function behind it is entered
            assert needed[passed_on[1]] == needed[row["name"]], row["name"]
            continue
        entered = ENTERED.findall(row["body"])
        asked = {right or "worker" for _, right in entered}
        if row["name"] == "health":  # for all tenants, or for one
            asked.discard("worker")
        assert asked == needed[row["name"]], row["name"]


async def _first_missing(admin: Any, name: str, types: list[str], rights: set[str]) -> str | None:
    """Return the right for which a caller with these rights is refused."""
    nothing = "".join(f", NULL::{one}" for one in types[1:])
    if name == "append_together":  # it enters once per call in its list
        nothing = ', \'[{"conversation": "x", "drafts": []}]\''
    claims = {"sub": "ada", "app_metadata": {"tenant": "acme", "palaver_rights": ",".join(sorted(rights))}}
    try:
        await act(admin, claims, f"SELECT * FROM palaver_api.{name}('{{}}'{nothing})")
    except PermissionDenied as problem:
        return problem.right
    except PalaverError:
        return None  # it was entered, and failed on the NULLs
    return None


async def test_a_caller_without_the_right_is_refused_before_anything_else(admin: Any) -> None:
    needed = await rights_of(admin)
    for row in await admin.fetch(VERBS):
        wanted = {"read" if right == "worker" else right for right in needed[row["name"]]}
        for missing in wanted:
            rights = {*RIGHTS} - {missing}
            assert await _first_missing(admin, row["name"], row["types"], rights) == missing, row["name"]
        assert await _first_missing(admin, row["name"], row["types"], wanted) not in wanted, row["name"]


async def test_functions_that_need_no_more_than_read_change_nothing(admin: Any) -> None:
    """Checked in their source, and in that of every function that they call."""
    bodies: dict[str, str] = {}
    for row in await admin.fetch(BODIES):
        text = re.sub(r"--[^\n]*", "", row["body"])
        bodies[row["name"]] = bodies.get(row["name"], "") + text
    called = {
        name: {one for one in bodies if re.search(rf"\b{one.partition('.')[2]}\s*\(", text)} - {name}
        for name, text in bodies.items()
    }
    needed = await rights_of(admin)
    for verb in [name for name, rights in needed.items() if rights <= {"read", "worker"} and name not in COMPAT]:
        reached, todo = set(), [f"palaver_api.{verb}"]
        while todo:
            name = todo.pop()
            # Calls use the qualified name; a table or a column may have the same name as a function.
            more = {one for one in called[name] if one.startswith("palaver.") or f"{one}(" in bodies[name]}
            todo += more - reached
            reached |= more | {name}
        assert [name for name in reached if CHANGES.search(bodies[name])] == [], verb


# ---- tokens that may only read --------------------------------------------------------------------------------------


async def test_a_token_without_the_right_to_write_changes_no_row_even_with_plain_sql(admin: Any) -> None:
    """The second wall: the tables' own policies refuse it, whichever function or view is used."""
    reader = {"sub": "ada", "app_metadata": {"tenant": "acme", "palaver_rights": "read"}}
    touched = 0
    for row in await admin.fetch("SELECT DISTINCT tablename FROM pg_policies WHERE roles = '{authenticated}'"):
        table = f"palaver.{row[0]}"
        with pytest.raises(PalaverError, match="42501") if await _rows(admin, ADA, table) else _Nothing():
            await act(admin, reader, f"UPDATE {table} SET tenant = tenant RETURNING 1")
        assert await act(admin, reader, f"DELETE FROM {table} RETURNING 1") == []
        touched += bool(await _rows(admin, reader, table))
        if rows := await admin.fetch(f"SELECT o::text FROM {table} o WHERE tenant = 'acme' LIMIT 1"):
            with pytest.raises(PalaverError, match="42501"):
                await act(admin, reader, f"INSERT INTO {table} SELECT (($1::text)::{table}).*", rows[0][0])
    assert touched > 5, "it sees these rows"


class _Nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


async def _rows(admin: Any, claims: dict[str, Any], table: str) -> list[Any]:
    return await act(admin, claims, f"SELECT 1 FROM {table}")


async def test_a_token_that_may_read_can_export(admin: Any) -> None:
    """An export locks the conversation, which is not a change."""
    (talk,) = await admin.fetch("SELECT id FROM palaver.conversations")
    reader = {"sub": "ada", "app_metadata": {"tenant": "acme", "palaver_rights": "read"}}
    (whole,) = await act(admin, reader, "SELECT * FROM palaver_api.whole('{}', $1)", talk["id"])
    assert "peanuts" in whole["turn_rows"]


async def test_a_participant_cannot_stop_the_embedding_of_later_turns(admin: Any) -> None:
    (talk,) = await admin.fetch("SELECT cid FROM palaver.conversations")
    last = await admin.fetchval("SELECT max(pid) FROM palaver.passages")
    model = HashEmbedder().name
    bob = {**ADA, "sub": "bob"}
    found = await act(
        admin,
        bob,
        """WITH done AS MATERIALIZED (SELECT palaver_api.put_embedded('{}', $1, $2, $3, 9999999999, '[]', '[]'))
        SELECT count(*) FROM done""",
        model,
        talk["cid"],
        last + 1,
        after="SELECT pid FROM palaver.embedded",
    )
    assert [row["pid"] for row in found] == [last]


@pytest.mark.parametrize("scope", ["conversation", "owner"])
async def test_vectors_and_marks_of_a_participant_break_no_recall(admin: Any, postgres: Server, scope: str) -> None:
    """Vectors of another length and impossible marks are refused, or ignored where they are the first."""
    url = postgres.at(await admin.fetchval("SELECT current_database()"))
    model = HashEmbedder().name
    options: dict[str, Any] = {"tenant": "acme", "embedder": HashEmbedder(), "worker": False, "files": None}
    async with palaver.open(url, user="ada", **options) as store:
        talk = await store.find("k")
        other = await store.conversation("other", participants=["bob"])
        for one in (talk, other):
            await one.append("user", "I also like cashews a lot.")
        rows = await admin.fetch("SELECT cid, max(pid) AS pid FROM palaver.passages GROUP BY cid ORDER BY cid")
        accepted = []
        for row in rows:
            for vector, mark in ((None, 30_000), ("[1,0]", 1)):
                vectors = json.dumps([] if vector is None else [[row["pid"], vector]])
                args = (model, row["cid"], row["pid"], row["pid"], vectors, json.dumps([[row["pid"], mark]]))
                with contextlib.suppress(InvalidInput):
                    await put_embedded(admin, *args)
                    accepted.append((row["cid"], vector))
        assert accepted == [(rows[1]["cid"], "[1,0]")], "the first vector of a conversation"
        found = await talk.recall("cashews", scope=scope)  # type: ignore[call-overload]
        assert found
        await talk.build_context(token_budget=2_000)


async def put_embedded(admin: Any, *args: Any) -> None:
    """Store vectors as Bob, and commit."""
    with translate_errors():
        async with admin.transaction():
            claims = json.dumps({**ADA, "sub": "bob"})
            await admin.execute("SELECT set_config('request.jwt.claims', $1, true)", claims)
            await admin.execute("SET LOCAL ROLE authenticated")
            await admin.execute("SELECT palaver_api.put_embedded('{}', $1, $2, $3, $4, $5, $6)", *args)


async def test_a_participant_drops_no_vectors_of_others(admin: Any) -> None:
    stored = await admin.fetchval("SELECT count(*) FROM palaver.embeddings")
    assert stored
    for user, dropped in (("bob", 0), ("ada", stored)):
        call = "SELECT * FROM palaver_api.drop_other_vectors('{}', 'another', 1000)"
        (row,) = await act(admin, {**ADA, "sub": user}, call)
        assert row["dropped"] == dropped


# ---- tokens of nobody -----------------------------------------------------------------------------------------------


async def test_a_token_with_an_empty_subject_is_refused(admin: Any) -> None:
    """The owner '' is the application itself."""
    nobody = {"sub": "", "app_metadata": {"tenant": "acme", "palaver_rights": "read,write,system,admin"}}
    for call in ("signed_in('{}')", "conversations('{}', 10)"):
        with pytest.raises(PermissionDenied):
            await act(admin, nobody, f"SELECT * FROM palaver_api.{call}")
    await admin.execute("UPDATE palaver.conversations SET owner = ''")
    assert await _rows(admin, nobody, "palaver.conversations") == []
    assert await _rows(admin, {**nobody, "sub": "bob"}, "palaver.conversations") != []


# ---- functions that run as another role -----------------------------------------------------------------------------


async def test_every_function_that_runs_as_its_owner_is_known(admin: Any) -> None:
    """One more is a new way around the policies: it looks only at `seen` conversations, and is tested below."""
    found = await admin.fetch(
        """SELECT p.proname AS name, p.prosrc AS body FROM pg_proc p WHERE p.prosecdef
        AND p.pronamespace IN (SELECT oid FROM pg_namespace WHERE nspname LIKE 'palaver%')"""
    )
    bodies = {row["name"]: row["body"] for row in found}
    looking = {"matching", "stem_postings", "nearest_turns", "ranked_by_words", "turns_around"}
    # `unquote` and `unlearn` return nothing, and spare every body and item whose turns still exist.
    assert bodies.keys() == looking | {"unquote", "unlearn"}
    for name in looking:
        assert re.search(r"\bBEGIN\s+cids := seen\(cids\);", bodies[name]), name


async def test_the_text_index_answers_only_for_conversations_that_the_caller_may_see(admin: Any) -> None:
    (talk,) = await admin.fetch("SELECT cid FROM palaver.conversations")
    stem = next(
        row[0]
        for row in await admin.fetch("SELECT unnest(tsvector_to_array(terms)) FROM palaver.passages")
        if "peanut" in row[0]
    )
    (turn,) = await admin.fetch("SELECT tid FROM palaver.turns")
    model = HashEmbedder().name
    vector = str([1.0] + [0.0] * (HashEmbedder().dimensions - 1))
    calls = {
        "postings": ("SELECT palaver.stem_postings($1, $2, 10)", stem, [talk["cid"]]),
        "several": ("SELECT palaver.stem_postings($1, $2, 10)", stem, [talk["cid"], 0]),
        "one": ("SELECT palaver.matching($1::text::tsquery, $2, 10)", stem, [talk["cid"]]),
        "all": ("SELECT palaver.matching($1::text::tsquery, $2, 10)", stem, None),
        "ranked": ("SELECT (palaver.ranked_by_words(ARRAY[$1::text], $2, 1, 5, 10, NULL, NULL)).tids", stem, None),
        "nearest": (
            "SELECT nullif(palaver.nearest_turns($1, $2, 10, $3, $4, 1), '{}')",
            model,
            vector,
            [turn["tid"]],
            [talk["cid"]],
        ),
        "around": (
            "SELECT (palaver.turns_around($1, $2, '{}', '{}', $3, $4)).tids",
            [turn["tid"]],
            None,
            model,
            vector,
        ),
    }
    callers = {
        "ada": (ADA, True),
        "bob": ({**ADA, "sub": "bob"}, True),
        "eve": ({**ADA, "sub": "eve"}, False),
        "the tenant": ({"sub": "eve", "app_metadata": {"tenant": "acme", "palaver_sight": "tenant"}}, True),
        "another workspace": (
            {"sub": "eve", "app_metadata": {"tenant": "acme", "palaver_sight": "workspace", "palaver_workspace": "x"}},
            False,
        ),
        "another tenant": ({"sub": "ada", "app_metadata": {"tenant": "other"}}, False),
    }
    for name, (claims, sees) in callers.items():
        for way, (sql, *args) in calls.items():
            found = [row[0] for row in await act(admin, claims, sql, *args) if row[0] is not None]
            assert bool(found) is sees, (name, way)


async def test_a_reader_builds_contexts_and_asks_for_no_work(postgres_url: str) -> None:
    async with palaver.open(postgres_url, tenant="acme", user="ada", embedder=None, worker=False) as store:
        talk = await store.conversation("k")
        await talk.append_many(
            {"role": "user", "content": f"Something long about subject {n}. " * 20} for n in range(40)
        )
        reader = store.scoped(Scope("acme", "ada", frozenset({"read"})))
        same = await reader.find("k")
        context = await same.build_context(token_budget=500)
        assert context.outgrown is not None, "there is more than fits: a caller who may write would enqueue a summary"


async def test_every_table_that_signed_in_users_write_to_refuses_readers(admin: Any) -> None:
    """A new table needs a step in the online part of its migration: SELECT palaver.restrict_writes('name')."""
    rows = await admin.fetch(
        """SELECT tablename, array_agg(policyname::text) AS names FROM pg_policies
        WHERE schemaname = 'palaver' AND roles = '{authenticated}' GROUP BY 1"""
    )
    wanted = {"authenticated_insert", "authenticated_update", "authenticated_delete"}
    assert [row["tablename"] for row in rows if not wanted <= set(row["names"])] == []
    assert len(rows) >= 20
