"""`conversation_messages` over Palaver's data, in the SQL that PostgREST makes of a program's calls."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import asyncpg
import pytest

import palaver
from palaver.conversations.internals import components_of
from palaver.errors import ConversationGone
from tests.engines.postgres.compat.conftest import (
    Opener,
    Program,
    anonymous,
    application,
    bind,
    server_key,
    signed_in,
)

# The SQL that PostgREST makes of .insert(row) and of .insert([row, row]).
INSERT = """
WITH source AS (
  INSERT INTO public.conversation_messages (content, metadata, role, session_id)
  SELECT body.content, body.metadata, body.role, body.session_id
  FROM json_to_recordset($1::json) AS body (content text, metadata jsonb, role text, session_id uuid)
  RETURNING public.conversation_messages.*
) SELECT * FROM source
"""


def message(session: object, content: str, role: str = "user", **metadata: object) -> dict[str, object]:
    return {"session_id": str(session), "role": role, "content": content, "metadata": metadata}


async def insert(by: Program, *messages: dict[str, object]) -> list[dict[str, object]]:
    return await by.rows(INSERT, json.dumps(messages))


async def contents(by: Program, session: object) -> list[str]:
    sql = "SELECT content FROM conversation_messages WHERE session_id = $1 ORDER BY created_at"
    return [row["content"] for row in await by.rows(sql, session)]


async def test_inserted_rows_are_turns_of_a_conversation_that_verifies(program: Opener, url: str) -> None:
    session = uuid4()
    async with program() as by, palaver.open(url, tenant="acme") as store:
        await insert(by, message(session, "I am allergic to peanuts."), message(session, "Noted.", "assistant"))
        talk = await store.find(str(session))
        turns = await talk.history()
        assert [(one.role, one.content) for one in turns] == [
            ("user", "I am allergic to peanuts."),
            ("assistant", "Noted."),
        ]
        assert [one.seq for one in turns] == [0, 1]
        assert (await talk.verify()).turns == 2
        assert talk.info.preview == "I am allergic to peanuts."


async def test_an_insert_answers_with_the_row_as_it_is_read_later(program: Opener) -> None:
    session = uuid4()
    async with program() as by:
        (answer,) = await insert(by, message(session, "Hello", topic="greeting"))
        assert answer == await by.one("SELECT * FROM conversation_messages WHERE session_id = $1", session)
        assert json.loads(answer["metadata"])["topic"] == "greeting"
        by_id = await by.rows("SELECT content FROM conversation_messages WHERE id = $1", answer["id"])
        assert by_id == [{"content": "Hello"}]


async def test_words_written_in_sql_are_found_after_settling(program: Opener, url: str) -> None:
    session = uuid4()
    async with program() as by, palaver.open(url, tenant="acme", worker=False) as store:
        await insert(by, message(session, "The cellar key hangs behind the barometer."))
        await insert(by, message(session, "Thanks!", "assistant"))
        talk = await store.find(str(session))
        assert not await store.search("barometer")
        await store.settle()
        (found,) = await store.search("barometer")
        assert found.conversation.id == talk.id
        hits = await talk.recall("where is the key to the cellar?")
        assert hits[0].turn is not None
        assert "barometer" in hits[0].turn.text
        await talk.verify()
        stats = await store.stats()
        assert stats.storage["outbox"] == []


async def test_what_was_forgotten_before_it_was_indexed_is_never_indexed(program: Opener, url: str) -> None:
    session = uuid4()
    async with program() as by, palaver.open(url, tenant="acme", worker=False) as store:
        await insert(by, message(session, "The code is heliotrope."), message(session, "I see.", "assistant"))
        await by.rows("DELETE FROM conversation_messages WHERE content LIKE '%heliotrope%'")
        await store.settle()
        assert not await store.search("heliotrope")
        await (await store.find(str(session))).verify()


async def test_contexts_count_the_tokens_of_rows_that_sql_only_guessed(program: Opener, url: str) -> None:
    session = uuid4()
    dense = "1,2;3:4!5?" * 40  # far more tokens than a fourth of its bytes
    async with program() as by, palaver.open(url, tenant="acme", worker=False) as store:
        for place in range(12):
            await insert(by, message(session, f"{place} {dense}", "assistant" if place % 2 else "user"))
        talk = await store.find(str(session))
        context = await talk.build_context(token_budget=1_500)
        counted = sum(components_of(store).drafts.count(str(one["content"])) for one in context.messages)
        assert counted <= context.tokens <= 1_500


async def test_the_newest_come_first_and_no_more_than_asked_for(program: Opener) -> None:
    session = uuid4()
    async with program() as by:
        await insert(by, *(message(session, f"message {n}") for n in range(30)))
        sql = "SELECT content FROM conversation_messages WHERE session_id = $1 ORDER BY created_at DESC LIMIT $2"
        newest = [row["content"] for row in await by.rows(sql, session, 12)]
        assert newest == [f"message {n}" for n in range(29, 17, -1)]


async def test_times_given_are_kept_and_can_be_asked_for(program: Opener) -> None:
    session, start = uuid4(), datetime(2025, 3, 1, 9, 30, 0, 123457, tzinfo=UTC)
    sql = "INSERT INTO conversation_messages (session_id, role, content, created_at) VALUES ($1, 'user', $2, $3)"
    async with program() as by:
        for hour in range(4):
            await by.rows(sql, session, f"at {hour}", start + timedelta(hours=hour))
        since = "SELECT content, created_at FROM conversation_messages WHERE session_id = $1 AND created_at >= $2"
        found = await by.rows(since + " ORDER BY created_at", session, start + timedelta(hours=2))
        assert [row["content"] for row in found] == ["at 2", "at 3"]
        assert found[0]["created_at"] == start + timedelta(hours=2)


async def test_metadata_shows_tool_calls_and_token_counts(program: Opener, url: str) -> None:
    session = uuid4()
    async with program() as by, palaver.open(url, tenant="acme", worker=False) as store:
        talk = await store.conversation(str(session))
        call = {"id": "c1", "name": "look", "arguments": {"q": "nuts"}}
        tokens = {"prompt": 20, "completion": 7}
        await talk.append("assistant", "", tool_calls=[call], tokens=tokens, model="m-1", metadata={"mood": "calm"})
        shown = json.loads(await by.value("SELECT metadata FROM conversation_messages WHERE session_id = $1", session))
        turn = (await talk.history())[0]
        assert shown == {
            "tool_calls": [call],
            "tokens": tokens,
            "token_count": turn.token_count,
            "model": "m-1",
            "mood": "calm",
        }


async def test_metadata_written_by_a_program_becomes_what_it_is(program: Opener, url: str) -> None:
    session = uuid4()
    call = {"id": "c1", "name": "look", "arguments": {"b": [1, None], "a": "ü"}}
    foreign = {"id": "c2", "type": "function", "function": {"name": "look"}}
    async with program() as by, palaver.open(url, tenant="acme", worker=False) as store:
        await insert(by, message(session, "", "assistant", tool_calls=[call], tokens={"prompt": 3}, model="m-2", x=1))
        await insert(by, message(session, "", "assistant", tool_calls=[foreign]))
        talk = await store.find(str(session))
        ours, theirs = await talk.history()
        assert [(one.id, one.name, one.arguments) for one in ours.tool_calls] == [("c1", "look", call["arguments"])]
        assert (ours.tokens.prompt, ours.model, ours.metadata) == (3, "m-2", {"x": 1})
        assert theirs.tool_calls == ()
        shown = await by.rows("SELECT metadata FROM conversation_messages ORDER BY created_at")
        assert json.loads(shown[0]["metadata"])["tool_calls"] == [call]
        assert json.loads(shown[1]["metadata"])["tool_calls"] == [foreign]
        await talk.verify()


async def test_deleting_a_session_forgets_the_conversation(program: Opener, url: str) -> None:
    session, other = uuid4(), uuid4()
    async with program() as by, palaver.open(url, tenant="acme", worker=False) as store:
        await insert(by, *(message(session, f"secret {n}") for n in range(5)), message(other, "stays"))
        talk = await store.find(str(session))
        deleted = await by.rows("DELETE FROM conversation_messages WHERE session_id = $1 RETURNING *", session)
        assert len(deleted) == 5
        assert await contents(by, session) == []
        assert await contents(by, other) == ["stays"]
        with pytest.raises(ConversationGone):
            await talk.history()
        assert [event.kind for event in await talk.audit(kinds=["forget"])] == ["forget"] * 6
        await insert(by, message(session, "anew"))
        assert await contents(by, session) == ["anew"]
        await (await store.find(str(session))).verify()


async def test_the_retention_delete_forgets_what_is_older_in_every_session(program: Opener, url: str) -> None:
    old, mixed = uuid4(), uuid4()
    now = datetime.now(UTC)
    sql = "INSERT INTO conversation_messages (session_id, role, content, created_at) VALUES ($1, 'user', $2, $3)"
    async with program() as by, palaver.open(url, tenant="acme", worker=False) as store:
        await by.rows(sql, old, "stale", now - timedelta(hours=5))
        await by.rows(sql, mixed, "stale too", now - timedelta(hours=4))
        await by.rows(sql, mixed, "fresh", now)
        gone = await by.rows(
            "DELETE FROM conversation_messages WHERE created_at < $1 RETURNING 1", now - timedelta(hours=1)
        )
        assert len(gone) == 2
        assert await by.value("SELECT count(*) FROM conversation_messages") == 1
        talk = await store.find(str(mixed))
        assert [turn.content for turn in await talk.history()] == ["fresh"]
        await talk.verify()


async def test_an_update_is_a_new_version_in_the_same_place(program: Opener, url: str) -> None:
    session = uuid4()
    async with program() as by, palaver.open(url, tenant="acme", worker=False) as store:
        await insert(by, message(session, "one"), message(session, "tow"), message(session, "three"))
        sql = "UPDATE conversation_messages SET content = 'two' WHERE content = 'tow' RETURNING content"
        assert await by.rows(sql) == [{"content": "two"}]
        assert await contents(by, session) == ["one", "two", "three"]
        talk = await store.find(str(session))
        assert [turn.content for turn in await talk.history()] == ["one", "two", "three"]
        assert len(await talk.history(include_superseded=True)) == 4
        await talk.verify()
        with pytest.raises(asyncpg.PostgresError, match="keeps its id"):
            await by.rows("UPDATE conversation_messages SET session_id = $1", uuid4())


async def test_turns_of_the_library_are_rows(program: Opener, url: str) -> None:
    session = uuid4()
    async with program() as by, palaver.open(url, tenant="acme", worker=False) as store:
        talk = await store.conversation(str(session))
        await talk.append("user", [{"type": "text", "text": "See"}, {"type": "text", "text": "this"}])
        await talk.append("assistant", "Yes.")
        await store.conversation("not-a-session")
        assert await contents(by, session) == ["See\nthis", "Yes."]
        assert await by.value("SELECT count(DISTINCT session_id) FROM conversation_messages") == 1


# ---- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "state"),
    [
        ({"role": "wizard"}, "23514"),
        ({"role": "tool"}, "23514"),
        ({"role": None}, "23502"),
        ({"content": None}, "23502"),
        ({"session_id": None}, "23502"),
        ({"metadata": [1]}, "PV031"),
        ({"metadata": {"x": "y" * 70_000}}, "PV032"),
        ({"content": "x" * 5_000_001}, "PV032"),
    ],
)
async def test_a_bad_row_is_refused_and_leaves_nothing(program: Opener, row: dict[str, object], state: str) -> None:
    async with program() as by:
        with pytest.raises(asyncpg.PostgresError) as refused:
            await insert(by, message(uuid4(), "x") | row)
        assert refused.value.sqlstate == state
        assert await by.value("SELECT count(*) FROM conversation_messages") == 0


async def test_a_conversation_that_redacts_takes_no_words_past_the_redactor(program: Opener, url: str) -> None:
    session = uuid4()
    async with program() as by, palaver.open(url, tenant="acme", worker=False) as store:
        await store.conversation(str(session), settings={"redact": True})
        with pytest.raises(asyncpg.PostgresError, match="write through the library") as refused:
            await insert(by, message(session, "write to ada@example.org"))
        assert refused.value.sqlstate == "PV033"
        await insert(by, message(session, "write to [email], or come at ten"))
        assert await contents(by, session) == ["write to [email], or come at ten"]


# ---- who sees what -------------------------------------------------------------------------------------------------


async def test_tenants_do_not_see_each_other(program: Opener) -> None:
    session = uuid4()
    async with program() as ours, program(application("globex")) as theirs, program({}) as nobody:
        await insert(ours, message(session, "ours"))
        await insert(theirs, message(session, "theirs"))
        assert await contents(ours, session) == ["ours"]
        assert await contents(theirs, session) == ["theirs"]
        await theirs.rows("DELETE FROM conversation_messages")
        assert await contents(ours, session) == ["ours"]
        assert await contents(nobody, session) == []
        with pytest.raises(asyncpg.PostgresError) as refused:
            await insert(nobody, message(session, "x"))
        assert refused.value.sqlstate == "PV021"


async def test_a_user_sees_the_own_sessions_by_token_alone(program: Opener) -> None:
    session = uuid4()
    claims = {"sub": "eve", "role": "authenticated", "user_metadata": {"tenant": "acme"}}
    forged = {"role": "authenticated", "request.jwt.claims": json.dumps(claims), **application("acme")}
    async with (
        program(signed_in("acme", "ada")) as ada,
        program(signed_in("acme", "bob")) as bob,
        program(forged) as eve,
        program(anonymous()) as anon,
        program() as application_itself,
    ):
        await insert(ada, message(session, "Ada's"))
        await insert(bob, message(session, "Bob's"))
        assert await contents(ada, session) == ["Ada's"]
        assert await contents(bob, session) == ["Bob's"]
        assert await contents(eve, session) == []
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await contents(anon, session)
        assert sorted(await contents(application_itself, session)) == ["Ada's", "Bob's"]
        with pytest.raises(asyncpg.PostgresError):
            await insert(ada, message(session, "obey", "system"))


@pytest.mark.parametrize("caller", ["anon", "service"])
async def test_a_key_that_is_bound_works_in_its_tenant_and_in_no_other(
    program: Opener, database: str, url: str, caller: str
) -> None:
    session = uuid4()
    async with program(application("globex")) as others:
        await insert(others, message(session, "theirs"))
        await bind(database, **{caller: "acme"})
        async with (
            program(server_key() if caller == "service" else anonymous()) as by,
            palaver.open(url, tenant="acme", worker=False) as store,
        ):
            assert await by.rows("SELECT * FROM conversation_messages") == []
            await insert(by, *(message(session, f"say {n}") for n in range(4)), message(session, "Obey", "system"))
            await by.rows("UPDATE conversation_messages SET content = 'said' WHERE content = 'say 1'")
            assert await contents(by, session) == ["say 0", "said", "say 2", "say 3", "Obey"]
            talk = await store.find(str(session))
            assert [turn.actor for turn in await talk.history()][:1] == ["user"]
            await talk.verify()
            assert len(await by.rows("DELETE FROM conversation_messages RETURNING 1")) == 5
            assert await contents(by, session) == []
        assert await contents(others, session) == ["theirs"]


async def test_the_caller_keeps_role_and_settings_after_a_write(program: Opener) -> None:
    async with program() as by, by.connection.transaction():
        for name, value in by.settings.items():
            await by.connection.execute("SELECT set_config($1, $2, true)", name, value)
        await by.connection.fetch(INSERT, json.dumps([message(uuid4(), "x")]))
        assert await by.connection.fetchval("SELECT current_user = session_user")
        assert await by.connection.fetchval("SELECT current_setting('palaver.tenant')") == "acme"
