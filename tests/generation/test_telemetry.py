"""OpenTelemetry spans: by the GenAI conventions, off unless asked for, and never with a word of content."""

from __future__ import annotations

import inspect

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from palaver.conversations.conversation import Conversation
from palaver.conversations.internals import generation_of
from palaver.conversations.store import Store
from palaver.errors import ModelRefused, TurnNotFound
from palaver.testing.providers import Fail, LoopbackProvider, Say
from tests.generation.conftest import Opener

WORD = "zqxvbnmkjhgf"


def listening() -> tuple[TracerProvider, InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider, exporter


def named(exporter: InMemorySpanExporter) -> dict[str, ReadableSpan]:
    return {span.name: span for span in exporter.get_finished_spans()}


async def test_model_calls_tools_and_memory_have_spans(opened: Opener, provider: LoopbackProvider, name: str) -> None:
    def look(word: str) -> str:
        """Look."""
        return word

    tracing, exporter = listening()
    provider.script(Say(WORD, calls=[("look", {"word": WORD})]), Say(WORD, prompt_tokens=50))
    async with opened(model=name, telemetry=tracing) as store:
        talk = await store.conversation("x")
        await talk.generate(f"Say {WORD}.", tools=[look])
        await talk.recall(WORD)
        await talk.remember("goals", WORD)
        await talk.forget((await talk.history())[0])
        spans = named(exporter)
        chat = next(span for span in spans.values() if span.name.startswith("chat "))
        assert chat.kind is SpanKind.CLIENT
        attributes = dict(chat.attributes or {})
        assert attributes["gen_ai.operation.name"] == "chat"
        assert attributes["gen_ai.provider.name"] in ("openai", "anthropic")
        assert attributes["gen_ai.conversation.id"] == talk.id
        assert attributes["gen_ai.usage.input_tokens"] == 50
        assert attributes["gen_ai.response.model"] == "test"
        assert dict(spans["execute_tool look"].attributes or {})["gen_ai.tool.name"] == "look"
        assert attributes["gen_ai.request.model"] == "test"
        assert {"search_memory", "upsert_memory", "delete_memory"} <= spans.keys()
        assert spans["search_memory"].kind is SpanKind.INTERNAL
    told = " ".join(span.to_json() for span in exporter.get_finished_spans())
    assert WORD not in told


async def test_a_failure_is_told_by_its_type(opened: Opener, provider: LoopbackProvider) -> None:
    tracing, exporter = listening()
    provider.script(Fail(400, kind="x", message=WORD))
    async with opened(model="chat", telemetry=tracing) as store:
        with pytest.raises(ModelRefused):
            await store.generate("x", "Well?")
    (chat,) = [span for span in exporter.get_finished_spans() if span.name.startswith("chat ")]
    assert dict(chat.attributes or {})["error.type"] == "ModelRefused"
    assert chat.status.status_code is StatusCode.ERROR
    assert chat.events == ()


async def test_nobody_is_told_unless_asked_for(opened: Opener) -> None:
    async with opened(model="chat") as store:
        assert generation_of(store).telemetry.tracer is None
        await store.generate("x", "Well?")


async def test_every_awaited_verb_has_a_span_by_its_name(opened: Opener) -> None:
    tracing, exporter = listening()
    async with opened(model="chat", telemetry=tracing) as store:
        talk = await store.conversation("x")
        await talk.append("user", WORD)
        await talk.history()
        await store.search(WORD)
        async for _ in store.generate_stream("x", "Well?"):
            pass
        with pytest.raises(TurnNotFound):
            await talk.turn("01KA2V4YFM3Q2D7N9V1C6T0000")
    spans = named(exporter)
    verbs = ("conversation.append", "conversation.history", "conversation.turn", "store.conversation", "store.search")
    assert {f"palaver.{verb}" for verb in (*verbs, "store.generate_stream")} <= spans.keys()
    append = spans["palaver.conversation.append"]
    assert dict(append.attributes or {}) == {"palaver.conversation.id": talk.id}
    assert dict(spans["palaver.conversation.turn"].attributes or {})["error.type"] == "TurnNotFound"
    assert WORD not in " ".join(span.to_json() for span in exporter.get_finished_spans())


def test_every_public_coroutine_of_a_store_and_a_conversation_is_traced() -> None:
    for kind in (Store, Conversation):
        verbs = [name for name, one in vars(kind).items() if inspect.iscoroutinefunction(one) and name[0] != "_"]
        assert len(verbs) > 10
        assert [name for name in verbs if not hasattr(vars(kind)[name], "__wrapped__")] in ([], ["aclose"])
