"""Any program of tool rounds gives requests that each provider accepts: pairs whole, roles valid, under budget."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import palaver
from palaver import ToolCall
from palaver.context.render import message_text
from palaver.models.anthropic import AnthropicMessages
from palaver.models.openai.chat import OpenAIChat
from palaver.models.openai.responses import OpenAIResponses
from palaver.models.tokens import counter_for
from palaver.ports.models import ModelRequest
from palaver.testing import ScriptedModel

MODEL = "openai:gpt-5"
COUNT = counter_for(MODEL)
CHAT = OpenAIChat("gpt-5", api_key="none")
RESPONSES = OpenAIResponses("gpt-5", api_key="none")
MESSAGES = AnthropicMessages("claude", api_key="none")


def say(words: int, fail: bool = False) -> str:
    """Says a number of words, or fails."""
    if fail:
        raise RuntimeError("as asked")
    return "lorem ipsum " * words


calls = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["say", "say", "say", "unknown"]),
        "arguments": st.one_of(
            st.fixed_dictionaries({"words": st.integers(0, 1_500)}),
            st.fixed_dictionaries({"words": st.integers(0, 3), "fail": st.booleans()}),
            st.sampled_from(["{broken", {"words": "many"}, {}]),
        ),
    }
)
rounds = st.lists(st.tuples(st.sampled_from(["", "I look.", "word " * 300]), st.lists(calls, min_size=1, max_size=4)))
programs = st.fixed_dictionaries(
    {
        "before": st.lists(st.sampled_from(["short", "word " * 120, "lorem " * 700]), max_size=12),
        "rounds": rounds,
        "budget": st.integers(500, 4_000),
        "limit": st.integers(1, 5),
        "policy": st.sampled_from(["balanced", "recall-heavy"]),
    }
)


class Watched(ScriptedModel):
    """A model that holds every request against the rules of each provider."""

    budget = 0

    def body(self, request: ModelRequest) -> dict[str, Any]:
        check_chat(CHAT.body(request))
        check_responses(RESPONSES.body(request))
        check_messages(MESSAGES.body(request))
        weight = sum(COUNT(message_text(message)) for message in request.messages)
        weight += sum(COUNT(tool.description) for tool in request.tools)
        assert weight <= self.budget
        return super().body(request)


def check_chat(body: dict[str, Any]) -> None:
    """A call is followed at once by its results, each once; nothing else is a result."""
    waiting: list[str] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            assert waiting
            assert message["tool_call_id"] in waiting
            waiting.remove(message["tool_call_id"])
        else:
            assert waiting == []
            assert message["role"] in ("system", "user", "assistant")
        if message.get("tool_calls"):
            waiting = [call["id"] for call in message["tool_calls"]]
            assert all(isinstance(call["function"]["arguments"], str) for call in message["tool_calls"])
    assert waiting == []
    assert body["messages"][-1]["role"] in ("user", "tool")


def check_responses(body: dict[str, Any]) -> None:
    made = [item["call_id"] for item in body["input"] if item.get("type") == "function_call"]
    answered = [item["call_id"] for item in body["input"] if item.get("type") == "function_call_output"]
    assert made == answered
    assert len(set(made)) == len(made)
    assert all(item.get("role") != "system" for item in body["input"])


def check_messages(body: dict[str, Any]) -> None:
    messages = body["messages"]
    assert messages[0]["role"] == "user"
    assert messages[-1]["role"] == "user"
    for one, other in pairwise(messages):
        assert one["role"] != other["role"]
        used = [block["id"] for block in one["content"] if block["type"] == "tool_use"]
        results = [block["tool_use_id"] for block in other["content"] if block["type"] == "tool_result"]
        assert used == results
        kinds = [block["type"] for block in other["content"]]
        assert kinds[: len(results)] == ["tool_result"] * len(results)  # results come first
    for message in messages:
        assert message["content"]
        assert all(isinstance(block["input"], dict) for block in message["content"] if block["type"] == "tool_use")


async def run(program: dict[str, Any]) -> None:
    steps: list[Any] = []
    for number, (text, planned) in enumerate(program["rounds"]):
        made = [ToolCall(f"c{number}_{n}", one["name"], one["arguments"]) for n, one in enumerate(planned)]
        steps.append([text, *made] if text else made)
    model = Watched([*steps, "The end."], name=MODEL)
    model.budget = program["budget"]
    limits = {"tool_rounds": program["limit"], "titles": False}
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/chat.db?synchronous=NORMAL"
        async with palaver.open(url, models={"m": model}, model="m", generate=limits, worker=False) as store:
            talk = await store.conversation("x")
            roles = ("user", "assistant")
            before = [{"role": roles[n % 2], "content": text} for n, text in enumerate(program["before"])]
            await talk.append_many(before)
            answer = await talk.generate("What now?", tools=[say], **options(program))
            assert not answer.tool_calls
            assert len(model.requests) == min(len(steps), program["limit"]) + 1
            assert [request.tool_choice for request in model.requests].count("none") <= 1
            await talk.generate("And then?", tools=[say], **options(program)) if model._script else None
            await talk.verify()


def options(program: dict[str, Any]) -> dict[str, Any]:
    return {"token_budget": program["budget"], "policy": program["policy"]}


SLOW = (HealthCheck.too_slow,)


@pytest.mark.costly
@settings(max_examples=40, deadline=None, suppress_health_check=SLOW)
@given(programs)
def test_any_program_of_tool_rounds_is_acceptable_to_every_provider(program: dict[str, Any]) -> None:
    asyncio.run(run(program))


@pytest.mark.slow
@settings(max_examples=2_000, deadline=None, suppress_health_check=SLOW)
@given(programs)
def test_and_so_are_thousands_of_them(program: dict[str, Any]) -> None:
    asyncio.run(run(program))
