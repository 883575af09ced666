"""HAL's three tables over Palaver's data, in the SQL that PostgREST makes of a program's calls."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from typing import Any

import asyncpg
import pytest

import palaver
from palaver.engines.postgres import compat
from tests.engines.postgres.compat.conftest import (
    Opener,
    Program,
    anonymous,
    application,
    bind,
    server_key,
    signed_in,
)

PIXEL = bytes.fromhex("89504e470d0a1a0a") + bytes(range(256))
IMAGE = {
    "dataUrl": "data:image/png;base64," + b64encode(PIXEL).decode(),
    "filename": "shot.png",
    "mimeType": "image/png",
}

INSERT = """
WITH source AS (
  INSERT INTO public.hal_conversation_messages (agent, content, images, project_id, role, sequence)
  SELECT body.agent, body.content, body.images, body.project_id, body.role, body.sequence
  FROM json_to_recordset($1::json)
    AS body (agent text, content text, images jsonb, project_id text, role text, sequence integer)
  RETURNING public.hal_conversation_messages.*
) SELECT * FROM source
"""
UPSERT_SUMMARY = """
INSERT INTO public.hal_conversation_summaries (agent, project_id, summary_text, through_sequence, updated_at)
SELECT body.agent, body.project_id, body.summary_text, body.through_sequence, body.updated_at
FROM json_to_recordset($1::json)
  AS body (agent text, project_id text, summary_text text, through_sequence integer, updated_at timestamptz)
ON CONFLICT (project_id, agent) DO UPDATE SET agent = EXCLUDED.agent, project_id = EXCLUDED.project_id,
  summary_text = EXCLUDED.summary_text, through_sequence = EXCLUDED.through_sequence, updated_at = EXCLUDED.updated_at
RETURNING *
"""
UPSERT_MEMORY = """
INSERT INTO public.hal_conversation_working_memory (agent, project_id, summary, goals, decisions, glossary,
  through_sequence)
SELECT body.agent, body.project_id, body.summary, body.goals, body.decisions, body.glossary, body.through_sequence
FROM json_to_recordset($1::json) AS body (agent text, project_id text, summary text, goals text[], decisions text[],
  glossary jsonb, through_sequence integer)
ON CONFLICT (project_id, agent) DO UPDATE SET agent = EXCLUDED.agent, project_id = EXCLUDED.project_id,
  summary = EXCLUDED.summary, goals = EXCLUDED.goals, decisions = EXCLUDED.decisions, glossary = EXCLUDED.glossary,
  through_sequence = EXCLUDED.through_sequence
