"""Google ADK's services, compared with its own in-memory ones, and with its runner."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("google.adk")

from google.adk.agents import BaseAgent
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event, EventActions
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.runners import Runner
from google.adk.sessions import BaseSessionService, InMemorySessionService
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types

import palaver
from palaver import Store
from palaver.adapters.google_adk import PalaverMemoryService, PalaverSessionService
from tests.support.memory import url

WHO: dict[str, Any] = {"app_name": "app", "user_id": "a/da"}


def event(number: int, text: str = "", author: str = "user", **delta: Any) -> Event:
    parts = [types.Part(text=text)] if text else None
    content = types.Content(role="user", parts=parts) if parts else None
    state = {name.replace("__", ":"): value for name, value in delta.items()}
    return Event(id=f"e{number}", author=author, content=content, timestamp=100.0 + number, invocation_id="i",
                 actions=EventActions(state_delta=state))  # fmt: skip


async def program(service: BaseSessionService) -> list[Any]:
    """Do the same with any service, and return everything that it answered."""
    seen: list[Any] = []
    session = await service.create_session(
        **WHO, state={"own": 1, "app:all": "x", "user:mine": [1], "temp:gone": 1}, session_id=" s1 "
    )
    seen.append((session.id, session.state, session.events))
    with pytest.raises(AlreadyExistsError):
        await service.create_session(**WHO, session_id="s1")
    first = event(1, "I'm allergic to peanuts.", app__all="y", own=2, temp__t=3)
    await service.append_event(session, first)
    await service.append_event(session, first)
    seen.append((session.state, len(session.events)))
    await service.append_event(session, event(2, "partial").model_copy(update={"partial": True}))
    await service.append_event(session, event(3, "Noted.", "helper", user__mine=[2], own=None))
    await service.append_event(session, event(4, author="helper"))
    call = types.Part(function_call=types.FunctionCall(id="c", name="look", args={"at": 1}))
    reply = types.Part(function_response=types.FunctionResponse(id="c", name="look", response={"r": b"\x00".hex()}))
    for number, (role, part) in enumerate([("model", call), ("user", reply)], 5):
        content = types.Content(role=role, parts=[part])
        await service.append_event(session, event(number, author="helper").model_copy(update={"content": content}))
    seen.append(session.last_update_time)
    other = await service.create_session(**{**WHO, "user_id": "bob"}, session_id="s2")
    seen.append(other.state)
    asked = [{}, {"num_recent_events": 2}, {"num_recent_events": 0}, {"after_timestamp": 103.0},
             {"num_recent_events": 4, "after_timestamp": 105}]  # fmt: skip
    for config in asked:
        found = await service.get_session(**WHO, session_id="s1", config=GetSessionConfig(**config))  # type: ignore[arg-type]
        assert found is not None
        seen.append((found.id, found.app_name, found.user_id, found.state, found.events, found.last_update_time))
    seen.append(await service.get_session(**WHO, session_id="none"))
    seen.append(await service.get_user_state(**WHO))
    seen.append(await service.get_user_state(app_name="none", user_id="x"))
    listed = [await service.list_sessions(**WHO), await service.list_sessions(app_name="app"),
              await service.list_sessions(app_name="none")]  # fmt: skip
    seen += [[(one.id, one.user_id, one.events, one.state) for one in page.sessions] for page in listed]
    await service.delete_session(**WHO, session_id="s1")
    await service.delete_session(**WHO, session_id="none")
    seen.append(await service.get_session(**WHO, session_id="s1"))
    with pytest.raises(SessionNotFoundError):
        await service.append_event(session, event(9, "late"))
    again = await service.create_session(**WHO, session_id="s1")
    seen.append((again.state, again.events))
    return seen


@pytest.mark.both_engines
async def test_it_agrees_with_adks_own_service(store: Store) -> None:
    ours, theirs = await program(PalaverSessionService(store)), await program(InMemorySessionService())
    for one, other in zip(ours, theirs, strict=True):
        assert one == other


@pytest.mark.both_engines
async def test_events_are_talk(store: Store) -> None:
    service = PalaverSessionService(store)
    session = await service.create_session(**WHO, session_id="s1")
    await service.append_event(session, event(1, "I'm allergic to peanuts."))
    talk = await store.find("adk/app/a%2Fda/s1")
    assert len(await talk.search("peanuts")) == 1
    assert "peanuts" in str((await talk.build_context(1_000)).to_openai())
    await talk.verify()


async def test_shared_state_stays_small(tmp_path: Path) -> None:
    async with palaver.open(url(tmp_path)) as store:
        service = PalaverSessionService(store)
        session = await service.create_session(**WHO, session_id="s1")
        for number in range(60):
            await service.append_event(session, event(number, user__count=number))
        assert await service.get_user_state(**WHO) == {"count": 59}
        assert await service.get_user_state(**WHO) == {"count": 59}
        assert (await store.find("adk-state/app/a%2Fda")).info.turn_count == 1


class Parrot(BaseAgent):
    async def _run_async_impl(self, ctx: Any) -> AsyncGenerator[Event]:
        said = [one.content.parts[0].text for one in ctx.session.events if one.author == "user"]
        content = types.Content(role="model", parts=[types.Part(text=" | ".join(said))])
        yield Event(author=self.name, content=content, invocation_id=ctx.invocation_id)


async def test_a_runner(tmp_path: Path) -> None:
    async with palaver.open(url(tmp_path)) as store:
        sessions, memory = PalaverSessionService(store), PalaverMemoryService(store)
        await sessions.create_session(**WHO, session_id="s1")
        runner = Runner(agent=Parrot(name="parrot"), app_name="app", session_service=sessions, memory_service=memory)
        said = []
        for text in ("My dog is Rex.", "And?"):
            message = types.Content(role="user", parts=[types.Part(text=text)])
            async for one in runner.run_async(user_id="a/da", session_id="s1", new_message=message):
                said.append(one.content.parts[0].text)  # type: ignore[index,union-attr]
        assert said == ["My dog is Rex.", "My dog is Rex. | And?"]


@pytest.mark.both_engines
async def test_memory(store: Store) -> None:
    memory, sessions = PalaverMemoryService(store, k=3), PalaverSessionService(store)
    assert (await memory.search_memory(**WHO, query="dog")).memories == []
    session = await sessions.create_session(**WHO, session_id="s1")
    for number, text in enumerate(("My dog is called Rex.", "It rains.", "")):
        await sessions.append_event(session, event(number, text))
    await memory.add_session_to_memory(session)
    await memory.add_session_to_memory(session)
    await memory.add_events_to_memory(**WHO, events=session.events)
    content = types.Content(parts=[types.Part(text="The cat is called Tom.")])
    await memory.add_memory(**WHO, memories=[MemoryEntry(content=content, author="me", custom_metadata={"a": 1})])
    await store.settle()
    found = (await memory.search_memory(**WHO, query="dog")).memories
    assert found[0].content.parts[0].text == "My dog is called Rex."  # type: ignore[index]
    assert found[0].author == "user"
    cats = (await memory.search_memory(**WHO, query="cat Tom")).memories
    assert cats[0].custom_metadata == {"a": 1}
    assert (await memory.search_memory(app_name="app", user_id="bob", query="dog")).memories == []
    await memory.delete_memory(**WHO, memory_id=found[0].id)
    await memory.delete_memory(**WHO, memory_id=found[0].id)
    await memory.add_session_to_memory(session)
    texts = [one.content.parts[0].text for one in (await memory.search_memory(**WHO, query="dog")).memories]  # type: ignore[index]
    assert "My dog is called Rex." not in texts
