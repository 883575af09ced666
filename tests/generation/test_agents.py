"""Several agents and people in one thread: each agent sees it with its own eyes."""

from __future__ import annotations

from itertools import pairwise

import pytest

from palaver import Agent, Scope
from palaver.errors import InvalidInput
from palaver.testing import ScriptedModel
from palaver.testing.providers import LoopbackProvider, Say
from tests.generation.conftest import Opener

AGENTS = {
    "planner": Agent(instructions="You plan.", model="plans"),
    "critic": Agent(instructions="You criticise.", model="criticises"),
}


async def test_two_agents_and_a_person_talk_in_one_thread(opened: Opener) -> None:
    plans, criticises = ScriptedModel(["Go by train.", "Then by bus."]), ScriptedModel(["Too slow."])
    models = {"plans": plans, "criticises": criticises}
    async with opened(models=models, agents=AGENTS) as store:
        talk = await store.conversation("trip", owner="ada")
        await talk.generate("How do we get to Rome?", agent="planner", semantic_recall=False)
        await talk.generate(agent="critic", semantic_recall=False)
        await talk.generate(agent="planner", semantic_recall=False)
        said = [(turn.role, turn.actor, turn.text) for turn in await talk.history()]
        assert said == [
            ("user", "ada", "How do we get to Rome?"),
            ("assistant", "planner", "Go by train."),
            ("assistant", "critic", "Too slow."),
            ("assistant", "planner", "Then by bus."),
        ]
        assert criticises.calls[0] == [
            {"role": "system", "content": "You criticise."},
            {"role": "user", "content": "How do we get to Rome?"},
            {"role": "user", "content": "planner: Go by train."},
        ]
        assert plans.calls[1] == [
            {"role": "system", "content": "You plan."},
            {"role": "user", "content": "How do we get to Rome?"},
            {"role": "assistant", "content": "Go by train."},
            {"role": "user", "content": "critic: Too slow."},
        ]
        await talk.verify()


async def test_an_agent_may_see_only_some_of_it(opened: Opener) -> None:
    model = ScriptedModel(["Fine."] * 2)
    agents = {"critic": Agent(model="m", sees=["planner", "critic"])}
    async with opened(models={"m": model}, agents=agents) as store:
        talk = await store.conversation("trip")
        await talk.append("user", "A secret of mine.")
        await talk.append("assistant", "Go by train.", actor="planner")
        await talk.generate(agent="critic", semantic_recall=False)
        assert "secret" not in str(model.calls[0])
        assert "Go by train." in str(model.calls[0])


async def test_roles_suit_each_provider(opened: Opener, provider: LoopbackProvider, name: str) -> None:
    provider.script(Say("Go by train."), Say("Too slow."), Say("By bus then."))
    agents = {one: Agent(instructions=f"You are {one}.", model=name) for one in ("planner", "critic")}
    async with opened(agents=agents) as store:
        talk = await store.conversation("trip")
        await talk.generate("How do we get to Rome?", agent="planner")
        await talk.generate(agent="critic")
        await talk.generate(agent="planner")
    for body in provider.bodies:
        messages = [m for m in body.get("messages", body.get("input")) if m["role"] != "system"]
        assert messages[0]["role"] == "user"
        assert messages[-1]["role"] == "user"
        if name == "messages":
            assert all(a["role"] != b["role"] for a, b in pairwise(messages))


async def test_a_conversation_may_have_its_agent(opened: Opener) -> None:
    model = ScriptedModel(["Yes."])
    async with opened(models={"plans": model}, agents={"planner": AGENTS["planner"]}) as store:
        talk = await store.conversation("trip", agent="planner")
        answer = await talk.generate("Well?")
        assert (answer.actor, answer.text) == ("planner", "Yes.")
        assert model.calls[0][0] == {"role": "system", "content": "You plan."}
        with pytest.raises(InvalidInput, match="nobody"):
            await talk.generate("Well?", agent="nobody")


async def test_participants_speak_under_their_own_names(opened: Opener) -> None:
    model = ScriptedModel(["Yes."] * 2)
    async with opened(models={"m": model}, model="m") as store:
        talk = await store.conversation("trip", participants=["bob"])
        await talk.generate("I want to go.")
        bob = await store.scoped(Scope.of("default", "bob")).get(talk.id)
        await bob.generate("Me too.")
        assert model.calls[1][-1]["content"].endswith("bob: Me too.")