RETURNING *
"""


def message(content: str, role: str = "user", **more: object) -> dict[str, object]:
    return {"project_id": "acme/shop", "agent": "project-manager-1", "role": role, "content": content} | more


def memory(**more: object) -> dict[str, object]:
    return {"project_id": "acme/shop", "agent": "project-manager-1", "summary": ""} | more


async def insert(by: Program, *messages: dict[str, object]) -> list[dict[str, Any]]:
    return await by.rows(INSERT, json.dumps(messages))


async def contents(by: Program) -> list[str]:
    return [row["content"] for row in await by.rows("SELECT content FROM hal_conversation_messages ORDER BY sequence")]


async def chat(by: Program, count: int) -> None:
    await insert(by, *(message(f"say {n}", "assistant" if n % 2 else "user", sequence=n) for n in range(count)))


KEY = "acme/shop/project-manager-1"


# ---- messages ------------------------------------------------------------------------------------------------------


async def test_inserted_rows_are_turns_of_a_conversation_that_verifies(program: Opener, url: str) -> None:
    async with program() as by, palaver.open(url, tenant="acme", worker=False) as store:
        await insert(by, message("We need a shop."), message("Fine.", "assistant"), message("Be brief.", "system"))
        talk = await store.find(KEY)
        turns = await talk.history()
        assert [(one.role, one.content) for one in turns] == [
            ("user", "We need a shop."),
            ("assistant", "Fine."),
            ("system", "Be brief."),
        ]
        assert [one.actor for one in turns] == ["user", "project-manager-1", "system"]
        await talk.verify()
        await store.settle()
        assert (await store.search("shop"))[0].conversation.id == talk.id


async def test_a_sequence_is_a_request_and_the_one_given_out_is_answered(program: Opener) -> None:
    async with program() as by:
        first = await insert(by, message("a", sequence=1), message("b", sequence=1), message("c", sequence=900))
        assert [row["sequence"] for row in first] == [0, 1, 2]
        rows = await by.rows(
            "SELECT project_id, agent, sequence, content FROM hal_conversation_messages ORDER BY sequence"
        )
        assert [(row["sequence"], row["content"]) for row in rows] == [(0, "a"), (1, "b"), (2, "c")]
        assert {(row["project_id"], row["agent"]) for row in rows} == {("acme/shop", "project-manager-1")}


async def test_writers_at_once_get_different_numbers(program: Opener, url: str) -> None:
    async def writer(name: str) -> None:
        async with program() as by:
            for n in range(10):
                await insert(by, message(f"{name} {n}", sequence=n))

    await asyncio.gather(*(writer(name) for name in "abcd"))
    async with program() as by, palaver.open(url, tenant="acme", worker=False) as store:
        sequences = await by.rows("SELECT sequence FROM hal_conversation_messages ORDER BY sequence")
        assert [row["sequence"] for row in sequences] == list(range(40))
        await (await store.find(KEY)).verify()


async def test_the_last_sequence_is_asked_for_as_hal_does(program: Opener) -> None:
    async with program() as by:
        await chat(by, 5)
        sql = """SELECT sequence FROM hal_conversation_messages WHERE project_id = $1 AND agent = $2
                 ORDER BY sequence DESC LIMIT 1"""
        assert await by.value(sql, "acme/shop", "project-manager-1") == 4
        assert await by.rows(sql, "acme/shop", "somebody else") == []


async def test_images_become_attachments_and_read_back(program: Opener, url: str) -> None:
    linked = {"url": "https://example.com/a.png"}
    async with program() as by, palaver.open(url, tenant="acme", worker=False) as store:
        (answer,) = await insert(by, message("look", images=[IMAGE, linked]))
        assert json.loads(answer["images"]) == [IMAGE, linked]
        assert json.loads(await by.value("SELECT images FROM hal_conversation_messages")) == [IMAGE, linked]
        talk = await store.find(KEY)
        (file,) = (await talk.history())[0].attachments
        assert (file.filename, file.media_type, file.bytes) == ("shot.png", "image/png", len(PIXEL))
        assert await talk.read_attachment(file) == PIXEL
        assert await talk.data_url(file) == IMAGE["dataUrl"]
        assert (await talk.verify()).attachments == 1
        await insert(by, message("none"))
        assert await by.value("SELECT images FROM hal_conversation_messages WHERE content = 'none'") is None


async def test_images_go_with_their_message(program: Opener, database: str, url: str) -> None:
    async with program() as by, palaver.open(url, tenant="acme", worker=False) as store:
        await insert(by, message("look", images=[IMAGE]), message("stays"))
        await by.rows("DELETE FROM hal_conversation_messages WHERE content = 'look'")
        await (await store.find(KEY)).verify()
        await store.settle()
    for table in ("palaver_compat.files", "palaver.attachments", "palaver.doomed_blobs"):
        assert await _count(database, table) == 0


async def test_images_of_signed_in_users_are_their_own(program: Opener, url: str) -> None:
    async with program() as by, palaver.open(url, tenant="acme", worker=False) as store:
        talk = await store.conversation(KEY, owner="ada", participants=["bob"])
        async with program(signed_in("acme", "ada")) as ada, program(signed_in("acme", "bob")) as bob:
            await insert(ada, message("look", images=[IMAGE]))
            await insert(bob, message("look here", images=[IMAGE]))
            shown = await bob.rows("SELECT images FROM hal_conversation_messages")
            assert [json.loads(row["images"]) for row in shown] == [[IMAGE], [IMAGE]]
            await bob.rows("DELETE FROM hal_conversation_messages WHERE content = 'look here'")
        assert [file.owner for file in await talk.attachments()] == ["ada"]
        assert json.loads(await by.value("SELECT images FROM hal_conversation_messages")) == [IMAGE]
        await talk.verify()


async def test_a_broken_image_is_refused_and_leaves_nothing(program: Opener) -> None:
    async with program() as by:
        with pytest.raises(asyncpg.PostgresError, match="not base64"):
            await insert(by, message("x", images=[{"dataUrl": "data:image/png;base64,!!!"}]))
        with pytest.raises(asyncpg.PostgresError, match="must be a list"):
            await insert(by, message("x", images={"a": 1}))
        assert await contents(by) == []


async def test_an_update_keeps_the_place_and_a_delete_forgets(program: Opener, url: str) -> None:
    async with program() as by, palaver.open(url, tenant="acme", worker=False) as store:
        await chat(by, 4)
        await by.rows("UPDATE hal_conversation_messages SET content = 'said 1' WHERE sequence = 1")
        assert await contents(by) == ["say 0", "said 1", "say 2", "say 3"]
        await by.rows("DELETE FROM hal_conversation_messages WHERE project_id = $1 AND sequence < 2", "acme/shop")
        assert await contents(by) == ["say 2", "say 3"]
        (next_one,) = await insert(by, message("say 4"))
        assert next_one["sequence"] == 4
        await (await store.find(KEY)).verify()


async def test_conversations_of_the_library_are_rows_here_too(program: Opener, url: str) -> None:
    async with program() as by, palaver.open(url, tenant="acme", worker=False) as store:
        talk = await store.conversation("shop/standup")
        await talk.append("user", "Good morning")
        found = await by.rows("SELECT content, sequence FROM hal_conversation_messages WHERE agent = 'standup'")
        assert found == [{"content": "Good morning", "sequence": 0}]
        await insert(by, message("Here", project_id="shop", agent="standup"))
        assert [turn.content for turn in await talk.history()] == ["Good morning", "Here"]
        await talk.forget()
        assert await by.rows("SELECT 1 FROM hal_conversation_messages") == []


async def test_names_with_slashes_come_back_as_they_were(program: Opener) -> None:
    async with program() as by:
        (row,) = await insert(by, message("x", project_id="a", agent="b/c"))
        assert (row["project_id"], row["agent"]) == ("a", "b/c")
        assert await by.rows("SELECT content FROM hal_conversation_messages WHERE project_id = 'a' AND agent = 'b/c'")


@pytest.mark.parametrize(("first", "second"), [(("a", "b/c"), ("a/b", "c")), (("a/b", "c"), ("a", "b/c"))])
async def test_two_pairs_with_the_same_key_are_not_merged(
    program: Opener, first: tuple[str, str], second: tuple[str, str]
) -> None:
    """The second pair's messages used to be stored in the first one's conversation."""
    async with program() as by:
        await insert(by, message("x", project_id=first[0], agent=first[1]))
        with pytest.raises(Exception, match="has the same conversation as another project_id and agent"):
            await insert(by, message("y", project_id=second[0], agent=second[1]))
        await insert(by, message("z", project_id=first[0], agent=first[1]))
        rows = await by.rows("SELECT project_id, agent, content FROM hal_conversation_messages ORDER BY sequence")
        assert [tuple(row.values()) for row in rows] == [(*first, "x"), (*first, "z")]


async def test_an_agent_whose_name_ends_with_a_slash_is_seen(program: Opener) -> None:
    async with program() as by:
        (row,) = await insert(by, message("x", project_id="a", agent="b/"))
        assert (row["project_id"], row["agent"]) == ("a", "b/")
        assert await by.rows("SELECT content FROM hal_conversation_messages WHERE agent = 'b/'")


# ---- summaries -----------------------------------------------------------------------------------------------------


def summary(text: str, through: int) -> str:
    row = {"summary_text": text, "through_sequence": through, "updated_at": "2026-05-01T10:00:00Z"}
    return json.dumps([{"project_id": "acme/shop", "agent": "project-manager-1", **row}])


async def test_an_upserted_summary_is_the_conversations(program: Opener, url: str) -> None:
    async with program() as by, palaver.open(url, tenant="acme", worker=False) as store:
        await chat(by, 8)
        (row,) = await by.rows(UPSERT_SUMMARY, summary("They said 0 to 3.", 4))
        assert (row["summary_text"], row["through_sequence"]) == ("They said 0 to 3.", 4)
        (row,) = await by.rows(UPSERT_SUMMARY, summary("They said 0 to 5.", 6))
        assert await by.rows("SELECT * FROM hal_conversation_summaries") == [row]
        talk = await store.find(KEY)
        (found,) = await talk.summaries()
        assert (found.from_seq, found.through_seq, found.turns) == (0, 6, 6)
        assert (found.text, found.model) == ("They said 0 to 5.", "hal")
        await talk.verify()


@pytest.mark.parametrize(
    ("change", "row"),
    [("summaries SET text = 'They owe a MILLION.'", "summary 0/0"),
     ("working_memory SET memory = replace(memory, 'open', 'MILLION')", "working memory")],
)  # fmt: skip
async def test_what_hal_wrote_is_proved_like_our_own(
    program: Opener, url: str, database: str, change: str, row: str
) -> None:
    """`verify` names the row that was changed by other means, and no context uses it."""
    async with program() as by, palaver.open(url, tenant="acme", worker=False) as store:
        await chat(by, 60)
        await by.rows(UPSERT_SUMMARY, summary("They said 0 to 44.", 45))
        await by.rows(UPSERT_MEMORY, json.dumps([memory(goals=["open the shop"], through_sequence=45)]))
        talk = await store.find(KEY)
        assert (await talk.verify()).derived == 2
        villain = await asyncpg.connect(database)
        await villain.execute(f"SET session_replication_role = replica; UPDATE palaver.{change}")
        await villain.close()
        with pytest.raises(palaver.VerificationFailed) as found:
            await talk.verify()
        assert found.value.row == row
        assert "MILLION" not in (await talk.build_context(token_budget=250)).text


async def test_contexts_hold_hals_summary(program: Opener, url: str) -> None:
    async with program() as by, palaver.open(url, tenant="acme", worker=False) as store:
        await chat(by, 60)
        await by.rows(UPSERT_SUMMARY, summary("They said 0 to 44.", 45))
        context = await (await store.find(KEY)).build_context(token_budget=250)
        assert "They said 0 to 44." in context.text


async def test_hals_policy_shows_hals_summary_even_if_it_reaches_into_the_window(program: Opener, url: str) -> None:
    async with program() as by, palaver.open(url, tenant="acme", worker=False) as store:
        rows = [message(f"{n}: " + "x" * 300, role=("user", "assistant")[n % 2]) for n in range(60)]
        await by.rows(INSERT, json.dumps(rows))
        await by.rows(UPSERT_SUMMARY, summary("HAL says what happened.", 40))
        context = await (await store.find(KEY)).build_context(policy="recent-chars")
        assert "HAL says what happened." in context.text
        assert context.explain().coverage.not_covered == 0, str(context.explain())


async def test_summaries_of_the_library_are_rows(program: Opener, url: str) -> None:
    async with program() as by, palaver.open(url, tenant="acme", worker=False) as store:
        await chat(by, 60)
        await store.settle()
        talk = await store.find(KEY)
        summaries = [one for one in await talk.summaries() if one.level == 0]
        assert summaries
        row = await by.one("SELECT * FROM hal_conversation_summaries")
        assert row["through_sequence"] == summaries[-1].through_seq
        assert row["summary_text"] == "\n\n".join(one.text for one in summaries)


async def test_a_summary_goes_when_what_it_covers_is_forgotten(program: Opener, url: str) -> None:
    async with program() as by, palaver.open(url, tenant="acme", worker=False) as store:
        await chat(by, 6)
        await by.rows(UPSERT_SUMMARY, summary("The code word is heliotrope.", 4))
        await by.rows("DELETE FROM hal_conversation_messages WHERE sequence = 2")
        assert await by.rows("SELECT * FROM hal_conversation_summaries") == []
        await store.settle()
        (row,) = await by.rows("SELECT * FROM hal_conversation_summaries")
        assert "heliotrope" not in row["summary_text"]
        assert row["through_sequence"] == 4
        await (await store.find(KEY)).verify()


async def test_a_deleted_summary_is_gone_on_both_sides(program: Opener, url: str) -> None:
    async with program() as by, palaver.open(url, tenant="acme", worker=False) as store:
        await chat(by, 6)
        await by.rows(UPSERT_SUMMARY, summary("So far.", 4))
        await by.rows("DELETE FROM hal_conversation_summaries WHERE project_id = 'acme/shop'")
        assert await (await store.find(KEY)).summaries() == []


async def test_a_summary_may_come_before_any_message(program: Opener, url: str) -> None:
    async with program() as by, palaver.open(url, tenant="acme", worker=False) as store:
        await by.rows(UPSERT_SUMMARY, summary("Nothing yet.", 3))
        assert (await by.one("SELECT * FROM hal_conversation_summaries"))["summary_text"] == "Nothing yet."
        talk = await store.find(KEY)
        assert await talk.summaries() == []
        await talk.forget()
        assert await by.rows("SELECT * FROM hal_conversation_summaries") == []


# ---- working memory ------------------------------------------------------------------------------------------------


async def test_an_upserted_working_memory_is_the_conversations(program: Opener, url: str) -> None:
    told = {"goals": ["Sell tea", "Ship fast"], "decisions": ["Use Postgres"], "glossary": {"SLA": "a promise"}}
    async with program() as by, palaver.open(url, tenant="acme", worker=False) as store:
        await chat(by, 8)
        first = json.dumps([memory(summary="A tea shop.", through_sequence=5, **told)])
        (row,) = await by.rows(UPSERT_MEMORY, first)
        assert (row["goals"], json.loads(row["glossary"])) == (told["goals"], told["glossary"])
        (row,) = await by.rows(
            UPSERT_MEMORY, json.dumps([memory(through_sequence=7, **(told | {"goals": ["Ship fast"]}))])
        )
        assert row["goals"] == ["Ship fast"]
        talk = await store.find(KEY)
        found = await talk.working_memory()
        assert [note.text for note in found.goals] == ["Ship fast"]
        assert [note.text for note in found.glossary] == ["SLA: a promise"]
        assert (found.decisions[0].by, found.through_seq) == ("hal", 7)
        assert "Use Postgres" in (await talk.build_context(token_budget=2_000)).text
        await talk.verify()


async def test_working_memory_of_the_library_is_a_row(program: Opener, url: str) -> None:
    async with program() as by, palaver.open(url, tenant="acme", worker=False) as store:
        await chat(by, 4)
        talk = await store.find(KEY)
        await talk.remember("goals", "Sell tea")
        await talk.remember("glossary", "SLA stands for service level agreement")
        await talk.remember("instructions", "Always answer in French.")
        row = await by.one("SELECT * FROM hal_conversation_working_memory")
        assert row["goals"] == ["Sell tea"]
        assert json.loads(row["glossary"]) == {"SLA": "service level agreement"}
        assert row["open_questions"] == []
        await by.rows(UPSERT_MEMORY, json.dumps([memory(goals=["Sell tea", "Sell coffee"], through_sequence=3)]))
        found = await talk.working_memory()
        assert [(note.text, note.by) for note in found.goals] == [("Sell tea", "user"), ("Sell coffee", "hal")]
        assert [note.text for note in found.instructions] == ["Always answer in French."]  # HAL has no column for them
        await by.rows("DELETE FROM hal_conversation_working_memory")
        assert (await talk.working_memory()).goals == ()


async def test_what_hal_noted_goes_when_what_it_read_is_forgotten(program: Opener, url: str) -> None:
    async with program() as by, palaver.open(url, tenant="acme", worker=False) as store:
        await chat(by, 6)
        talk = await store.find(KEY)
        await talk.remember("goals", "My own goal")
        row = memory(summary="heliotrope", goals=["My own goal", "heliotrope"], through_sequence=4)
        await by.rows(UPSERT_MEMORY, json.dumps([row]))
        await by.rows("DELETE FROM hal_conversation_messages WHERE sequence = 5")  # HAL had not read it yet
        assert (await by.one("SELECT * FROM hal_conversation_working_memory"))["summary"] == "heliotrope"
        await by.rows("DELETE FROM hal_conversation_messages WHERE sequence = 1")
        kept = await by.one("SELECT * FROM hal_conversation_working_memory")
        assert (kept["summary"], kept["goals"], kept["through_sequence"]) == ("", ["My own goal"], -1)
        assert [note.text for note in (await talk.working_memory()).goals] == ["My own goal"]
        await talk.verify()


# ---- who sees what -------------------------------------------------------------------------------------------------


async def test_tenants_and_users_with_the_same_names_do_not_meet(program: Opener, database: str) -> None:
    callers = [
        application("acme"),
        application("globex"),
        signed_in("initech", "ada"),
        signed_in("initech", "bob"),
    ]
    for turn in range(2):
        for number, settings in enumerate(callers):
            async with program(settings) as by:
                await insert(by, message(f"words of {number}"))
                await by.rows(UPSERT_SUMMARY, summary(f"summary {number}.{turn}", 1))
                (row,) = await by.rows(
                    UPSERT_MEMORY, json.dumps([memory(goals=[f"goal {number}.{turn}"], through_sequence=0)])
                )
                assert row["goals"] == [f"goal {number}.{turn}"]
    for number, settings in enumerate(callers):
        async with program(settings) as by:
            assert set(await contents(by)) == {f"words of {number}"}
            (row,) = await by.rows("SELECT * FROM hal_conversation_summaries")
            assert row["summary_text"] == f"summary {number}.1"
            (row,) = await by.rows("UPDATE hal_conversation_working_memory SET summary = 'mine' RETURNING goals")
            assert row["goals"] == [f"goal {number}.1"]
    async with program(callers[0]) as by:
        await by.rows("DELETE FROM hal_conversation_summaries")
    assert await _count(database, "palaver_compat.summaries") == 3


async def test_two_tenants_upsert_the_same_name_at_once(program: Opener) -> None:
    async def writer(tenant: str) -> None:
        async with program(application(tenant)) as by:
            await insert(by, message("x"))
            for n in range(15):
                (row,) = await by.rows(UPSERT_SUMMARY, summary(f"{tenant} {n}", 1))
                assert row["summary_text"] == f"{tenant} {n}"

    await asyncio.gather(*(writer(tenant) for tenant in ("acme", "globex", "initech")))


async def test_a_row_with_anothers_number_is_refused_and_moves_nothing(program: Opener, database: str) -> None:
    async with program(application("acme")) as ours, program(application("globex")) as theirs:
        await insert(ours, message("x"))
        await ours.rows(UPSERT_SUMMARY, summary("ours", 1))
        await insert(theirs, message("y"))
        await theirs.rows(UPSERT_SUMMARY, summary("theirs", 1))  # this moves our row aside
        (mine,) = await _all(database, "SELECT tenant, cid FROM palaver_compat.summaries WHERE tenant = 'acme'")
        forged = "INSERT INTO palaver_compat.summaries VALUES ($1, $2, 'acme/shop', 'project-manager-1', 'x', 1)"
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await theirs.rows(forged, mine["tenant"], mine["cid"])
        assert (await ours.one("SELECT * FROM hal_conversation_summaries"))["summary_text"] == "ours"


async def test_names_are_looked_up_by_index(program: Opener, database: str) -> None:
    async with program(application("acme") | {"enable_seqscan": "off", "enable_bitmapscan": "off"}) as by:
        await insert(by, *(message(f"say {n}", agent=f"agent {n % 20}") for n in range(200)))
        await _all(database, "ANALYZE")
        found = "SELECT content FROM hal_conversation_messages WHERE project_id = 'acme/shop' AND agent = 'agent 3'"
        plan = [row["QUERY PLAN"] for row in await by.rows(f"EXPLAIN {found}")]
        assert any("threads_by_name" in line for line in plan), plan
        assert any("Index Scan using turns_active" in line for line in plan), plan
        assert len(await by.rows(found)) == 10


async def test_anon_sees_nothing_by_default(program: Opener) -> None:
    async with program() as by, program(anonymous()) as anon:
        await insert(by, message("ours"))
        for table in compat.TABLES["hal"]:
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await anon.rows(f"SELECT * FROM {table}")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await insert(anon, message("theirs"))


async def test_anon_can_be_bound_to_one_tenant(program: Opener, database: str, url: str) -> None:
    async with program() as by:
        await insert(by, message("of acme"))
    await bind(database, anon="kiosk's")
    async with program(anonymous()) as anon, palaver.open(url, tenant="kiosk's", worker=False) as store:
        assert await contents(anon) == []
        await insert(anon, message("of anybody", images=[IMAGE]), message("answer", "assistant"))
        await anon.rows(UPSERT_SUMMARY, summary("Somebody spoke.", 1))
        await anon.rows(UPSERT_MEMORY, json.dumps([memory(goals=["Buy"], through_sequence=1)]))
        assert await contents(anon) == ["of anybody", "answer"]
        await anon.connection.execute("SELECT set_config('palaver.tenant', 'acme', false)")
        assert await contents(anon) == ["of anybody", "answer"]
        talk = await store.find(KEY)
        await talk.verify()
        await store.settle()
        assert await store.search("anybody")
        await anon.rows("DELETE FROM hal_conversation_messages")
        assert await contents(anon) == []
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await anon.rows("SELECT * FROM palaver.api_keys")


@pytest.mark.parametrize("caller", ["ada", "anon", "service"])
async def test_a_first_upsert_needs_no_message_before_it(program: Opener, database: str, url: str, caller: str) -> None:
    await bind(database, anon="acme", service="acme")
    settings = {"ada": signed_in("acme", "ada"), "anon": anonymous(), "service": server_key()}[caller]
    async with program(settings) as by, palaver.open(url, tenant="acme", worker=False) as store:
        (row,) = await by.rows(UPSERT_SUMMARY, summary("Nothing yet.", 0))
        assert (row["summary_text"], row["through_sequence"]) == ("Nothing yet.", 0)
        (row,) = await by.rows(UPSERT_MEMORY, json.dumps([memory(agent="other", goals=["Sell"], through_sequence=0)]))
        assert row["goals"] == ["Sell"]
        (row,) = await by.rows(UPSERT_SUMMARY, summary("Still nothing.", 0))
        assert await by.rows("SELECT * FROM hal_conversation_summaries") == [row]
        owner = {"ada": "ada"}.get(caller)
        for key in (KEY, "acme/shop/other"):
            talk = await store.find(key, owner=owner) if owner else await store.find(key)
            await talk.verify()


async def test_a_token_that_may_only_read_changes_nothing(program: Opener, database: str, url: str) -> None:
    session = "6f1c3a52-3c9e-4a56-9f0e-1d2c3b4a5968"
    async with program(signed_in("acme", "ada")) as ada, palaver.open(url, tenant="acme", worker=False) as store:
        await chat(ada, 4)
        await ada.rows(UPSERT_SUMMARY, summary("They said 0 and 1.", 2))
        await ada.rows(UPSERT_MEMORY, json.dumps([memory(goals=["Sell"], through_sequence=1)]))
        await ada.rows(
            f"INSERT INTO conversation_messages (session_id, role, content) VALUES ('{session}', 'user', 'x')"
        )
        before = [await ada.rows(f"SELECT * FROM {view}") for view in compat.VIEWS]
        assert all(before)
        async with program(signed_in("acme", "ada", palaver_rights="read")) as reader:
            assert [await reader.rows(f"SELECT * FROM {view}") for view in compat.VIEWS] == before
            for sql, *args in (
                (INSERT, json.dumps([message("new")])),
                (UPSERT_SUMMARY, summary("Mine.", 3)),
                (UPSERT_SUMMARY, summary("Mine.", 3).replace("project-manager-1", "another")),
                (UPSERT_MEMORY, json.dumps([memory(goals=["Mine"])])),
                ("UPDATE hal_conversation_messages SET content = 'mine'",),
                ("UPDATE hal_conversation_summaries SET summary_text = 'mine'",),
                ("UPDATE hal_conversation_working_memory SET goals = '{mine}'",),
                ("UPDATE conversation_messages SET content = 'mine'",),
                (f"INSERT INTO conversation_messages (session_id, role, content) VALUES ('{session}', 'user', 'y')",),
                *((f"DELETE FROM {view}",) for view in compat.VIEWS),
            ):
                with pytest.raises(asyncpg.PostgresError) as refused:
                    await reader.rows(sql, *args)
                assert refused.value.sqlstate in ("PV021", "42501")
        assert [await ada.rows(f"SELECT * FROM {view}") for view in compat.VIEWS] == before
        for one in (await store.conversations()).items:
            await (await store.get(one.id)).verify()


# ---- the server key --------------------------------------------------------------------------------------------------


async def test_the_server_key_works_in_its_tenant_and_in_no_other(program: Opener, database: str, url: str) -> None:
    async with program(application("globex")) as others:
        await insert(others, message("of globex", images=[IMAGE]))
        await others.rows(UPSERT_SUMMARY, summary("Theirs.", 1))
        await others.rows(UPSERT_MEMORY, json.dumps([memory(goals=["Theirs"], through_sequence=0)]))
    await bind(database, service="acme")
    async with program(server_key()) as by, palaver.open(url, tenant="acme", worker=False) as store:
        for table in compat.TABLES["hal"]:
            assert await by.rows(f"SELECT * FROM {table}") == []
        await chat(by, 4)
        await insert(by, message("look", images=[IMAGE]), message("Be brief.", "system"))
        images = await by.value("SELECT images FROM hal_conversation_messages WHERE images IS NOT NULL")
        assert json.loads(images) == [IMAGE]
        await by.rows("UPDATE hal_conversation_messages SET content = 'said 1' WHERE sequence = 1")
        await by.rows(UPSERT_SUMMARY, summary("They said 0 to 3.", 4))
        await by.rows(UPSERT_MEMORY, json.dumps([memory(goals=["Sell"], through_sequence=3)]))
        talk = await store.find(KEY)
        assert [one.text for one in await talk.summaries()] == ["They said 0 to 3."]
        assert [note.text for note in (await talk.working_memory()).goals] == ["Sell"]
        await talk.verify()
        for table in compat.TABLES["hal"]:
            await by.rows(f"DELETE FROM {table}")
            assert await by.rows(f"SELECT * FROM {table}") == []
        await talk.verify()
    async with program(application("globex")) as others:
        assert await contents(others) == ["of globex"]
        assert await others.value("SELECT summary_text FROM hal_conversation_summaries") == "Theirs."
        assert await others.value("SELECT goals FROM hal_conversation_working_memory") == ["Theirs"]


async def test_a_server_key_without_a_tenant_is_refused_and_told_what_is_missing(program: Opener) -> None:
    async with program() as ours, program(server_key()) as by:
        await insert(ours, message("ours"))
        for sql in (
            *(f"SELECT * FROM {table}" for table in compat.VIEWS),
            *(f"DELETE FROM {table}" for table in compat.VIEWS),
            "INSERT INTO hal_conversation_messages (project_id, agent, role, content) VALUES ('a', 'b', 'user', 'c')",
            "INSERT INTO hal_conversation_summaries VALUES ('a', 'b', 'c', 0)",
            "INSERT INTO conversation_messages (session_id, role, content) VALUES (gen_random_uuid(), 'user', 'c')",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError, match="not bound to a tenant") as refused:
                await by.rows(sql)
            assert "--service-tenant" in (refused.value.hint or "")
        await by.connection.execute("SELECT set_config('palaver.tenant', 'acme', false)")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await contents(by)


async def test_a_login_without_a_tenant_cannot_write_and_is_told_what_is_missing(program: Opener) -> None:
    async with program({}) as by:
        for sql in (
            "INSERT INTO hal_conversation_messages (project_id, agent, role, content) VALUES ('a', 'b', 'user', 'c')",
            "INSERT INTO hal_conversation_summaries VALUES ('a', 'b', 'c', 0)",
            "INSERT INTO conversation_messages (session_id, role, content) VALUES (gen_random_uuid(), 'user', 'c')",
        ):
            with pytest.raises(asyncpg.PostgresError, match="no tenant") as refused:
                await by.rows(sql)
            assert refused.value.sqlstate == "PV021"
            assert "palaver.tenant" in (refused.value.hint or "")


async def _all(database: str, sql: str) -> list[asyncpg.Record]:
    """Return all rows, as a superuser sees them."""
    connection = await asyncpg.connect(database)
    try:
        return await connection.fetch(sql)
    finally:
        await connection.close()


async def _count(database: str, table: str) -> int:
    (row,) = await _all(database, f"SELECT count(*) AS rows FROM {table}")
    return int(row["rows"])
