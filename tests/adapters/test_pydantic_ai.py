"""Pydantic AI: messages, and the processor that is build_context, with Pydantic AI's own agent."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pydantic_ai")

from pydantic_ai import Agent
from pydantic_ai.capabilities import ProcessHistory
from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    RetryPromptPart,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.usage import RequestUsage

import palaver
from palaver import Store
from palaver.adapters.pydantic_ai import PalaverHistory
from tests.support.memory import url

PNG = "image/png"
MESSAGES: list[ModelMessage] = [
    ModelRequest(parts=[SystemPromptPart("Be brief."), UserPromptPart("I'm allergic to peanuts.")]),
    ModelResponse(
        parts=[ThinkingPart("so", signature="x"), TextPart("I look."), ToolCallPart("look", {"at": "left"}, "c1")],
        usage=RequestUsage(input_tokens=3),
        model_name="m",
        provider_details={"unknown": [1]},
    ),
    ModelRequest(parts=[ToolReturnPart("look", "a \x00 cat", "c1"), UserPromptPart("And?")]),
    ModelResponse(parts=[ToolCallPart("look", '{"at": 1}', "c2")]),
    ModelRequest(parts=[RetryPromptPart("no such place", tool_name="look", tool_call_id="c2")]),
    ModelRequest(
        parts=[UserPromptPart(["See", ImageUrl("https://x/y.png"), BinaryContent(b"\x00", media_type="image/png")])]
    ),
    ModelResponse(parts=[]),
]


@pytest.mark.both_engines
async def test_messages_come_back_as_they_were(store: Store) -> None:
    history = PalaverHistory(store, "s/1")
    assert await history.messages() == []
    await history.append([])
    await history.append(MESSAGES)
    as_json = ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(MESSAGES))
    assert await PalaverHistory(store, "s/1").messages() == as_json
    talk = await store.find("s/1")
    assert len(await talk.search("peanuts")) == 1
    assert [turn.role for turn in await talk.history()] == [
        "user", "assistant", "tool", "user", "assistant", "tool", "user", "assistant",
    ]  # fmt: skip
    await talk.append("user", "by another program")
    assert (await history.messages())[-1].parts[0].content == "by another program"  # type: ignore[union-attr]
    await history.clear()
    assert await history.messages() == []


async def test_an_agent_with_message_history(tmp_path: Path) -> None:
    seen: list[int] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.append(len(messages))
        return ModelResponse(parts=[TextPart("ok")])

    async with palaver.open(url(tmp_path)) as store:
        history = PalaverHistory(store, "s/1")
        for _ in range(3):
            result = await Agent(FunctionModel(answer)).run("hello", message_history=await history.messages())
            await history.append(result.new_messages())
    assert seen == [1, 3, 5]


async def test_the_processor_shows_a_context_within_the_budget(tmp_path: Path) -> None:
    shown: list[list[ModelMessage]] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        shown.append(messages)
        if len(shown) == 1:
            return ModelResponse(parts=[ToolCallPart("weigh", {}, "c")])
        return ModelResponse(parts=[TextPart("No peanuts.")])

    async with palaver.open(url(tmp_path), worker=False) as store:
        talk = await store.conversation("s/1")
        await talk.append("user", "I'm allergic to peanuts.")
        for number in range(100):
            await talk.append("user", f"Remark {number} about the weather of the town today.")
        await store.settle()
        history = PalaverHistory(store, "s/1")
        agent = Agent(FunctionModel(answer), capabilities=[ProcessHistory(history.processor(600))])

        @agent.tool_plain
        def weigh() -> str:
            return "one kilo"

        result = await agent.run("Are peanuts fine?")
        await history.append(result.new_messages())
        assert "allergic" in str(shown[0])
        assert 3 < len([part for one in shown[0] for part in one.parts]) < 60
        assert shown[0][-1].parts[-1].content == "Are peanuts fine?"  # type: ignore[union-attr]
        assert [type(part).__name__ for one in shown[1] for part in one.parts][-3:] == [
            "UserPromptPart", "ToolCallPart", "ToolReturnPart",
        ]  # fmt: skip
        assert (await talk.refresh()).turn_count == 105
