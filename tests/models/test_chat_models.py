"""The chat models: the real SDKs against a provider on this machine, when it goes well and when it does not."""

from __future__ import annotations

import asyncio
import threading
import traceback
from collections.abc import Iterator
from typing import Any

import pytest

from palaver.errors import (
    BadModelResponse,
    ContextTooLong,
    InvalidInput,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    PreviousResponseMissing,
    RateLimited,
)
from palaver.model import ToolCall
from palaver.models.registry import ModelRegistry, open_model
from palaver.models.response_parsing import retry_after
from palaver.models.retry import RetryPolicy, stream_with_retries
from palaver.ports.models import (
    CallReady,
    ChatModel,
    Finished,
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    Started,
    TextDelta,
    Thought,
    ToolChoice,
    ToolSpec,
    Usage,
)
from palaver.testing.providers import KEY, Fail, Garbage, LoopbackProvider, Say, previous_missing, too_long

WORDS = "the words of a turn"
MESSAGES = ({"role": "system", "content": "Be brief."}, {"role": "user", "content": WORDS})
LOOK = ToolSpec(
    name="look", description="Looks.", parameters={"type": "object", "properties": {"q": {"type": "string"}}}
)
NAMES = ("chat", "responses", "messages")
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackProvider]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with LoopbackProvider() as provider:
        yield provider


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[True, False], ids=["streamed", "whole"])
def streamed(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def opened(provider: LoopbackProvider, name: str, **options: Any) -> ChatModel:
    return ModelRegistry(names=provider.models(**options)).chat(name)


async def said(model: ChatModel, **fields: Any) -> list[ModelEvent]:
    body = model.body(ModelRequest(**{"messages": MESSAGES, **fields}))
    return [event async for event in model.stream(body)]


def text_of(events: list[ModelEvent]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


async def failure(model: ChatModel, **fields: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await said(model, **fields)
    told = "".join(traceback.format_exception(caught.value)) + repr(caught.value) + repr(model) + repr(vars(model))
    for secret in (KEY, WORDS, "words of the service"):
        assert secret not in told
    assert caught.value.__context__ is None
    return caught.value


async def test_an_answer_comes_whole_and_what_is_sent_is_the_body(
    provider: LoopbackProvider, name: str, streamed: bool
) -> None:
    provider.script(Say("You can eat rice.", prompt_tokens=21))
    model = opened(provider, name)
    request = ModelRequest(
        messages=MESSAGES, tools=(LOOK,), stream=streamed, settings={"temperature": 0.5, "odd_one": 1}
    )
    body = model.body(request)
    events = [event async for event in model.stream(body)]
    assert text_of(events) == "You can eat rice."
    assert isinstance(events[0], Started)
    assert events[0].id is not None
    assert events[-1] == Finished("stop")
    (usage,) = [event for event in events if isinstance(event, Usage)]
    assert (usage.prompt, usage.completion) == (21, 4)
    (received,) = provider.received
    assert received.path == PATHS[name]
    assert received.body == body
    assert ("stream" in body) is streamed


async def test_text_comes_piece_by_piece(provider: LoopbackProvider, name: str) -> None:
    gate = threading.Event()
    provider.script(Say(["one", " two"], hold_after=(1, gate)))
    model = opened(provider, name)
    events = model.stream(model.body(ModelRequest(messages=MESSAGES)))
    first = [event async for event in _until(events, TextDelta)]
    assert first[-1] == TextDelta("one")  # the rest has not even been sent
    gate.set()
    assert text_of([event async for event in events]) == " two"


async def _until(events: Any, kind: type) -> Any:
    async for event in events:
        yield event
        if isinstance(event, kind):
            return


async def test_tool_calls_come_complete_and_several_at_once(
    provider: LoopbackProvider, name: str, streamed: bool
) -> None:
    provider.script(Say("I look.", calls=[("look", {"q": "nuts"}), ("look", {"q": "rice"})]))
    events = await said(opened(provider, name), tools=(LOOK,), stream=streamed)
    calls = [event.call for event in events if isinstance(event, CallReady)]
    assert [(call.name, call.arguments) for call in calls] == [("look", {"q": "nuts"}), ("look", {"q": "rice"})]
    assert len({call.id for call in calls}) == 2
    assert events[-1] == Finished("tool_calls")


async def test_arguments_that_are_no_json_stay_what_the_model_wrote(provider: LoopbackProvider) -> None:
    provider.script(Say(calls=[("look", '{"q": ')]), Say(calls=[("look", "")]))
    for expected in ('{"q": ', {}):
        events = await said(opened(provider, "chat"), tools=(LOOK,))
        assert [event.call.arguments for event in events if isinstance(event, CallReady)] == [expected]


@pytest.mark.parametrize("given", ["auto", "none"])
async def test_tools_stay_listed_when_none_may_be_called(
    provider: LoopbackProvider, name: str, given: ToolChoice
) -> None:
    body = opened(provider, name).body(ModelRequest(messages=MESSAGES, tools=(LOOK,), tool_choice=given))
    assert len(body["tools"]) == 1
    choice = body["tool_choice"]
    assert (choice["type"] if name == "messages" else choice) == given


async def test_an_answer_that_ran_out_of_room_says_so(provider: LoopbackProvider, name: str, streamed: bool) -> None:
    provider.script(Say("You can", finish="length"))
    assert (await said(opened(provider, name), stream=streamed))[-1] == Finished("length")


async def test_a_full_house_says_how_long_to_wait(provider: LoopbackProvider, name: str, streamed: bool) -> None:
    provider.script(Fail(429, retry_after=7))
    problem = await failure(opened(provider, name), stream=streamed)
    assert isinstance(problem, RateLimited)
    assert (problem.retry_after, problem.status) == (7.0, 429)


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        (Fail(500), ModelUnavailable),
        (Fail(503), ModelUnavailable),
        (Fail(401), ModelRefused),
        (Fail(404), ModelRefused),
        (Fail(422), ModelRefused),
        (too_long(), ContextTooLong),
        (Fail(429, code="insufficient_quota"), ModelError),
        (Garbage(), BadModelResponse),
    ],
)
async def test_a_refusal_is_told_by_its_kind(
    provider: LoopbackProvider, name: str, streamed: bool, step: Any, kind: type[ModelError]
) -> None:
    provider.script(step)
    assert isinstance(await failure(opened(provider, name), stream=streamed), kind)


async def test_a_stream_that_is_cut_or_garbled_is_no_answer(provider: LoopbackProvider, name: str) -> None:
    model = opened(provider, name)
    provider.script(Say("You can eat rice.", cut_after=2), Say("You can eat rice.", garble_after=2))
    assert isinstance(await failure(model), BadModelResponse | ModelUnavailable)
    assert isinstance(await failure(model), BadModelResponse)


async def test_a_stream_that_ends_before_its_end_is_no_answer(provider: LoopbackProvider, name: str) -> None:
    """The connection is closed in good order, but the last word was never said."""
    provider.script(Say("You can eat rice.", end_after=2))
    assert isinstance(await failure(opened(provider, name)), BadModelResponse)


async def test_a_first_byte_that_never_comes_is_given_up(provider: LoopbackProvider, name: str) -> None:
    gate = threading.Event()
    provider.script(Say("late", hold=gate))
    problem = await failure(opened(provider, name, timeout=0.2))
    gate.set()
    assert isinstance(problem, ModelUnavailable)
    assert "too long" in str(problem)


async def test_nobody_there_is_out_of_reach(provider: LoopbackProvider, name: str) -> None:
    models = provider.models()
    gone = {**models[name], "base_url": "http://127.0.0.1:9"}
    assert isinstance(await failure(ModelRegistry(names={"gone": gone}).chat("gone")), ModelUnavailable)


async def test_the_answer_before_is_continued_by_its_id(provider: LoopbackProvider) -> None:
    model = opened(provider, "responses")
    await said(model, previous_response_id="resp_7", keep=True)
    (body,) = provider.bodies
    assert (body["previous_response_id"], body["store"]) == ("resp_7", True)
    assert body["instructions"] == "Be brief."
    provider.script(previous_missing())
    assert isinstance(await failure(model, previous_response_id="resp_8"), PreviousResponseMissing)


async def test_what_claude_thought_before_its_calls_goes_back_with_them(provider: LoopbackProvider) -> None:
    provider.script(Say("I look.", calls=[("look", {})], thinking="Hmm."))
    model = opened(provider, "messages")
    events = await said(model, tools=(LOOK,))
    (thought,) = [event for event in events if isinstance(event, Thought)]
    assert ReasoningDelta("Hmm.") in events
    (call,) = [event.call for event in events if isinstance(event, CallReady)]
    asked = {"role": "assistant", "content": "", "tool_calls": [{"id": call.id, "name": "look", "arguments": "{}"}]}
    result = {"role": "tool", "tool_call_id": call.id, "content": "rice"}
    body = model.body(ModelRequest(messages=(*MESSAGES, asked, result), reasoning={call.id: (thought.block,)}))
    kinds = [block["type"] for block in body["messages"][1]["content"]]
    assert kinds == ["thinking", "tool_use"]


async def test_leaving_early_hangs_up(provider: LoopbackProvider, name: str) -> None:
    gate = threading.Event()
    provider.script(Say(["one", " two"], hold_after=(1, gate)))
    model = opened(provider, name)
    events = model.stream(model.body(ModelRequest(messages=MESSAGES)))
    async for event in events:
        if isinstance(event, TextDelta):
            break
    await events.aclose()
    gate.set()
    assert text_of(await said(model)) == "Yes."


async def test_claude_is_told_up_to_where_a_long_prompt_stays_the_same(provider: LoopbackProvider) -> None:
    model = opened(provider, "messages")
    long = {"role": "user", "content": "word " * 2_000}
    yes, current = {"role": "assistant", "content": "Yes."}, {"role": "user", "content": "Now?"}
    body = model.body(ModelRequest(messages=(MESSAGES[0], long, yes, current), stable=3))
    marked = [(m, b) for m, msg in enumerate(body["messages"]) for b in msg["content"] if "cache_control" in b]
    assert [(place, block["text"]) for place, block in marked] == [(1, "Yes.")]
    only_system = model.body(ModelRequest(messages=({"role": "system", "content": long["content"]}, current), stable=1))
    assert only_system["system"][0]["cache_control"] == {"type": "ephemeral"}
    call = {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "name": "look", "arguments": "{}"}]}
    result = {"role": "tool", "tool_call_id": "c", "content": "rice"}
    looped = model.body(ModelRequest(messages=(long, yes, current, call, result), stable=2))
    assert looped["messages"][-1]["content"][-1]["cache_control"] == {"type": "ephemeral"}
    assert "cache_control" not in str(model.body(ModelRequest(messages=(*MESSAGES, yes, current), stable=3)))
    await said(model, messages=(MESSAGES[0], long, yes, current), stable=3)


