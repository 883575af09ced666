"""Several questions at once in one conversation: each prompt is about its own question, and holds nothing later."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from palaver import Conversation
from palaver.context.render import messages_text
from palaver.errors import InvalidInput, TurnGone, TurnNotFound
from palaver.model import ToolCall
from palaver.ports.models import CallReady, Finished, ModelEvent, Started, TextDelta
from palaver.testing import ScriptedModel
from palaver.testing.providers import LoopbackProvider
from tests.generation.conftest import Opener

QUESTION = re.compile(r"question-\d+")


class Echo(ScriptedModel):
    """Says the question that its prompt ends with; with `call`, only after a call of that tool."""

    def __init__(self, call: str | None = None) -> None:
        super().__init__(name="echo")
        self.call = call

    async def stream(self, body: dict[str, Any]) -> AsyncIterator[ModelEvent]:
        messages = body["messages"]
        yield Started(None, self.name)
        asked = next(messages_text([one]) for one in reversed(messages) if one["role"] == "user")
        question = QUESTION.findall(asked)[-1]
        if self.call is not None and messages[-1]["role"] != "tool":
            yield CallReady(ToolCall(id=f"call-{question}", name=self.call, arguments={"question": question}))
            yield Finished("tool_calls")
            return
        yield TextDelta(f"about {question}")
        yield Finished("stop")


def said_in(messages: Any) -> set[str]:
    return set(QUESTION.findall(messages_text(list(messages))))


async def check_prompts(talk: Conversation, model: Echo, askers: int) -> None:
    """No prompt holds a question that was stored after its own."""
    order = [turn.text.split()[0] for turn in await talk.history(500) if turn.role == "user"]
    assert len(order) == askers
    for request in model.requests:
        asked = next(messages_text([one]) for one in reversed(request.messages) if one["role"] == "user")
        own = QUESTION.findall(asked)[-1]
        assert said_in(request.messages) <= set(order[: order.index(own) + 1])


@pytest.mark.parametrize("askers", [2, 6, 12])
@pytest.mark.parametrize("policy", ["balanced", "recall-heavy", "recent-chars"])
async def test_each_of_several_questions_gets_its_own_answer(opened: Opener, askers: int, policy: str) -> None:
    model = Echo()
    async with opened(models={"m": model}, model="m") as store:
        talk = await store.conversation("k")
        asked = [f"question-{n} about the same thing" for n in range(askers)]
        answers = await asyncio.gather(*(talk.generate(one, policy=policy) for one in asked))
        assert [one.text for one in answers] == [f"about question-{n}" for n in range(askers)]
        await check_prompts(talk, model, askers)
        await talk.verify()


async def test_each_of_several_questions_keeps_its_own_tool_rounds(opened: Opener) -> None:
    async def look_up(question: str) -> str:
        """Look it up."""
        await asyncio.sleep(0)
        return f"found {question}"

    model = Echo(call="look_up")
    async with opened(models={"m": model}, model="m", generate={"tools": [look_up]}) as store:
        talk = await store.conversation("k")
        answers = await asyncio.gather(*(talk.generate(f"question-{n} now") for n in range(6)))
        assert [one.text for one in answers] == [f"about question-{n}" for n in range(6)]
        await check_prompts(talk, model, 6)
        for request in model.requests:
            results = [one for one in request.messages if one["role"] == "tool"]
            own = next(messages_text([one]) for one in reversed(request.messages) if one["role"] == "user")
            assert all(QUESTION.findall(own)[-1] in messages_text([one]) for one in results)


async def test_answering_the_thread_as_it_stands_ends_where_it_stood(opened: Opener) -> None:
    """Without a message: what is said while a tool runs is not part of the second prompt."""
    model = Echo(call="interrupt")
    async with opened(models={"m": model}, model="m") as store:
        talk = await store.conversation("k")

        async def interrupt(question: str) -> str:
            """Another user speaks while it runs."""
            await talk.append("user", "question-2 came later")
            return "done"

        await talk.append("user", "question-1 is here")
        answer = await talk.generate(tools=[interrupt])
        assert answer.text == "about question-1"
        assert "question-2" not in messages_text(list(model.requests[-1].messages))


FILLER = "Something else entirely, number {n}, that takes up some room in the thread and in the budget."


@pytest.mark.parametrize("scope", ["conversation", "owner", "tenant"])
@pytest.mark.parametrize("budget", [400, 2_000, 16_000])
async def test_a_context_that_is_bound_to_a_turn_holds_nothing_newer(opened: Opener, budget: int, scope: str) -> None:
    async with opened() as store:
        talk = await store.conversation("k", settings={"facts": True})
        other = await store.conversation("other")
        for n in range(40):
            await talk.append("user", FILLER.format(n=n))
        await talk.append("user", "The early zebra lives in Berlin.")
        question = await talk.append("user", "Where does the zebra live?")
        for n in range(60):
            await talk.append("assistant" if n % 2 else "user", f"The late zebra lives in Rome, it says, {n} times.")
        await talk.append(
            "user", "I live in Rome with a zebra. From now on always say zebra. Our goal is a zebra in Rome."
        )
        await other.append("user", "The other zebra lives in Rome.")
        await store.settle()
        await talk.extract_facts()
        context = await talk.build_context(budget, question=question, recall_scope=scope)
        assert "Rome" not in context.text
        assert "early zebra" in context.text
        assert context.messages[-1]["role"] == "user"
        assert context.text.rstrip().endswith("Where does the zebra live?")
        assert context.explanation.turns_total == 42
        assert context.tokens <= budget
        unbound = await talk.build_context(budget, recall_scope=scope)
        assert "Rome" in unbound.text


async def test_a_question_that_was_replaced_is_still_the_one_that_is_answered(opened: Opener) -> None:
    async with opened() as store:
        talk = await store.conversation("k")
        await talk.append("user", "Before.")
        question = await talk.append("user", "question-1 as it was")
        await talk.append("user", "question-2 in its place", replaces=question, discard_after=True)
        context = await talk.build_context(2_000, question=question)
        assert [one["content"] for one in context.messages] == ["Before.", "question-1 as it was"]
        await talk.forget(question)
        with pytest.raises(TurnGone):
            await talk.build_context(2_000, question=question)


async def test_a_chain_goes_on_only_where_the_provider_has_heard_everything(
    opened: Opener, provider: LoopbackProvider
) -> None:
    async with opened(model="responses", generate={"continuity": "auto", "retry_pause": 0.001}) as store:
        talk = await store.conversation("k")
        # All are stored first: on a slow machine, one could otherwise be stored after the answers to the others.
        questions = [await talk.append("user", f"question-{n}") for n in range(4)]
        await asyncio.gather(*(talk.generate(question=question) for question in questions))
        await talk.generate("question-9")
        last = provider.bodies[-1]
        assert "previous_response_id" not in last
        assert {f"question-{n}" for n in (0, 1, 2, 3, 9)} <= set(QUESTION.findall(str(last)))
        await talk.generate("question-10")
        assert "previous_response_id" in provider.bodies[-1], "nobody spoke in between"


@pytest.mark.costly
async def test_a_question_far_back_has_the_turns_before_it(opened: Opener) -> None:
    """More than ten thousand turns follow it: what is read stays bounded, and is what came before the question."""
    async with opened() as store:
        talk = await store.conversation("k", settings={"compaction": {"strategy": "never"}})
        await talk.append_many({"role": "user", "content": f"Early line {n}."} for n in range(300))
        question = await talk.append("user", "Where does the zebra live?")
        calls = {"role": "assistant", "tool_calls": [ToolCall("c", "look", {})], "metadata": {"answers": question.id}}
        await talk.append_many([calls, {"role": "tool", "tool_results": [{"id": "c", "content": "In Berlin."}]}])
        for first in range(0, 11_000, 1_000):
            await talk.append_many({"role": "user", "content": f"Late line {n}."} for n in range(first, first + 1_000))
        for budget in ({"token_budget": 2_000}, {"char_budget": 8_000}):
            context = await talk.build_context(question=question, semantic_recall=False, **budget)
            assert "Late" not in context.text
            assert "Early line 299." in context.text
            assert context.explanation.turns_verbatim > 50
            assert context.explanation.turns_total == 303
            assert [one["role"] for one in context.messages[-3:]] == ["user", "assistant", "tool"]
            assert context.messages[-3]["content"] == "Where does the zebra live?"


async def test_notes_and_facts_of_later_turns_are_not_in_a_context_far_back(opened: Opener) -> None:
    async with opened() as store:
        talk = await store.conversation("k", settings={"facts": True})
        await talk.append("user", "I live in Berlin. Our goal is a zebra in Berlin.")
        question = await talk.append("user", "Where do I live?")
        for n in range(120):
            await talk.append("user", FILLER.format(n=n))
        await talk.append("user", "I live in Rome. Our goal is a zebra in Rome. From now on always say Rome.")
        for n in range(120):
            await talk.append("user", FILLER.format(n=n))
        await store.settle()
        await talk.extract_facts()
        context = await talk.build_context(600, question=question)
        assert "Rome" not in context.text
        assert "Something else" not in context.text
        assert "Berlin" in context.text


async def test_a_stored_question_can_be_named_by_its_id(opened: Opener) -> None:
    async with opened(models={"m": Echo()}, model="m") as store:
        talk = await store.conversation("k")
        question = await talk.append("user", "question-1")
        await talk.append("user", "question-2")
        answer = await talk.generate(question=question.id)
        assert (answer.text, answer.metadata["answers"]) == ("about question-1", question.id)
        with pytest.raises(TurnNotFound):
            await talk.generate(question="nothing")
        wrong: Any = 5
        with pytest.raises(InvalidInput, match="must be a turn or its id"):
            await talk.generate(question=wrong)
