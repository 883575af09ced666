"""Which model answers, who writes summaries and titles, and what the offline model says."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from palaver import Agent, Conversation, Store, TextDelta
from palaver.conversations.internals import worker_of
from palaver.errors import BadModelResponse, InvalidInput, ModelUnavailable
from palaver.models.context_windows import default_budget, window_of
from palaver.models.offline.chat import NOTHING, NOTICE, is_echo
from palaver.ports.models import ModelRequest
from palaver.testing import HashEmbedder, ScriptedModel
from palaver.testing.providers import Fail, LoopbackProvider, Say
from tests.generation.conftest import Opener, Traces


def scripted(*names: str, answers: int = 4) -> dict[str, ScriptedModel]:
    return {name: ScriptedModel([name] * answers, name=name) for name in names}


async def test_call_conversation_agent_workspace_settings_in_that_order(opened: Opener) -> None:
    models = scripted("call", "conversation", "agent", "workspace", "settings")
    options: dict[str, Any] = {
        "models": models,
        "model": "settings",
        "agents": {"bot": Agent(model="agent")},
        "workspaces": {"sales": "workspace"},
    }
    async with opened(**options) as store:

        async def answered(key: str, fields: dict[str, Any], **call: Any) -> str:
            talk = await store.conversation(key, **fields)
            return (await talk.generate("Who are you?", **call)).text

        everything = {"model": "conversation", "agent": "bot", "workspace": "sales"}
        assert await answered("a", everything, model="call") == "call"
        assert await answered("b", everything) == "conversation"
        assert await answered("c", {"agent": "bot", "workspace": "sales"}) == "agent"
        assert await answered("d", {"workspace": "sales"}, agent="bot") == "agent"
        assert await answered("e", {"workspace": "sales"}) == "workspace"
        assert await answered("f", {}) == "settings"


async def test_fast_is_a_name_that_can_be_set(opened: Opener) -> None:
    models: dict[str, Any] = {**scripted("small"), "fast": "small"}
    async with opened(models=models) as store:
        assert (await store.generate("x", "Well?", model="fast")).text == "small"
    async with opened(models={}) as store:
        with pytest.raises(InvalidInput, match="fast"):
            await store.generate("x", "Well?", model="fast")


async def test_settings_that_are_not_known_are_refused(opened: Opener) -> None:
    for wrong in ({"generate": {"tool_round": 3}}, {"agents": {"a": {"prompt": "x"}}}, {"generate": {"continuity": 1}}):
        with pytest.raises(InvalidInput):
            async with opened(**wrong):
                pass


async def test_an_object_that_is_not_a_model_is_refused_before_the_store_is_used(opened: Opener) -> None:
    """The error names the key of `models` and what the object lacks. It used to be an AttributeError of `generate`."""

    class Unfinished:
        name = adapter = provider = "mine"

        async def stream(self, body: dict[str, Any]) -> None: ...

    with pytest.raises(InvalidInput, match=r"models\.mine: .* Unfinished lacks window, remembers, project, body"):
        async with opened(models={"mine": Unfinished()}):
            pass
    for wrong, problem in ((Unfinished, "is a class: pass an object of it"), (lambda messages: "Hello.", "lacks name")):
        with pytest.raises(InvalidInput, match=rf"models\.mine: must be the name of a model.* {problem}"):
            async with opened(models={"mine": wrong}):
                pass


async def test_options_of_a_model_are_checked_before_the_store_is_used(opened: Opener) -> None:
    for options, says in (({"modle": "openai:gpt-5"}, "unknown option 'modle'"), ({"model": 5}, "needs a model")):
        with pytest.raises(InvalidInput, match=f"models.mine: {says}"):
            async with opened(models={"mine": options}):
                pass


class Mine:
    """A model of an application, whose `stream` is wrong in one of three ways."""

    name, adapter, provider, window, remembers, project = "echo", "mine", "mine", 8_192, False, ""

    def __init__(self, stream: Callable[[dict[str, Any]], Any]) -> None:
        self.stream = stream

    def body(self, request: ModelRequest) -> dict[str, Any]:
        return {"messages": list(request.messages)}


async def _yields_texts(body: dict[str, Any]) -> AsyncIterator[str]:
    yield "Hello."


async def _returns_a_text(body: dict[str, Any]) -> str:
    return "Hello."


def _yields_without_async(body: dict[str, Any]) -> Iterator[TextDelta]:
    yield TextDelta("Hello.")


@pytest.mark.parametrize(
    ("stream", "problem"),
    [
        (_yields_texts, r"echo yielded str from stream\(\): text is palaver\.TextDelta"),
        (_returns_a_text, r"echo needs a stream\(\) that is an async generator"),
        (_yields_without_async, r"echo needs a stream\(\) that is an async generator"),
    ],
)
async def test_a_model_of_the_application_with_a_wrong_stream_is_an_error(
    opened: Opener, stream: Callable[[dict[str, Any]], Any], problem: str
) -> None:
    """A text without TextDelta used to be dropped, and an empty answer was stored."""
    async with opened(models={"mine": Mine(stream)}, model="mine") as store:
        with pytest.raises(BadModelResponse, match=problem):
            await store.generate("x", "Hello?")


async def test_the_default_model_is_given_by_its_name(opened: Opener) -> None:
    with pytest.raises(InvalidInput, match=r"model: must be a name, not ScriptedModel; .* models=\{'NAME': …\}"):
        async with opened(model=ScriptedModel(["Hello."])):
            pass


@pytest.mark.parametrize(
    ("name", "window"),
    [
        ("openai:gpt-4o", 128_000),
        ("responses:gpt-5", 272_000),
        ("anthropic:claude-opus-5", 200_000),
        ("openai:x", None),
    ],
)
def test_windows_are_known_by_name(name: str, window: int | None) -> None:
    assert window_of(name) == window
    assert default_budget(window) == (32_000 if window else 8_000)
    assert default_budget(4_096) == 3_072


# ---- the offline model ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("embedder", [None, HashEmbedder()])
async def test_it_quotes_the_best_turns_with_their_dates_and_says_so(opened: Opener, embedder: Any) -> None:
    async with opened(embedder=embedder, worker=False) as store:
        talk = await store.conversation("x")
        said = await talk.append("user", "I'm allergic to peanuts.")
        await talk.append("user", "The train to Rome leaves at nine.")
        await store.settle()
        answer = await talk.generate("What am I allergic to?")
        assert answer.text.startswith(NOTICE)
        assert "“I'm allergic to peanuts.”" in answer.text
        assert f"{said.created.astimezone():%Y-%m-%d}" in answer.text
        assert "train" not in answer.text
        assert answer.sources == ({"turn": said.id},)
        assert (answer.model, answer.adapter) == ("offline", "offline")


@pytest.mark.parametrize("embedder", [None, HashEmbedder()])
async def test_it_says_so_when_nothing_passes(opened: Opener, embedder: Any) -> None:
    async with opened(embedder=embedder) as store:
        talk = await store.conversation("x")
        await talk.append_many([{"role": "user", "content": f"We talked about gardens, number {n}."} for n in range(9)])
        await store.settle()
        answer = await talk.generate("Do you know xyzzy?")
        assert answer.text == f"{NOTICE}, {NOTHING}"
        assert answer.sources == ()


async def test_it_quotes_neither_itself_nor_mere_questions(opened: Opener) -> None:
    async with opened() as store:
        talk = await store.conversation("x")
        await talk.append("user", "The meeting is on Tuesday.")
        for _ in range(4):
            answer = await talk.generate("When is the meeting?")
            assert "Tuesday" in answer.text
            assert "When is" not in answer.text
            assert is_echo(answer)


# ---- titles --------------------------------------------------------------------------------------------------------


async def test_a_title_is_written_after_the_first_exchange(opened: Opener, provider: LoopbackProvider) -> None:
    provider.script(Say("Rice."), Say('"Food in Asia"\n'))
    async with opened(model="chat") as store:
        talk = await store.conversation("x")
        await talk.generate("What do people eat in Asia?")
        await store.settle()
        assert (await talk.refresh()).title == "Food in Asia"
        titles = [request for request in await talk.requests() if request.purpose == "title"]
        assert len(titles) == 1
        assert titles[0].response is not None
        await talk.generate("And in Europe?")
        await store.settle()
        assert len(provider.bodies) == 3  # one title, and no more
        await talk.verify()


async def test_the_fast_model_writes_titles_where_there_is_one(opened: Opener) -> None:
    models = {"slow": ScriptedModel(["Rice."]), "fast": ScriptedModel(["Food"])}
    async with opened(model="slow", models=models) as store:
        talk = await store.conversation("x")
        await talk.generate("What do people eat?")
        await store.settle()
        assert (await talk.refresh()).title == "Food"


async def test_a_persons_title_is_never_overwritten(opened: Opener, provider: LoopbackProvider) -> None:
    async with opened(model="chat") as store:
        named = await store.conversation("named", title="Mine")
        late = await store.conversation("late")
        for talk in (named, late):
            await talk.generate("What do people eat in Asia?")
        await late.rename("Also mine")  # after the job was put in, before it ran
        await store.settle()
        assert [(await talk.refresh()).title for talk in (named, late)] == ["Mine", "Also mine"]


async def test_without_a_model_the_first_line_is_the_title(opened: Opener, provider: LoopbackProvider) -> None:
    provider.script(Say("Rice."), *[Fail(400, kind="x")] * 5)
    for model in ("offline", "chat"):
        async with opened(model=model) as store:
            talk = await store.conversation(model)
            await talk.generate("What do people eat in Asia?\nI wonder.")
            await store.settle()
            assert (await talk.refresh()).title == "What do people eat in Asia?"


async def test_a_written_title_goes_with_the_words_it_was_made_from(opened: Opener, traces: Traces) -> None:
    async with opened() as store:
        talk = await store.conversation("x")
        await talk.generate("The word is zqxvbnmkjhgf.")
        await store.settle()
        assert "zqxvbnmkjhgf" in ((await talk.refresh()).title or "")
        for turn in await talk.history():
            await talk.forget(turn)
        assert (await talk.refresh()).title is None
        assert await traces("zqxvbnmkjhgf") == []
        await talk.verify()


# ---- summaries -----------------------------------------------------------------------------------------------------


async def summarised(store: Store, **fields: Any) -> Conversation:
    talk = await store.conversation("x", **fields)
    await talk.append_many([{"role": "user", "content": f"We decided on number {n}."} for n in range(30)])
    await talk.summarize()
    return talk


async def test_summaries_are_written_by_the_conversations_model(opened: Opener, provider: LoopbackProvider) -> None:
    provider.script(Say("They decided on numbers."))
    async with opened(model="offline") as store:
        talk = await summarised(store, model="chat")
        (summary,) = await talk.summaries()
        assert (summary.text, summary.model) == ("They decided on numbers.", "openai:test")
        assert "Quoted material" in str(provider.bodies[0])
        (request,) = await talk.requests()
        assert request.purpose == "summarize"
        assert request.body == provider.bodies[0]


async def test_a_summary_costs_what_its_tokens_cost(opened: Opener, provider: LoopbackProvider) -> None:
    provider.script(Say("They decided on numbers.", prompt_tokens=1_000_000))
    async with opened(model="offline", models=provider.models(price={"input": 3, "output": 0})) as store:
        talk = await summarised(store, model="chat")
        (request,) = await talk.requests()
        assert request.response is not None
        assert request.response["cost"] == 3


async def test_a_summariser_that_takes_too_long_is_on_record(opened: Opener, provider: LoopbackProvider) -> None:
    never = threading.Event()
    provider.script(Say("They decided.", hold=never))
    async with opened(model="offline") as store:
        worker_of(store).model_seconds = 0.2
        talk = await summarised(store, model="chat")
        never.set()
        (request,) = await talk.requests()
        assert request.response is not None
        assert request.response["error"]["type"] == "CancelledError"
        assert "in place of" in (await talk.summaries())[0].model


async def test_summarizer_model_comes_before_it(opened: Opener) -> None:
    models = scripted("own", "other")
    async with opened(models=models) as store:
        settings = {"compaction": {"summarizer_model": "other"}}
        talk = await summarised(store, model="own", settings=settings)
        assert [(one.text, one.model) for one in await talk.summaries()] == [("other", "other")]


@pytest.mark.parametrize("model", ["broken", "openai:without-a-key", "nonsense"])
async def test_the_rules_stand_in_and_say_so(opened: Opener, model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    broken = ScriptedModel([ModelUnavailable("broken", "is down")] * 9, name="broken")
    async with opened(models={"broken": broken}, generate={"retries": 0}) as store:
        talk = await summarised(store, settings={"compaction": {"summarizer_model": model}})
        (summary,) = await talk.summaries()
        assert summary.model.endswith(f"(in place of {model})")
        assert "number" in summary.text


async def test_a_summary_that_says_too_much_is_cut(opened: Opener) -> None:
    async with opened(models={"wordy": ScriptedModel(["word " * 2_000])}) as store:
        talk = await summarised(store, model="wordy")
        (summary,) = await talk.summaries()
        assert summary.token_count <= 200
