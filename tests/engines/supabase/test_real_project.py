"""A real Supabase project, if one is configured: it needs the schema, and the tokens of two users.

PALAVER_TEST_SUPABASE_URL (https://…), PALAVER_TEST_SUPABASE_KEY (publishable), PALAVER_TEST_SUPABASE_TOKEN and
PALAVER_TEST_SUPABASE_OTHER_TOKEN. For the tables of older programs it needs `palaver migrate --compat hal
--compat librarian --service-tenant NAME` and PALAVER_TEST_SUPABASE_SERVER_KEY (secret). The tests delete what they
store.
"""

from __future__ import annotations

import os
from typing import Any
from uuid import uuid4

import pytest
from supabase import AsyncClient, acreate_client

import palaver
from palaver.adapters.chat_memory import ChatMemory
from palaver.conversations.internals import components_of

NAMES = [f"PALAVER_TEST_SUPABASE_{name}" for name in ("URL", "KEY", "TOKEN", "OTHER_TOKEN")]
MISSING = [name for name in NAMES if not os.environ.get(name)]


@pytest.mark.skipif(bool(MISSING), reason=f"no real Supabase project to test: {', '.join(MISSING)} not set")
async def test_a_real_project_keeps_a_conversation_for_its_owner() -> None:
    url, key, token, other_token = (os.environ[name] for name in NAMES)
    async with palaver.open(f"supabase+{url}", key=key, token=token) as store:
        other = await store.signed_in(other_token)
        talk = await store.conversation(f"palaver-test/{uuid4()}")
        try:
            await talk.append_many([{"role": "user", "content": f"Plan {n} is green."} for n in range(60)])
            async with talk.stream("assistant", actor="bot") as out:
                await out.write("Noted.")
            file = await talk.attach(b"bytes", filename="note.txt")
            await talk.append("user", "See this.", attachments=[file])
            await store.settle()
            assert [turn.text for turn in await talk.history(limit=2)] == ["Noted.", "See this."]
            assert await talk.recall("plan 7")
            assert await talk.read_attachment(file) == b"bytes"
            await talk.verify()
            with pytest.raises(palaver.ConversationNotFound):
                await other.get(talk.id)
            with pytest.raises(palaver.PalaverError):
                await components_of(other).blobs.get(file.path)
        finally:
            await talk.forget()
        with pytest.raises(palaver.ConversationGone):
            await talk.history()


# ---- the tables of older programs ------------------------------------------------------------------------------------

TABLES = ["PALAVER_TEST_SUPABASE_URL", "PALAVER_TEST_SUPABASE_SERVER_KEY"]
LACKING = [name for name in TABLES if not os.environ.get(name)]


async def use_tables(client: AsyncClient) -> None:
    """Use both programs' tables as they do, with a list of rows in one call too."""
    session, project = str(uuid4()), f"palaver-test/{uuid4()}"
    messages, summaries = client.table("conversation_messages"), client.table("hal_conversation_summaries")
    memory = ChatMemory(client)
    try:
        await memory.add_user_message(session, "say 0", {"n": 0})
        rows: Any = [{"session_id": session, "role": "user", "content": f"say {n}"} for n in (1, 2)]
        await messages.insert(rows).execute()
        assert [one.content for one in await memory.get_messages(session)] == ["say 0", "say 1", "say 2"]
        for text in ("first", "second"):  # before any message
            row = {"project_id": project, "agent": "pm", "summary_text": text, "through_sequence": 0}
            await summaries.upsert(row, on_conflict="project_id,agent").execute()
        found = await summaries.select("summary_text").eq("project_id", project).execute()
        assert found.data == [{"summary_text": "second"}]
        said = {"project_id": project, "agent": "pm", "role": "user", "content": "Hello", "sequence": 0}
        stored = (await client.table("hal_conversation_messages").insert(said).execute()).data
        assert [(row["content"], row["sequence"]) for row in stored] == [("Hello", 0)]
    finally:
        assert await memory.reset(session) == 3
        for table in ("hal_conversation_messages", "hal_conversation_summaries"):
            await client.table(table).delete().eq("project_id", project).execute()


@pytest.mark.skipif(bool(LACKING), reason=f"no real Supabase project to test: {', '.join(LACKING)} not set")
async def test_a_real_project_serves_the_tables_of_older_programs() -> None:
    url, key = (os.environ[name] for name in TABLES)
    await use_tables(await acreate_client(url, key))
