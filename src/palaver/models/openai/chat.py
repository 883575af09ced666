"""The chat model for OpenAI Chat Completions and compatible servers (Ollama, vLLM, LM Studio …) by their base URL."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from palaver.context.render import provider_name, to_openai
from palaver.errors import BadModelResponse
from palaver.models.openai.client import OpenAIClient
from palaver.models.response_parsing import call_of, with_settings
from palaver.ports.models import (
    CallReady,
    Finished,
    JsonObject,
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    Started,
    TextDelta,
    ToolSpec,
    Usage,
)

PATH = "/chat/completions"


class OpenAIChat(OpenAIClient):
    adapter = "openai-chat"

    def body(self, request: ModelRequest) -> JsonObject:
        body: JsonObject = {"model": self.model, "messages": to_openai(request.messages)}
        if request.stream:
            body["stream"] = True
            body["stream_options"] = {"include_usage": True}
        if request.tools:
            body["tools"] = [_tool(tool) for tool in request.tools]
            body["tool_choice"] = _choice(request)
        return with_settings(body, request.settings)

    async def _read_whole(self, body: JsonObject) -> AsyncGenerator[ModelEvent]:
        answer = await self._post(PATH, body)
        choice = answer["choices"][0]
        message = choice["message"]
        yield Started(answer.get("id"), answer.get("model"))
        if message.get("content"):
            yield TextDelta(message["content"])
        calls = [call for call in message.get("tool_calls") or () if "function" in call]
        for call in calls:
            yield CallReady(call_of(call.get("id"), call["function"]["name"], call["function"]["arguments"]))
        if answer.get("usage"):
            yield _usage(answer["usage"])
        yield Finished("tool_calls" if calls else choice.get("finish_reason") or "stop")

    async def _read_stream(self, body: JsonObject) -> AsyncGenerator[ModelEvent]:
        parser = _ChunkParser()
        async with self._post_stream(PATH, body) as chunks:
            async for chunk in chunks:
                for event in parser.parse(chunk):
                    yield event
        if parser.reason is None:
            raise BadModelResponse(self.name, "ended in the middle of its response")
        for call in parser.calls.values():
            yield CallReady(call_of(call.id, call.name, "".join(call.arguments)))
        yield Finished("tool_calls" if parser.calls else parser.reason)


@dataclass(slots=True)
class _Call:
    id: str | None = None
    name: str | None = None
    arguments: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _ChunkParser:
    """The state of a stream: turns its chunks into our events."""

    started: bool = False
    reason: str | None = None
    calls: dict[int, _Call] = field(default_factory=dict)

    def parse(self, chunk: JsonObject) -> list[ModelEvent]:
        events: list[ModelEvent] = []
        if not self.started:
            self.started = True
            events.append(Started(chunk.get("id"), chunk.get("model")))
        for choice in chunk.get("choices") or ():
            events += self._parse_choice(choice)
        if chunk.get("usage"):
            events.append(_usage(chunk["usage"]))
        return events

    def _parse_choice(self, choice: JsonObject) -> list[ModelEvent]:
        events: list[ModelEvent] = []
        delta = choice.get("delta") or {}
        # The names that DeepSeek, vLLM and others use for reasoning; OpenAI has none in this API.
        if thought := delta.get("reasoning_content") or delta.get("reasoning"):
            events.append(ReasoningDelta(str(thought)))
        if text := delta.get("content"):
            events.append(TextDelta(text))
        for piece in delta.get("tool_calls") or ():
            self._add_call(piece)
        self.reason = choice.get("finish_reason") or self.reason
        return events

    def _add_call(self, piece: JsonObject) -> None:
        index = piece.get("index")
        call = self.calls.setdefault(len(self.calls) if index is None else index, _Call())
        function = piece.get("function") or {}
        call.id = call.id or piece.get("id")
        call.name = call.name or function.get("name")
        call.arguments.append(function.get("arguments") or "")


def _tool(tool: ToolSpec) -> JsonObject:
    function = {"name": provider_name(tool.name), "description": tool.description, "parameters": dict(tool.parameters)}
    strict = {} if tool.strict is None else {"strict": tool.strict}
    return {"type": "function", "function": {**function, **strict}}


def _choice(request: ModelRequest) -> str | JsonObject:
    if isinstance(request.tool_choice, dict):
        return {"type": "function", "function": {"name": provider_name(request.tool_choice["name"])}}
    return request.tool_choice


def _usage(usage: JsonObject) -> Usage:
    return Usage(
        prompt=usage.get("prompt_tokens"),
        completion=usage.get("completion_tokens"),
        cached=(usage.get("prompt_tokens_details") or {}).get("cached_tokens"),
        reasoning=(usage.get("completion_tokens_details") or {}).get("reasoning_tokens"),
    )
