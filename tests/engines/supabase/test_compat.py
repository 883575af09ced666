"""Older programs against their tables, with the real supabase-py client: nobody signs in, there is a URL and a key.

The server is PostgREST-compatible, not PostgREST. Lists of rows in one call are also tested in the SQL that PostgREST
makes of them (tests/engines/postgres/compat).
"""

from __future__ import annotations

import re
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from postgrest import APIError
from supabase import AsyncClient, acreate_client

from palaver.adapters.chat_memory import ChatMemory
from palaver.errors import EngineError
from tests.engines.supabase.conftest import OldProject
from tests.engines.supabase.test_real_project import use_tables

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "chat-memory.md"
PIXEL = b"\x89PNG\r\n\x1a\n" + bytes(range(64))
IMAGE = {
    "dataUrl": "data:image/png;base64," + b64encode(PIXEL).decode(),
    "filename": "shot.png",
    "mimeType": "image/png",
}


async def client_of(project: OldProject, caller: str) -> AsyncClient:
    """Return a client as a program makes it; the key is bound to the tenant acme."""
    if caller in ("service", "anon"):
        await project.bind(**{caller: "acme"})
    key = project.lite.secret_key if caller == "service" else project.lite.publishable_key
    client = await acreate_client(project.url, key)
    if caller == "ada":
        client.postgrest.auth(project.lite.token("ada"))
    return client


# ---- the librarian ---------------------------------------------------------------------------------------------------


class LibrarianMemory:
    """The memory of ai-librarian, with the calls that it makes."""

    def __init__(self, client: AsyncClient, table: str = "conversation_messages") -> None:
        self.client, self.table = client, table

    async def get_messages(self, session_id: str) -> list[BaseMessage]:
        query = self.client.table(self.table).select("*").eq("session_id", session_id)
        return self._messages((await query.order("created_at", desc=False).execute()).data or [])

    async def get_messages_since(self, session_id: str, cutoff: datetime) -> list[BaseMessage]:
        query = self.client.table(self.table).select("role, content").eq("session_id", session_id)
        return self._messages((await query.gte("created_at", cutoff.isoformat()).order("created_at").execute()).data)

    async def load_context(self, session_id: str, max_messages: int = 12) -> list[BaseMessage]:
        query = self.client.table(self.table).select("role, content").eq("session_id", session_id)
        found = await query.order("created_at", desc=True).limit(max_messages).execute()
        return self._messages(list(reversed(found.data or [])))

    async def add(self, session_id: str, role: str, content: str, **more: Any) -> Any:
        row = {"session_id": session_id, "role": role, "content": content, **more}
        return (await self.client.table(self.table).insert(row).execute()).data

    async def reset(self, session_id: str) -> None:
        await self.client.table(self.table).delete().eq("session_id", session_id).execute()

    async def delete_expired_sessions(self, retention_minutes: int = 60) -> None:
        cutoff = datetime.now(UTC) - timedelta(minutes=retention_minutes)
        await self.client.table(self.table).delete().lt("created_at", cutoff.isoformat()).execute()

    @staticmethod
    def _messages(rows: Any) -> list[BaseMessage]:
        return [(HumanMessage if row["role"] == "user" else AIMessage)(content=row["content"]) for row in rows]


