"""The session of the OpenAI Agents SDK, with the SDK's own runner and scripted model."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, Runner, SessionSettings, function_tool
from agents.memory import OpenAIResponsesCompactionSession, Session
from agents.memory.session import is_openai_responses_compaction_aware_session
from agents.testing import ScriptedModel
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

import palaver
from palaver import Store
from palaver.adapters.openai_agents import CompactingPalaverSession, PalaverSession
from tests.support.memory import url

ITEMS: list[Any] = [
    {"role": "user", "content": "I'm allergic to peanuts.", "unknown": {"a": [1]}},
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "so"}], "encrypted_content": "x"},
    {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"at": "left"}', "id": "fc_1"},
    {"type": "function_call_output", "call_id": "c1", "output": "a \x00 cat"},
    {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "parts"}]},
    {"type": "web_search_call", "id": "ws_1", "status": "completed"},
    {"type": "message", "role": "assistant", "id": "m_1", "status": "completed", "content": [
        {"type": "output_text", "text": "A cat.", "annotations": [], "logprobs": []}]},
    {"type": "compaction", "encrypted_content": "…"},
    {"role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
]  # fmt: skip


def say(text: str) -> ResponseOutputMessage:
    part = ResponseOutputText(type="output_text", text=text, annotations=[])
    return ResponseOutputMessage(id="m", type="message", role="assistant", status="completed", content=[part])


@pytest.mark.both_engines
async def test_items_come_back_as_they_were(store: Store) -> None:
    session = PalaverSession(store, "s/1")
    assert isinstance(session, Session)
    assert not is_openai_responses_compaction_aware_session(session)
    assert await session.get_items() == []
    assert await session.pop_item() is None
    await session.add_items([])
    await session.add_items(ITEMS)
    assert await PalaverSession(store, "s/1").get_items() == ITEMS
    assert await session.get_items(3) == ITEMS[-3:]
    assert await session.get_items(0) == []
    assert await PalaverSession(store, "s/1", session_settings=SessionSettings(limit=2)).get_items() == ITEMS[-2:]
    assert await PalaverSession(store, "s/1", session_settings={"limit": 2}).get_items(4) == ITEMS[-4:]
    assert [await session.pop_item() for _ in range(2)] == [ITEMS[-1], ITEMS[-2]]
    assert await session.get_items() == ITEMS[:-2]
    await session.clear_session()
    assert await session.get_items() == []
    with pytest.raises(TypeError, match="limitt"):
        PalaverSession(store, "s/1", session_settings={"limitt": 1})


@pytest.mark.both_engines
async def test_no_item_is_popped_twice(store: Store) -> None:
    session = PalaverSession(store, "s/1")
    await session.add_items([{"role": "user", "content": str(n)} for n in range(12)])
    popped = await asyncio.gather(*(PalaverSession(store, "s/1").pop_item() for _ in range(15)))
    assert sorted(int(one["content"]) for one in popped if one) == list(range(12))  # type: ignore[typeddict-item]


@pytest.mark.both_engines
async def test_large_outputs_of_tools(store: Store) -> None:
    """More than fits into metadata, and more than a few thousand items."""
    session = PalaverSession(store, "s/1")
    output = {"type": "function_call_output", "call_id": "c", "output": "row " * 250_000}
    await session.add_items([output])  # type: ignore[list-item]
    assert await session.get_items() == [output]


@pytest.mark.both_engines
async def test_the_words_are_found_and_shown(store: Store) -> None:
    await PalaverSession(store, "s/1").add_items(ITEMS[:7])
    talk = await store.find("s/1")
    await talk.append("user", "What can I eat?")
    await store.settle()
    assert len(await talk.search("peanuts")) == 1
    assert "peanuts" in str((await talk.build_context(2_000)).to_responses())
    assert (await PalaverSession(store, "s/1").get_items())[-1] == {"role": "user", "content": "What can I eat?"}
    await talk.verify()


@pytest.mark.parametrize("way", ["run", "run_sync", "run_streamed"])
def test_an_agent_with_a_tool(tmp_path: Path, way: str) -> None:
    """Every way to run, each with an event loop of its own, over one store."""

    @function_tool
    def dump() -> str:
        return "line\n" * 30_000

    model = ScriptedModel()
    model.enqueue([ResponseFunctionToolCall(type="function_call", call_id="c", name="dump", arguments="{}", id="f")])
    model.enqueue([say("done")])
    model.enqueue([say("still here")])
    agent = Agent(name="a", model=model, tools=[dump])

    async def ask(question: str, session: PalaverSession) -> None:
        if way == "run_streamed":
            result = Runner.run_streamed(agent, question, session=session)
            async for _ in result.stream_events():
                pass
        else:
            await Runner.run(agent, question, session=session)

    with palaver.sync.open(url(tmp_path)) as store:
        session = PalaverSession(store, "s/1")
        for question in ("one?", "two?"):
            if way == "run_sync":
                Runner.run_sync(agent, question, session=session)
            else:
                asyncio.run(ask(question, session))
        kinds = [one.get("type", one.get("role")) for one in asyncio.run(session.get_items())]
    assert kinds == ["user", "function_call", "function_call_output", "message", "user", "message"]
    assert len(model.calls[-1].input) == 5


async def test_compaction_shows_summaries_and_keeps_the_items(tmp_path: Path) -> None:
    async with palaver.open(url(tmp_path), worker=False) as store:
        session = CompactingPalaverSession(store, "s/1", keep_tokens=100)
        assert is_openai_responses_compaction_aware_session(session)
        assert not is_openai_responses_compaction_aware_session(PalaverSession(store, "s/1"))
        given: list[Any] = [
            {"role": "user", "content": f"Remark {n}: the harbour opens at {n} o'clock."} for n in range(60)
        ]
        await session.add_items(given)
        assert await session.get_items() == given
        await session.run_compaction({})
        shown = await session.get_items()
        assert 1 < len(shown) < 30
        assert "harbour" in str(shown[0])
        assert shown[1:] == given[-len(shown) + 1 :]
        assert await PalaverSession(store, "s/1").get_items() == given


async def test_the_sdks_own_compaction_wraps_it(tmp_path: Path) -> None:
    class Compacted:
        id, usage = "r", None
        output = ({"type": "compaction", "encrypted_content": "short"},)

    class Responses:
        async def compact(self, **arguments: Any) -> Compacted:
            return Compacted()

    class Client:
        responses = Responses()

    async with palaver.open(url(tmp_path)) as store:
        inner = PalaverSession(store, "s/1")
        session = OpenAIResponsesCompactionSession("s/1", inner, client=Client())  # type: ignore[arg-type]
        await session.add_items([{"role": "user", "content": str(n)} for n in range(5)])
        await session.run_compaction({"force": True, "compaction_mode": "input"})
        assert await inner.get_items() == [*Compacted.output]