# ---- asking again --------------------------------------------------------------------------------------------------


async def asked(provider: LoopbackProvider, name: str, retries: RetryPolicy) -> tuple[str, list[dict[str, Any]]]:
    model = opened(provider, name)
    record: list[dict[str, Any]] = []
    events = [
        event
        async for event in stream_with_retries(model, model.body(ModelRequest(messages=MESSAGES)), retries, record)
    ]
    return text_of(events), record


async def test_a_busy_service_is_asked_again_and_that_is_on_record(provider: LoopbackProvider, name: str) -> None:
    provider.script(Fail(429, retry_after=0.01), Fail(500), Say("Rice."))
    text, record = await asked(provider, name, RetryPolicy(most=2, first=0.01))
    assert text == "Rice."
    assert [(one["error"], one["status"]) for one in record] == [("RateLimited", 429), ("ModelUnavailable", 500)]
    assert record[0]["waited"] == 0.01
    assert len(provider.received) == 3


async def test_asking_again_has_an_end(provider: LoopbackProvider, name: str) -> None:
    provider.script(*[Fail(503)] * 9)
    with pytest.raises(ModelUnavailable):
        await asked(provider, name, RetryPolicy(most=2, first=0.001))
    assert len(provider.received) == 3


async def test_nobody_waits_for_minutes(provider: LoopbackProvider) -> None:
    provider.script(Fail(429, retry_after=3600))
    with pytest.raises(RateLimited):
        await asked(provider, "chat", RetryPolicy())
    assert len(provider.received) == 1