@pytest.mark.parametrize("caller", ["service", "anon", "ada"])
async def test_the_librarians_own_class_works(old_project: OldProject, caller: str) -> None:
    memory, session, other = LibrarianMemory(await client_of(old_project, caller)), str(uuid4()), str(uuid4())
    assert await memory.get_messages(session) == []
    start = datetime.now(UTC)
    for n in range(14):
        (row,) = await memory.add(session, "assistant" if n % 2 else "user", f"say {n}", metadata={"n": n})
        assert (row["session_id"], row["content"], row["metadata"]["n"]) == (session, f"say {n}", n)
    await memory.add(other, "user", "old", created_at=(start - timedelta(hours=3)).isoformat())
    found = await memory.get_messages(session)
    assert [one.content for one in found] == [f"say {n}" for n in range(14)]
    assert [type(one) for one in found[:2]] == [HumanMessage, AIMessage]
    assert [one.content for one in await memory.load_context(session)] == [f"say {n}" for n in range(2, 14)]
    assert len(await memory.get_messages_since(session, start - timedelta(minutes=1))) == 14
    await memory.delete_expired_sessions()
    assert await memory.get_messages(other) == []
    async with old_project.opened("acme") as store:
        talks = (await store.conversations()).items
        assert [talk.key for talk in talks] == [session]
        talk = await store.get(talks[0].id)
        assert (await talk.verify()).turns == 14
    await memory.reset(session)
    assert await memory.get_messages(session) == []
    await memory.add(session, "user", "again")
    assert [one.content for one in await memory.get_messages(session)] == ["again"]


@pytest.mark.parametrize("caller", ["service", "anon", "ada"])
async def test_the_adapter_works(old_project: OldProject, caller: str) -> None:
    memory, session = ChatMemory(await client_of(old_project, caller)), uuid4()
    assert await memory.get_messages(session) == []
    await memory.add_user_message(session, "Hello", {"lang": "en"})
    await memory.add_ai_message(session, "Hi")
    found = await memory.get_messages(session)
    assert [(type(one), one.content) for one in found] == [(HumanMessage, "Hello"), (AIMessage, "Hi")]
    assert [one.content for one in await memory.load_context(session, 1)] == ["Hi"]
    assert await memory.get_messages_since(session, datetime.now(UTC) + timedelta(hours=1)) == []
    assert await memory.delete_expired_sessions() == 0
    assert await memory.reset(session) == 2
    assert await memory.get_messages(session) == []


async def test_a_key_that_is_not_bound_is_refused_and_told_what_is_missing(old_project: OldProject) -> None:
    lite = old_project.lite
    for key, told in ((lite.secret_key, "not bound to a tenant"), (lite.publishable_key, "permission denied")):
        client = await acreate_client(old_project.url, key)
        memory = LibrarianMemory(client)
        for use in (lambda: memory.get_messages(str(uuid4())), lambda: memory.add(str(uuid4()), "user", "x")):  # noqa: B023
            with pytest.raises(APIError, match=told) as refused:
                await use()
            assert refused.value.code == "42501"
            if key == lite.secret_key:
                assert "--service-tenant" in (refused.value.hint or "")
        with pytest.raises(EngineError, match="--service-tenant"):
            await ChatMemory(client).get_messages(uuid4())


async def test_the_check_for_real_projects_holds_here(old_project: OldProject) -> None:
    await use_tables(await client_of(old_project, "service"))


async def test_a_key_sees_no_other_tenant(old_project: OldProject) -> None:
    async with old_project.opened("globex") as store:
        await (await store.conversation(str(uuid4()))).append("user", "theirs")
        await (await store.conversation("shop/pm")).append("user", "theirs")
    for caller in ("service", "anon"):
        client = await client_of(old_project, caller)
        for table in ("conversation_messages", "hal_conversation_messages"):
            assert (await client.table(table).select("*").execute()).data == []
            await client.table(table).delete().neq("role", "nobody").execute()
    async with old_project.opened("globex") as store:
        assert (await store.stats()).turns == 2


async def test_the_page_about_chat_memory_runs_as_it_is_written(
    old_project: OldProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    await old_project.bind(service="acme")
    monkeypatch.setenv("SUPABASE_URL", old_project.url)
    monkeypatch.setenv("SUPABASE_KEY", old_project.lite.secret_key)
    page: dict[str, Any] = {"__name__": "page"}
    for block in re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL):
        exec(compile(block, PAGE.name, "exec", dont_inherit=True), page)
    app, session = page["app"], uuid4()
    async with app.router.lifespan_context(app):
        await ChatMemory(app.state.supabase).add_user_message(session, "Hello")
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://app") as browser:
            answer = await browser.get(f"/sessions/{session}/context")
    assert answer.json() == [{"type": "human", "text": "Hello"}]


