"""Policy, budget and other options of contexts, set once: for a conversation, an agent, a workspace or the store."""

from __future__ import annotations

from typing import Any

import pytest

from palaver import Agent, Conversation, GenerateSettings, Workspace
from palaver.errors import InvalidInput
from palaver.testing import ScriptedModel
from tests.generation.conftest import Opener

LEVELS: dict[str, Any] = {
    "agents": {"bot": Agent(context={"policy": "recall-heavy", "token_budget": 3_000})},
    "workspaces": {"sales": {"context": {"policy": "last-20", "token_budget": 2_000}}},
    "generate": {"policy": "recent-chars"},
}


async def built(talk: Conversation, **call: Any) -> tuple[str, int, str]:
    """Policy, budget and unit of a context."""
    explanation = (await talk.build_context(**call)).explain()
    return explanation.policy, explanation.budget, explanation.unit


async def answered(talk: Conversation, **call: Any) -> tuple[str, int, str]:
    """Policy, budget and unit of the prompt of an answer, from the record of the request."""
    await talk.generate("Well?", **call)
    told = (await talk.requests())[-1].explanation
    assert told is not None
    return told["policy"], told["budget"], told["unit"]


async def test_call_conversation_agent_workspace_store_in_that_order(opened: Opener) -> None:
    async with opened(models={"m": ScriptedModel(["yes"] * 10)}, model="m", **LEVELS) as store:
        everything: dict[str, Any] = {"agent": "bot", "workspace": "sales"}
        own: dict[str, Any] = {"settings": {"context": {"policy": "oldest-first", "char_budget": 5_000}}}
        places = [
            (everything | own, {"policy": "balanced", "token_budget": 1_500}, ("balanced", 1_500, "tokens")),
            (everything | own, {}, ("oldest-first", 5_000, "characters")),
            (everything, {}, ("recall-heavy", 3_000, "tokens")),
            ({"workspace": "sales"}, {}, ("last-20", 2_000, "tokens")),
            ({}, {}, ("recent-chars", 12_000, "characters")),
        ]
        for at, (fields, call, expected) in enumerate(places):
            talk = await store.conversation(f"talk {at}", **fields)
            await talk.append("user", "Hello.")
            assert await built(talk, **call) == expected
            assert await answered(talk, **call) == expected
        talk = await store.conversation("named in the call", workspace="sales")
        assert (await answered(talk, agent="bot"))[0] == "recall-heavy"
        assert (await built(talk, viewer="bot"))[0] == "recall-heavy"


async def test_the_policy_has_the_last_word(opened: Opener) -> None:
    async with opened() as store:
        talk = await store.conversation("k")
        await talk.append("user", "Hello.")
        assert await built(talk) == ("balanced", 8_000, "tokens")


async def test_other_options_are_obeyed_as_well(opened: Opener) -> None:
    settings: Any = {"context": {"recent_turns": 2, "semantic_recall": False, "note_omissions": False}}
    async with opened(models={"m": ScriptedModel(["yes"] * 3)}, model="m") as store:
        talk = await store.conversation("k", settings=settings)
        for number in range(9):
            await talk.append("user" if number % 2 == 0 else "assistant", f"message {number}")
        context = await talk.build_context()
        assert len(context.turn_ids) == 3
        assert len((await talk.build_context(recent_turns=9)).turn_ids) == 9
        await talk.update(settings={})
        assert len((await talk.build_context()).turn_ids) == 9


async def test_a_token_budget_of_the_store_holds_for_build_context_too(opened: Opener) -> None:
    async with opened(generate={"token_budget": 700}) as store:
        talk = await store.conversation("k")
        await talk.append("user", "Hello.")
        assert await built(talk) == ("balanced", 700, "tokens")


def test_settings_of_the_store_are_checked() -> None:
    GenerateSettings(context={"policy": "last-20"})
    for wrong in (
        {"context": {"policy": "x"}},
        {"token_budget": 0},
        {"token_budget": 5, "context": {"char_budget": 5}},
    ):
        with pytest.raises(InvalidInput):
            GenerateSettings(**wrong)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"generate": {"policy": "x"}}, "generate.policy"),
    ({"generate": {"polcy": "x"}}, "generate.polcy"),
    ({"generate": {"context": {"polcy": "x"}}}, "generate.context.polcy"),
    ({"generate": {"policy": "last-20", "context": {"policy": "last-20"}}}, "generate.policy"),
    ({"agents": {"a": {"context": {"recent_turns": -1}}}}, "agents.a.context.recent_turns"),
    ({"agents": {"a": {"policy": "last-20"}}}, "agents.a.policy"),
    ({"workspaces": {"w": {"context": {"policy": 1}}}}, "workspaces.w.context.policy"),
    ({"workspaces": {"w": {"modle": "m"}}}, "workspaces.w.modle"),
    ({"workspaces": {"w": 5}}, "workspaces.w"),
]


@pytest.mark.parametrize(("wrong", "field"), WRONG)
async def test_a_mistake_in_open_is_named(opened: Opener, wrong: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        async with opened(**wrong):
            pass
    assert refusal.value.field == field


async def test_a_workspace_may_have_a_model_and_a_context(opened: Opener) -> None:
    spaces = {"sales": Workspace(model="m", context={"policy": "last-20"}), "old": "m"}
    async with opened(models={"m": ScriptedModel(["yes"] * 3)}, workspaces=spaces) as store:
        talk = await store.conversation("k", workspace="sales")
        assert (await talk.generate("Well?")).text == "yes"
        assert (await built(talk))[0] == "last-20"
        assert (await (await store.conversation("j", workspace="old")).generate("Well?")).text == "yes"