async def test_what_is_refused_is_not_asked_again(provider: LoopbackProvider) -> None:
    provider.script(Fail(400, kind="invalid_request_error"))
    with pytest.raises(ModelRefused):
        await asked(provider, "chat", RetryPolicy())
    assert len(provider.received) == 1


async def test_a_stream_that_has_begun_is_not_asked_again(provider: LoopbackProvider, name: str) -> None:
    provider.script(Say("You can eat rice.", cut_after=2))
    with pytest.raises(ModelError):
        await asked(provider, name, RetryPolicy(first=0.001))
    assert len(provider.received) == 1


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "3"}, 3.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({}, None),
    ],
)
def test_when_to_come_back(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


# ---- by name -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt-5", "openai:", "nobody:gpt-5", "", "openai: "])
def test_a_name_that_means_nothing_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="model"):
        open_model(name)


@pytest.mark.parametrize("name", ["openai:gpt-5", "responses:gpt-5", "anthropic:claude-5"])
def test_a_missing_key_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(key, raising=False)
    monkeypatch.setenv("HOME", "/nonexistent")
    with pytest.raises(InvalidInput, match="API_KEY"):
        open_model(name)


def test_a_name_may_stand_for_another_and_a_circle_is_refused() -> None:
    book = ModelRegistry(names={"fast": "small", "small": "offline", "a": "b", "b": "a"})
    assert book.chat("fast").name == "offline"
    assert book.chat("fast") is book.chat("fast")
    with pytest.raises(InvalidInput, match="itself"):
        book.chat("a")
    with pytest.raises(InvalidInput, match="url"):
        ModelRegistry(names={"x": {"model": "openai:y", "url": "z"}}).chat("x")


def test_settings_cannot_take_over_what_generate_decides(provider: LoopbackProvider, name: str) -> None:
    with pytest.raises(InvalidInput, match=r"settings\.stream"):
        opened(provider, name).body(ModelRequest(messages=MESSAGES, settings={"stream": False}))


async def test_one_model_works_on_several_event_loops(provider: LoopbackProvider) -> None:
    model = opened(provider, "chat")

    def elsewhere() -> str:
        return text_of(asyncio.run(said(model)))

    assert await asyncio.to_thread(elsewhere) == text_of(await said(model)) == "Yes."


def test_a_call_without_an_id_gets_one() -> None:
    from palaver.models.response_parsing import call_of

    one, other = call_of(None, "look", "{}"), call_of(None, "look", "[1]")
    assert one.id != other.id
    assert other == ToolCall(other.id, "look", "[1]")