# ---- HAL -------------------------------------------------------------------------------------------------------------

THREAD = {"project_id": "acme/shop", "agent": "project-manager-1"}
MEMORY = {
    "summary": "A shop.",
    "goals": ["Sell tea"],
    "requirements": [],
    "constraints": ["No coffee"],
    "decisions": [],
    "assumptions": [],
    "open_questions": ["Which tea?"],
    "glossary": {"SKU": "a thing to sell"},
    "stakeholders": ["Ada"],
}


@pytest.mark.parametrize("caller", ["service", "anon", "ada"])
async def test_hals_calls_work(old_project: OldProject, caller: str) -> None:
    client = await client_of(old_project, caller)

    def mine(table: str, columns: str = "*", **options: Any) -> Any:
        query = client.table(f"hal_conversation_{table}").select(columns, **options)
        return query.eq("project_id", "acme/shop").eq("agent", "project-manager-1")

    # memory and summary before any message
    memory = {**THREAD, **MEMORY, "through_sequence": 0, "last_updated_at": datetime.now(UTC).isoformat()}
    upserted = client.table("hal_conversation_working_memory").upsert(memory, on_conflict="project_id,agent")
    assert (await upserted.execute()).data[0]["goals"] == ["Sell tea"]
    summary = {**THREAD, "summary_text": "Nothing yet.", "through_sequence": 0}
    for text in ("Nothing yet.", "Still nothing."):
        row = {**summary, "summary_text": text, "updated_at": datetime.now(UTC).isoformat()}
        await client.table("hal_conversation_summaries").upsert(row, on_conflict="project_id,agent").execute()
    assert [row["summary_text"] for row in (await mine("summaries").execute()).data] == ["Still nothing."]

    for n in range(6):
        row: Any = {**THREAD, "role": "assistant" if n % 2 else "user", "content": f"say {n}", "sequence": n}
        row |= {"images": [IMAGE]} if n == 0 else {}
        await client.table("hal_conversation_messages").insert(row).execute()
    rows = (await mine("messages", "role, content, sequence").order("sequence").execute()).data
    assert [(row["sequence"], row["content"]) for row in rows] == [(n, f"say {n}") for n in range(6)]
    assert (await mine("messages", "images").eq("sequence", 0).execute()).data == [{"images": [IMAGE]}]
    last = await mine("messages", "sequence").order("sequence", desc=True).limit(1).execute()
    assert last.data == [{"sequence": 5}]
    assert (await mine("messages", "id", count="exact").limit(1).execute()).count == 6

    await (
        client.table("hal_conversation_summaries")
        .upsert({**THREAD, "summary_text": "They said 0 to 3.", "through_sequence": 4}, on_conflict="project_id,agent")
        .execute()
    )
    await (
        client.table("hal_conversation_working_memory")
        .upsert({**THREAD, **MEMORY, "decisions": ["Green tea"], "through_sequence": 5}, on_conflict="project_id,agent")
        .execute()
    )
    found = await mine("working_memory").maybe_single().execute()
    assert {name: found.data[name] for name in MEMORY} == {**MEMORY, "decisions": ["Green tea"]}
    edited = client.table("hal_conversation_messages").update({"content": "said 5"}).eq("sequence", 5)
    assert (await edited.eq("project_id", "acme/shop").execute()).data[0]["content"] == "said 5"

    async with old_project.opened("acme") as store:
        talk = await store.get((await store.conversations()).items[0].id)
        assert [one.text for one in await talk.summaries()] == ["They said 0 to 3."]
        assert [note.text for note in (await talk.working_memory()).decisions] == ["Green tea"]
        await talk.verify()
    await client.table("hal_conversation_messages").delete().eq("project_id", "acme/shop").gte("sequence", 0).execute()
    assert (await mine("messages").execute()).data == []
