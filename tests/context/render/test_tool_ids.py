"""With any ids, names and parts that are stored, the prompt of each provider keeps that provider's rules."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

import palaver
from palaver.context.inputs import Context, Material
from palaver.context.options import POLICIES, Options
from palaver.context.pack import pack_context
from palaver.context.render import (
    map_tool_calls,
    original_names,
    provider_name,
    to_anthropic,
    to_openai,
    to_responses,
)
from palaver.model import Image, Text, ToolCall, ToolResult, Turn
from tests.context.test_properties import COUNT, turn
from tests.support.provider_rules import check_anthropic, check_chat, check_responses

ODD_NAMES = [
    "look",
    "functions.get_weather",
    "files/read",
    "größe",
    "a" * 64,
    "a" * 65,
    "a" * 200,
    "🙂",
    "look up",
    "_",
]
ODD_IDS = [
    "call_0",
    "call_0",
    "call_1",
    "functions.get_weather:0",
    "x" * 41,
    "x" * 64,
    "x" * 180,
    "é",
    "call_0-2",
    "a b",
]
IMAGE = Image(url="https://example.org/cat.png")


@st.composite
def odd_histories(draw: Any) -> list[Turn]:
    """Rounds whose ids repeat, broken rounds, results without a call, and images that an assistant sent."""
    turns: list[Turn] = []
    for step in draw(
        st.lists(st.sampled_from(["user", "assistant", "round", "broken", "orphan", "image"]), max_size=16)
    ):
        index = len(turns)
        if step in ("user", "assistant"):
            turns.append(turn(index, step, draw(st.sampled_from(["Hello.", "", "  \n", "word " * 40]))))
        elif step == "image":
            role = draw(st.sampled_from(["user", "assistant"]))
            turns.append(replace(turn(index, role, "See:"), content=(Text("See:"), IMAGE)))
        elif step == "orphan":
            turns.append(turn(index, "tool", "", tool_results=(ToolResult(draw(st.sampled_from(ODD_IDS)), "x"),)))
        else:
            ids = draw(st.lists(st.sampled_from(ODD_IDS), min_size=1, max_size=3, unique=True))
            calls = tuple(ToolCall(id, draw(st.sampled_from(ODD_NAMES)), {"q": "nuts"}) for id in ids)
            turns.append(turn(index, "assistant", draw(st.sampled_from(["", "I look."])), tool_calls=calls))
            if step == "round":
                results = tuple(ToolResult(id, f"result of {id} in {index}") for id in draw(st.permutations(ids)))
                turns.append(turn(len(turns), "tool", "", tool_results=results))
    return turns


def check_every_provider(context: Context) -> None:
    check_chat(context.to_openai())
    check_responses(context.to_responses())
    check_anthropic(context.to_anthropic())


def pack(turns: list[Turn], policy: str, budget: int, instructions: str | None) -> Context:
    current = next((one for one in reversed(turns) if one.role == "user"), None)
    material = Material(turn_count=len(turns), owner="ada", conversation="C", tail=tuple(turns), current=current)
    options = Options(policy=POLICIES[policy], token_budget=budget, instructions=instructions)
    return pack_context(material, options, COUNT)


quick = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
long = settings(max_examples=10_000, deadline=None, suppress_health_check=list(HealthCheck))
PROGRAMS = (
    odd_histories(),
    st.sampled_from(list(POLICIES)),
    st.integers(2_000, 8_000),
    st.sampled_from([None, "Be brief."]),
)


@pytest.mark.costly
@quick
@given(*PROGRAMS)
def test_every_context_is_acceptable_to_every_provider(
    turns: list[Turn], policy: str, budget: int, instructions: str | None
) -> None:
    check_every_provider(pack(turns, policy, budget, instructions))


@pytest.mark.slow
@long
@given(*PROGRAMS)
def test_the_same_for_many_histories(turns: list[Turn], policy: str, budget: int, instructions: str | None) -> None:
    check_every_provider(pack(turns, policy, budget, instructions))


@pytest.mark.costly
@quick
@given(odd_histories())
def test_every_result_goes_to_its_own_call(turns: list[Turn]) -> None:
    messages = pack(turns, "balanced", 8_000, None).messages
    pairs = _pairs(messages)
    mapped = map_tool_calls(messages, 40)
    assert [(name, result) for _, name, result in _pairs(mapped.messages)] == [
        (provider_name(name), result) for _, name, result in pairs
    ]
    assert map_tool_calls(mapped.messages, 40).messages == mapped.messages, "mapping twice changes nothing"


def _pairs(messages: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """The id and name of each call, with its result, which follows it."""
    found = []
    for index, message in enumerate(messages):
        results = {}
        for later in messages[index + 1 :]:
            if later["role"] != "tool":
                break
            results[later["tool_call_id"]] = later["content"]
        found += [(call["id"], call["name"], results[call["id"]]) for call in message.get("tool_calls", ())]
    return found


def test_accepted_ids_and_names_stay_as_they_are() -> None:
    call = {"id": "call_7", "name": "look", "arguments": "{}"}
    messages = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_7", "content": "seen"},
    ]
    assert map_tool_calls(messages).messages == messages


def test_a_name_maps_to_the_same_name_everywhere_and_back() -> None:
    names = [provider_name(name) for name in ODD_NAMES]
    assert len(set(names)) == len(ODD_NAMES)
    back = original_names(ODD_NAMES)
    assert [back.get(name, name) for name in names] == ODD_NAMES
    assert "look" not in back


@pytest.mark.parametrize("messages", [[], [{"role": "system", "content": "Be brief."}]])
def test_a_prompt_without_any_turn_is_acceptable(messages: list[dict[str, Any]]) -> None:
    check_chat(to_openai(messages))
    check_responses(to_responses(messages))
    check_anthropic(to_anthropic(messages))


async def test_a_thread_without_a_user_is_acceptable() -> None:
    async with palaver.open("memory:") as store:
        talk = await store.conversation("k")
        check_every_provider(await talk.build_context(1_000))
        await talk.append("assistant", "Hello, how can I help?")
        await talk.append("assistant", "Nobody there?")
        check_every_provider(await talk.build_context(1_000))
