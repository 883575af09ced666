"""OpenTelemetry spans: by the GenAI conventions, off unless asked for, and never with a word of content."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from palaver.conversations.internals import generation_of
from palaver.errors import ModelRefused
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
        assert "execute_tool look" in spans
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
