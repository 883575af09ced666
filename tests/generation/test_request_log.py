"""Requests as they were sent: on record, redacted, and deleted with the words that they held."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

import palaver
from palaver import Conversation, Scope, Store
from palaver.conversations.internals import clock_of, engine_of, generation_of
from palaver.model import Request
from palaver.models.request_log import RequestRecorder
from palaver.ports.models import ModelEvent
from palaver.testing import ScriptedModel
from palaver.testing.kit import eventually
from palaver.testing.providers import Fail, LoopbackProvider, Say
from tests.generation.conftest import Opener, Traces

WORD = "zqxvbnmkjhgf"


async def test_the_body_is_what_the_service_got(opened: Opener, provider: LoopbackProvider, name: str) -> None:
    provider.script(Say(calls=[("recall", {"query": "tea"})]), Say("Done."))
    async with opened(model=name) as store:
        talk = await store.conversation("x")
        await talk.generate("What can I drink?", tools=["recall"], settings={"temperature": 0.5})
        requests = await talk.requests()
        assert [request.body for request in requests] == provider.bodies
        turns = {turn.id: turn for turn in await talk.history()}
        assert [turns[request.turn or ""].finish_reason for request in requests] == ["tool_calls", "stop"]
        for request in requests:
            assert request.response is not None
            assert request.explanation is not None
            assert request.response["usage"]["prompt"] > 0
            assert request.response["timings"]["total"] >= request.response["timings"]["first_token"]
            assert request.explanation["tokens"] <= request.explanation["budget"]
        assert requests[1].explanation is not None
        assert 0 <= requests[1].explanation["identical_prefix"] <= 1
        assert requests[0].response is not None
        assert requests[0].response["calls"] == ["recall"]


async def test_secrets_are_redacted_and_nothing_else_is_changed(opened: Opener, provider: LoopbackProvider) -> None:
    secret = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"
    async with opened(model="chat") as store:
        talk = await store.conversation("x")
        await talk.generate(f"My key is {secret}, keep it.")
        (request,) = await talk.requests()
        assert secret in str(provider.bodies[0])
        assert secret not in str(request.body)
        assert "keep it." in str(request.body)


async def test_a_call_that_is_under_way_is_on_record(opened: Opener, provider: LoopbackProvider) -> None:
    hold = threading.Event()
    provider.script(Say("Tea.", hold=hold))
    async with opened(model="chat") as store:
        talk = await store.conversation("x")
        answer = asyncio.create_task(talk.generate("What can I drink?"))

        async def on_record() -> bool:
            return bool(await talk.requests())

        await eventually(on_record)
        under_way = await talk.requests()
        hold.set()
        await answer
        (request,) = await talk.requests()
        assert under_way == [replace(request, response=None, turn=None)]
        assert request.response is not None
        assert request.body == provider.bodies[0]


@pytest.mark.parametrize("ticks", [1, 2, 3])
async def test_a_stop_is_not_lost_in_the_record(ticks: int) -> None:
    """A caller that is cancelled while the record is being written is cancelled; the row is still written."""
    rows = []

    class Engine:
        async def put_request(self, *row: Any) -> None:
            rows.append(row)

    request = Request(id="1", conversation="c", at=datetime.now(UTC), model="m", adapter="a", body={})
    recording = RequestRecorder(Engine(), Scope(), request, str, None)  # type: ignore[arg-type]
    recording.start()
    await asyncio.sleep(0)
    ending = asyncio.create_task(recording.finish({}, None))
    for _ in range(ticks):
        await asyncio.sleep(0)
    ending.cancel()
    await asyncio.gather(ending, return_exceptions=True)
    assert ending.cancelled()
    await recording.finish({}, None)
    assert rows


async def test_a_call_with_a_price_says_what_it_cost(opened: Opener, provider: LoopbackProvider) -> None:
    priced = {**provider.models()["chat"], "price": {"input": 3, "output": 15}}
    async with opened(model="answers", models={"priced": priced, "answers": "priced"}) as store:
        talk = await store.conversation("x")
        await talk.generate("What can I drink?")
        (request,) = await talk.requests()
        assert request.response is not None
        usage = request.response["usage"]
        assert request.response["cost"] == (usage["prompt"] * 3 + usage["completion"] * 15) / 1_000_000 > 0


async def test_they_are_listed_by_turn_and_by_page(opened: Opener) -> None:
    async with opened(model="chat") as store:
        talk = await store.conversation("x")
        answers = [await talk.generate(f"Message {n}.") for n in range(5)]
        everything = await store.requests("x")
        assert [request.turn for request in everything] == [answer.id for answer in answers]
        assert await talk.requests(2) == everything[3:]
        assert await talk.requests(2, before=everything[3]) == everything[1:3]
        assert await talk.requests(turn=answers[1]) == [everything[1]]


async def test_only_the_newest_bodies_are_kept(opened: Opener) -> None:
    async with opened(model="chat", generate={"request_bodies": 2}) as store:
        for n in range(5):
            await store.generate("x", f"Message {n}.")
        assert [request.body is not None for request in await store.requests("x")] == [False] * 3 + [True] * 2


async def test_they_are_for_the_owner(opened: Opener) -> None:
    async with opened(model="chat") as store:
        talk = await store.conversation("x", participants=["bob"])
        await talk.generate("Well?")
        bob = await store.scoped(Scope.of("default", "bob")).get(talk.id)
        with pytest.raises(palaver.PermissionDenied):
            await bob.requests()


async def test_a_call_that_failed_is_there_too(opened: Opener, provider: LoopbackProvider) -> None:
    provider.script(Fail(400, kind="invalid_request_error"))
    async with opened(model="chat") as store:
        talk = await store.conversation("x")
        with pytest.raises(palaver.ModelRefused):
            await talk.generate("Well?")
        (request,) = await talk.requests()
        assert request.body == provider.bodies[0]
        assert request.response is not None
        assert request.response["error"] == {"type": "ModelRefused", "status": 400}


# ---- what was forgotten is gone ------------------------------------------------------------------------------------


async def say_it(store: Store, **settings: Any) -> Conversation:
    talk = await store.conversation("victim", **settings)
    await talk.generate(f"The word is {WORD}.")
    await talk.generate("And now something else.")
    assert WORD in str(await talk.requests())
    return talk


@pytest.mark.parametrize("way", ["turn", "reset", "forget"])
async def test_no_byte_of_it_stays(opened: Opener, traces: Traces, way: str) -> None:
    async with opened(model="chat") as store:
        talk = await say_it(store)
        assert await traces(WORD)
        if way == "turn":
            await talk.forget((await talk.history())[0])
            requests = await talk.requests()
            assert [request.body for request in requests] == [None, None]
            assert all(request.response for request in requests)
        elif way == "reset":
            await talk.reset()
            assert await talk.requests() == []
        else:
            await talk.forget()
        assert await traces(WORD) == []


async def test_a_turn_said_later_takes_no_earlier_body_with_it(opened: Opener) -> None:
    async with opened(model="chat") as store:
        talk = await store.conversation("x")
        await talk.generate("First.")
        await talk.generate("Second.")
        await talk.forget((await talk.history())[2])
        assert [request.body is not None for request in await talk.requests()] == [True, False]


@pytest.mark.parametrize("retention", ["audit-only", "ephemeral"])
async def test_bodies_go_when_the_words_are_retired(opened: Opener, traces: Traces, retention: str) -> None:
    async with opened(model="chat", summarizer=Blank()) as store:
        settings = {"retention": retention, "compaction": {"trigger_turns": 4}}
        talk = await say_it(store, settings=settings)
        for n in range(6):
            await talk.generate(f"Something {n}.")
        await talk.compact()
        await store.settle()
        assert WORD not in str(await talk.requests())
        assert await traces(WORD) == []


class Blank:
    name = "blank"

    async def summarize(self, turns: Any, budget: int) -> str:
        return "They talked."

    async def merge(self, summaries: Any, budget: int) -> str:
        return "They talked."


@pytest.mark.parametrize("way", ["turn", "forget"])
async def test_quotes_in_other_conversations_go_too(opened: Opener, traces: Traces, way: str) -> None:
    async with opened(model="chat") as store:
        secret = await store.conversation("secret")
        said = await secret.append("user", f"The word is {WORD}.")
        talk = await store.conversation("x")
        await talk.generate("What is the word?", recall_scope="owner")
        assert WORD in str((await talk.requests())[0].body)
        await (secret.forget(said) if way == "turn" else secret.forget())
        assert (await talk.requests())[0].body is None
        assert await traces(WORD) == []


async def test_a_late_row_brings_nothing_back(opened: Opener, traces: Traces) -> None:
    async with opened(model="chat") as store:
        talk = await store.conversation("x")
        said = await talk.append("user", f"The word is {WORD}.")
        elsewhere = await store.conversation("y")
        quoted = await elsewhere.append("user", f"Also {WORD}.")
        at = clock_of(store).now()
        late = Request(id="r1", conversation=talk.id, at=at, model="m", adapter="a", body={"input": WORD})
        await talk.forget(said)
        await engine_of(store).put_request(store.scope, talk.id, late, None)
        other = Request(
            id="r2",
            conversation=talk.id,
            at=clock_of(store).now(),
            model="m",
            adapter="a",
            body={"input": WORD},
            quoted=((elsewhere.id, quoted.id),),
        )
        await elsewhere.forget(quoted)
        await engine_of(store).put_request(store.scope, talk.id, other, None)
        assert [request.body for request in await talk.requests()] == [None, None]
        assert await traces(WORD) == []


# ---- counting that learns ------------------------------------------------------------------------------------------


async def test_a_provider_that_counts_more_gets_smaller_contexts(opened: Opener, provider: LoopbackProvider) -> None:
    async with opened(model="chat") as store:
        talk = await store.conversation("x")
        await talk.append_many([{"role": "user", "content": f"turn {n} " + "word " * 40} for n in range(60)])
        full = await talk.build_context(2_000, model="openai:test", query="x")

        def twice(body: dict[str, Any]) -> Say:
            return Say("Yes.", prompt_tokens=2 * full.tokens)

        provider.script(twice)
        await talk.generate("Well?", token_budget=2_000)
        bound = await engine_of(store).counter_bound(store.scope, "openai:test")
        assert bound is not None
        assert 1.8 < bound.ratio < 2.2
        smaller = await talk.build_context(2_000, model="openai:test", query="x")
        assert smaller.tokens <= 1_000
        await talk.generate("And?", token_budget=2_000)
        request = (await talk.requests())[-1]
        assert request.explanation is not None
        assert request.explanation["tokens"] * bound.ratio <= 2_000
    async with opened(model="chat") as store:  # it is stored
        talk = await store.conversation("x")
        assert (await talk.build_context(2_000, model="openai:test", query="x")).tokens <= 1_100


async def test_a_short_prompt_teaches_nothing(opened: Opener, provider: LoopbackProvider) -> None:
    """A provider that adds some hundred tokens to every prompt must not shrink the long ones to a quarter."""
    provider.script(Say("Yes.", prompt_tokens=800))
    async with opened(model="chat") as store:
        await store.generate("x", "word " * 80)
        assert await engine_of(store).counter_bound(store.scope, "openai:test") is None
        await store.generate("x", "word " * 80, char_budget=900)
        assert await engine_of(store).counter_bound(store.scope, "openai:test") is None


async def test_the_bound_goes_up_at_once_and_comes_down_slowly(opened: Opener) -> None:
    async with opened() as store:
        bounds = generation_of(store).token_ratios
        for reported, expected in ((1_000, 1.0), (1_500, 1.5), (1_000, 1.475), (900, 1.446)):
            await bounds.learn(store.scope, "m", counted=1_000, reported=reported)
            assert await bounds.ratio(store.scope, "m") == pytest.approx(expected, abs=0.001)
        await bounds.learn(store.scope, "short", counted=10, reported=100)
        assert await bounds.ratio(store.scope, "short") == 1.0
        await bounds.learn(store.scope, "less", counted=1_000, reported=500)
        assert await bounds.ratio(store.scope, "less") == 1.0  # counting too much is the safe mistake
        other = store.scoped(Scope.of("another", "ada"))
        assert await bounds.ratio(other.scope, "m") == 1.0


class Silent(ScriptedModel):
    """Is asked, and says nothing until it may."""

    def __init__(self) -> None:
        super().__init__(["Rice."])
        self.may_speak = asyncio.Event()

    async def stream(self, body: dict[str, Any]) -> AsyncIterator[ModelEvent]:
        await self.may_speak.wait()
        async for event in super().stream(body):
            yield event


async def test_a_call_is_on_record_before_anything_came_back(opened: Opener) -> None:
    silent = Silent()
    async with opened(model="m", models={"m": silent}) as store:
        talk = await store.conversation("x")
        asking = asyncio.create_task(talk.generate("Food?"))
        async with asyncio.timeout(30):
            while not (found := await talk.requests()):
                pass
        assert (found[0].response, "Food?" in repr(found[0].body)) == (None, True)
        silent.may_speak.set()
        assert (await asking).text == "Rice."
        (request,) = await talk.requests()
        assert request.response is not None
