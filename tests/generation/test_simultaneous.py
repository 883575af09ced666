"""Simultaneous questions: answered in parallel, one after the other, or refused; by setting and by default."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from palaver import Answered, Conversation, Turn
from palaver.context.render import messages_text, to_openai
from palaver.conversations.internals import components_of
from palaver.errors import ConversationBusy, InvalidInput, QueueTimeout
from palaver.ports.answer_places import PlaceRequest
from palaver.ports.models import ModelEvent
from palaver.testing import FakeClock
from tests.generation.conftest import Opener
from tests.generation.test_several_questions import QUESTION, Echo, said_in
from tests.support.provider_rules import check_chat

LEASE = 30_000_000  # microseconds


class Gated(Echo):
    """A model that answers only while its gate is open, and counts its simultaneous answers."""

    def __init__(self, call: str | None = None) -> None:
        super().__init__(call)
        self.gate = asyncio.Event()
        self.starts: asyncio.Queue[None] = asyncio.Queue()
        self.running = self.most = 0

    async def until_started(self, answers: int = 1) -> None:
        """Wait for this number of further answers to begin."""
        for _ in range(answers):
            await self.starts.get()

    async def stream(self, body: dict[str, Any]) -> AsyncIterator[ModelEvent]:
        self.running += 1
        self.most = max(self.most, self.running)
        self.starts.put_nowait(None)
        try:
            await self.gate.wait()
            async for event in super().stream(body):
                yield event
        finally:
            self.running -= 1


def texts(messages: Any) -> list[str]:
    """The questions and answers in a prompt, in order."""
    return re.findall(r"about question-\d+|question-\d+", messages_text(list(messages)))


@pytest.mark.parametrize("askers", [2, 5, 12])
async def test_queued_questions_are_answered_one_after_the_other_in_their_order(opened: Opener, askers: int) -> None:
    model = Gated()
    model.gate.set()
    async with opened(models={"m": model}, model="m") as store:
        talk = await store.conversation("k", settings={"simultaneous": "queue"})
        answers = await asyncio.gather(*(talk.generate(f"question-{n}") for n in range(askers)))
        assert [one.text for one in answers] == [f"about question-{n}" for n in range(askers)]
        assert model.most == 1
        turns = await talk.history(100)
        order = [one.text for one in turns if one.role == "user"]
        assert [one.text for one in turns if one.role == "assistant"] == [f"about {one}" for one in order]
        await check_queued_prompts(model, order)
        await talk.verify()


async def test_two_stores_on_one_database_share_the_queue(opened: Opener) -> None:
    """As two processes do: each has an engine of its own."""
    model = Gated()
    model.gate.set()
    settings = {"simultaneous": "queue"}
    async with (
        opened(models={"m": model}, model="m", generate=settings) as one,
        opened(models={"m": model}, model="m", generate=settings) as two,
    ):
        talks = [await one.conversation("k"), await two.conversation("k")]
        answers = await asyncio.gather(*(talks[n % 2].generate(f"question-{n}") for n in range(8)))
        assert [one.text for one in answers] == [f"about question-{n}" for n in range(8)]
        assert model.most == 1
        order = [one.text for one in await talks[0].history(100) if one.role == "user"]
        await check_queued_prompts(model, order)
        await talks[0].verify()


async def check_queued_prompts(model: Echo, order: list[str]) -> None:
    """The prompts come in the order of the questions, and each has all earlier ones with their answers, and no more."""
    for number, request in enumerate(model.requests):
        said = texts(request.messages)
        assert said[-1] == order[number]
        check_earlier(order[:number], said[:-1])
        assert request.messages[-1]["role"] == "user"


def check_earlier(questions: list[str], said: list[str]) -> None:
    """Each question once, in order, and behind it its answer, once.

    A question that was stored while others waited stands behind the answers of that time: not every answer is next to
    its question.
    """
    assert [one for one in said if not one.startswith("about")] == questions
    assert sorted(said) == sorted([*questions, *(f"about {one}" for one in questions)])
    assert all(said.index(f"about {one}") > said.index(one) for one in questions)


async def test_a_queued_question_comes_behind_the_tool_rounds_that_it_waited_for(opened: Opener) -> None:
    async def look_up(question: str) -> str:
        """Look it up."""
        return f"found {question}"

    model = Gated(call="look_up")
    model.gate.set()
    settings = {"tools": [look_up], "simultaneous": "queue"}
    async with opened(models={"m": model}, model="m", generate=settings) as store:
        talk = await store.conversation("k")
        answers = await asyncio.gather(*(talk.generate(f"question-{n}") for n in range(4)))
        assert [one.text for one in answers] == [f"about question-{n}" for n in range(4)]
        order = [one.text for one in await talk.history(100) if one.role == "user"]
        for number, request in enumerate(model.requests[1::2]):
            check_chat(to_openai(request.messages))
            roles = [one["role"] for one in request.messages]
            assert roles[-3:] == ["user", "assistant", "tool"]
            assert roles.count("tool") == number + 1
            assert said_in(request.messages) == set(order[: number + 1])
        await talk.verify()


async def test_a_second_question_is_refused_and_not_stored(opened: Opener) -> None:
    model = Gated()
    async with opened(models={"m": model}, model="m") as store:
        talk = await store.conversation("k", settings={"simultaneous": "reject"})
        first = asyncio.create_task(talk.generate("question-1"))
        await model.until_started()
        with pytest.raises(ConversationBusy) as refused:
            await talk.generate("question-2")
        assert refused.value.conversation == talk.id
        assert [one.text for one in await talk.history() if one.role == "user"] == ["question-1"]
        model.gate.set()
        assert (await first).text == "about question-1"
        assert (await talk.generate("question-2")).text == "about question-2"


async def test_by_default_questions_are_answered_in_parallel(opened: Opener) -> None:
    model = Gated()
    async with opened(models={"m": model}, model="m") as store:
        talk = await store.conversation("k")
        both = [asyncio.create_task(talk.generate(f"question-{n}")) for n in range(2)]
        await model.until_started(2)
        model.gate.set()
        assert [one.text for one in await asyncio.gather(*both)] == ["about question-0", "about question-1"]


async def test_a_setting_of_the_conversation_overrides_the_default(opened: Opener) -> None:
    model = Gated()
    async with opened(models={"m": model}, model="m", generate={"simultaneous": "reject"}) as store:
        strict = await store.conversation("strict")
        loose = await store.conversation("loose", settings={"simultaneous": "parallel"})
        running = [asyncio.create_task(one.generate("question-1")) for one in (strict, loose)]
        await model.until_started(2)
        with pytest.raises(ConversationBusy):
            await strict.generate("question-2")
        running.append(asyncio.create_task(loose.generate("question-2")))
        await model.until_started()
        model.gate.set()
        await asyncio.gather(*running)


async def test_a_queued_question_does_not_wait_for_ever_and_stays_stored(opened: Opener) -> None:
    model = Gated()
    settings = {"simultaneous": "queue", "queue_timeout": 0.2}
    async with opened(models={"m": model}, model="m", generate=settings) as store:
        talk = await store.conversation("k")
        first = asyncio.create_task(talk.generate("question-1"))
        await model.until_started()
        with pytest.raises(QueueTimeout) as problem:
            await talk.generate("question-2")
        assert (problem.value.waited, problem.value.ahead) == (0.2, 1)
        model.gate.set()
        await first
        (stored,) = [one for one in await talk.history() if one.text == "question-2"]
        assert (await talk.generate(question=stored)).text == "about question-2"


async def test_a_question_that_is_cancelled_while_it_waits_is_in_nobodys_way(opened: Opener) -> None:
    model = Gated()
    async with opened(models={"m": model}, model="m", generate={"simultaneous": "queue"}) as store:
        talk = await store.conversation("k")
        tasks = []
        for n in range(3):
            tasks.append(asyncio.create_task(talk.generate(f"question-{n}")))
            await _until_stored(talk, n + 1)
        await model.until_started()
        tasks[1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[1]
        model.gate.set()
        assert (await tasks[0]).text == "about question-0"
        assert (await tasks[2]).text == "about question-2"


async def test_stop_ends_a_question_that_waits(opened: Opener) -> None:
    model = Gated()
    async with opened(models={"m": model}, model="m", generate={"simultaneous": "queue"}) as store:
        talk = await store.conversation("k")
        tasks = []
        for n in range(2):
            tasks.append(asyncio.create_task(talk.generate(f"question-{n}")))
            await _until_stored(talk, n + 1)
        await model.until_started()
        assert await talk.stop() == 2
        assert [(one.text, one.finish_reason) for one in await asyncio.gather(*tasks)] == [("", "stopped")] * 2
        model.gate.set()
        assert (await talk.generate("question-9")).text == "about question-9"


async def _until_stored(talk: Conversation, questions: int) -> None:
    found: list[Turn] = []
    while len([one for one in found if one.role == "user"]) < questions:
        await asyncio.sleep(0)
        found = await talk.history(100)


@pytest.mark.parametrize("mode", ["queue", "reject"])
async def test_a_process_that_died_blocks_nobody_once_its_lease_has_ended(opened: Opener, mode: str) -> None:
    """The row that it left is all that remains of it."""
    clock = FakeClock()
    model = Gated()
    model.gate.set()
    async with opened(models={"m": model}, model="m", clock=clock, generate={"queue_timeout": 0.05}) as store:
        talk = await store.conversation("k", settings={"simultaneous": mode})
        engine = components_of(store).engine
        gone = PlaceRequest(id="gone", question=0)
        assert await engine.take_answer_place(store.scope, talk.id, gone, LEASE) == 0
        with pytest.raises(ConversationBusy):
            await talk.generate("question-1")
        clock.advance(31)
        assert (await talk.generate("question-2")).text == "about question-2"


async def test_the_order_is_that_of_the_questions_even_if_a_later_one_asks_first(opened: Opener) -> None:
    """A caller that has a place, and no stored question yet, may still get a lower number."""
    async with opened() as store:
        talk = await store.conversation("k")
        engine, scope = components_of(store).engine, store.scope

        async def take(id: str, question: int | None = None) -> int:
            return await engine.take_answer_place(scope, talk.id, PlaceRequest(id=id, question=question), LEASE)

        assert await take("a") == 0
        await take("b")
        question = await talk.append("user", "question-1")  # of b
        assert await take("b", question.seq) == 1, "a may have stored its question before"
        other = await talk.append("user", "question-2")  # of a
        assert await take("a", other.seq) == 1
        assert await take("c") == 2
        assert await take("b", question.seq) == 0
        assert await take("b", question.seq) == 0, "renewed"
        assert await take("a", other.seq) == 1
        await engine.leave_answer_place(scope, talk.id, "b")
        assert await take("a", other.seq) == 0, "c came after it was stored"


async def test_places_go_with_their_conversation(opened: Opener) -> None:
    async with opened() as store:
        talk = await store.conversation("k")
        engine = components_of(store).engine
        await engine.take_answer_place(store.scope, talk.id, PlaceRequest(id="a", question=0), LEASE)
        await talk.forget()
        again = await store.conversation("k")
        assert await engine.take_answer_place(store.scope, again.id, PlaceRequest(id="b", question=0), LEASE) == 0


async def test_an_unknown_mode_is_refused(opened: Opener) -> None:
    async with opened() as store:
        with pytest.raises(InvalidInput, match=r"settings\.simultaneous.*parallel, queue, reject"):
            await store.conversation("k", settings={"simultaneous": "one-by-one"})  # type: ignore[typeddict-item]
    with pytest.raises(InvalidInput, match=r"generate\.simultaneous"):
        async with opened(generate={"simultaneous": "serial"}):
            pass


async def test_a_retry_with_the_same_key_gets_the_same_answer_in_every_mode(opened: Opener) -> None:
    model = Echo()
    async with opened(models={"m": model}, model="m") as store:
        for mode in ("parallel", "queue", "reject"):
            talk = await store.conversation(mode, settings={"simultaneous": mode})
            both = await asyncio.gather(*(talk.generate("question-1", idempotency_key="one") for _ in range(2)))
            assert both[0].id == both[1].id
            assert QUESTION.findall(both[0].text) == ["question-1"]


@pytest.mark.parametrize("mode", ["queue", "reject"])
async def test_who_has_an_answer_may_ask_at_once(opened: Opener, mode: str) -> None:
    """The place is free before the answer is known."""
    async with opened(models={"m": Echo()}, model="m") as store:
        talk = await store.conversation("k", settings={"simultaneous": mode})
        async for event in talk.generate_stream("question-1"):
            if isinstance(event, Answered):
                assert (await talk.generate("question-2")).text == "about question-2"
