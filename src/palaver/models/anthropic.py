"""The chat model for Anthropic's Messages API."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from palaver.context.render import map_tool_calls, provider_name, to_anthropic
from palaver.errors import (
    BadModelResponse,
    ContextTooLong,
    InvalidInput,
    MissingExtra,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    RateLimited,
)
from palaver.models.provider_client import ProviderClient, trace_options
from palaver.models.response_parsing import call_of, retry_after, with_settings
from palaver.ports.models import (
    INSTRUCTIONS_CACHE,
    CallReady,
    Finished,
    JsonObject,
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    Started,
    TextDelta,
    Thought,
    ToolSpec,
    Usage,
)

try:
    import anthropic
    import httpx2
except ImportError as problem:
    raise MissingExtra("anthropic", "The Anthropic client") from problem

PATH = "/v1/messages"
MIN_CACHED = 8_000  # characters: the service caches nothing shorter than a few thousand tokens
EPHEMERAL = {"type": "ephemeral"}
NO_TOOLS = {"type": "none"}
MAX_TOKENS = 4_096  # of the answer: the service requires a limit
REASONS = {
    "end_turn": "stop", "stop_sequence": "stop", "max_tokens": "length", "tool_use": "tool_calls",
    "refusal": "content_filter",
}  # fmt: skip
_TOO_LONG = re.compile(r"prompt is too long|context.?(?:window|length)|exceed.{0,40}tokens", re.IGNORECASE)
FAILURES = (anthropic.AnthropicError, httpx2.HTTPError, ValueError, TypeError, AttributeError, KeyError, IndexError)


class AnthropicMessages(ProviderClient[anthropic.AsyncAnthropic]):
    adapter = "anthropic-messages"
    provider = "anthropic"
    failures = FAILURES

    def __init__(
        self,
        model: str,
        *,
        name: str | None = None,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout: float = 120.0,
        window: int | None = None,
    ) -> None:
        def connect() -> anthropic.AsyncAnthropic:
            return anthropic.AsyncAnthropic(api_key=api_key, base_url=base_url, timeout=timeout, max_retries=0)

        trial = connect()
        if trial.api_key is None and trial.auth_token is None and trial.credentials is None:
            raise InvalidInput("api_key", "is missing: set ANTHROPIC_API_KEY")
        super().__init__(model, name or f"anthropic:{model}", window, str(trial.base_url), connect)

    def body(self, request: ModelRequest) -> JsonObject:
        mapped = map_tool_calls(request.messages)
        rendered = to_anthropic(mapped.messages)
        reasoning = {mapped.ids.get(id, id): blocks for id, blocks in request.reasoning.items()}
        messages = [_with_reasoning(message, reasoning) for message in rendered["messages"]]
        body: JsonObject = {"model": self.model, "messages": messages}
        if request.stream:
            body["stream"] = True
        if rendered["system"]:
            body["system"] = rendered["system"]
        _mark_for_cache(body, request)
        if request.tools:
            body["tools"] = [_tool(tool) for tool in request.tools]
            body["tool_choice"] = _choice(request)
        settings = dict(request.settings)
        _mark_instructions(body, request, settings.pop(INSTRUCTIONS_CACHE, None))
        if settings.pop("parallel_tool_calls", True) is False and body.get("tool_choice", NO_TOOLS) != NO_TOOLS:
            body["tool_choice"]["disable_parallel_tool_use"] = True
        return {"max_tokens": MAX_TOKENS, **with_settings(body, settings)}

    async def _read_whole(self, body: JsonObject) -> AsyncGenerator[ModelEvent]:
        answer = cast(
            JsonObject, await self._clients.get().post(PATH, body=body, cast_to=object, options=trace_options())
        )
        yield Started(answer["id"], answer.get("model"))
        for block in answer["content"]:
            if block["type"] == "text":
                yield TextDelta(block["text"])
            elif block["type"] == "tool_use":
                yield CallReady(call_of(block.get("id"), block.get("name"), _json(block["input"])))
            elif block["type"] in ("thinking", "redacted_thinking"):
                yield Thought(block)
        yield _usage(answer["usage"], answer["usage"])
        reason = answer.get("stop_reason") or "end_turn"
        yield Finished(REASONS.get(reason, reason), answer.get("stop_sequence"))

    async def _read_stream(self, body: JsonObject) -> AsyncGenerator[ModelEvent]:
        """Read the events as plain JSON: making the SDK's own types costs more than everything else, for each token."""
        parser = _StreamParser()
        kind = anthropic.AsyncStream[object]
        stream: Any = await self._clients.get().post(
            PATH, body=body, cast_to=object, stream=True, stream_cls=kind, options=trace_options()
        )
        async with stream:
            async for event in stream:
                for one in parser.parse(event):
                    yield one
        if not parser.over:
            raise BadModelResponse(self.name, "ended in the middle of its response")

    def _translate_error(self, error: Exception) -> ModelError:
        if isinstance(error, anthropic.APITimeoutError | httpx2.TimeoutException):
            return ModelUnavailable(self.name, "took too long")
        if isinstance(error, anthropic.APIConnectionError | httpx2.HTTPError):
            return ModelUnavailable(self.name, "cannot be reached, or closed the connection")
        if isinstance(error, anthropic.APIStatusError):
            return self._refusal(error)
        if isinstance(error, anthropic.AnthropicError):
            return ModelRefused(self.name, "refused the request")
        return BadModelResponse(self.name, "sent a malformed response")

    def _refusal(self, error: anthropic.APIStatusError) -> ModelError:
        status, kind = error.status_code, error.type
        if status == 413 or (kind == "invalid_request_error" and _TOO_LONG.search(error.message)):
            return ContextTooLong(self.name, status=status)
        if status == 429 or kind == "rate_limit_error":
            return RateLimited(self.name, retry_after=retry_after(error.response.headers), status=status)
        if status in (408, 409) or status >= 500 or kind in ("api_error", "overloaded_error", "timeout_error"):
            return ModelUnavailable(self.name, "failed", status=status)
        if status in (401, 403):
            return ModelRefused(self.name, "does not accept the key", status=status)
        if status == 404:
            return ModelRefused(self.name, "is not known to the service", status=status)
        return ModelRefused(self.name, "refused the request", status=status)


@dataclass(slots=True)
class _Block:
    kind: str
    start: JsonObject
    pieces: list[str] = field(default_factory=list)
    signature: str = ""


@dataclass(slots=True)
class _StreamParser:
    """The state of a stream: turns its events into ours."""

    over: bool = False
    reason: str = "stop"
    sequence: str | None = None
    usage: JsonObject = field(default_factory=dict)
    blocks: dict[int, _Block] = field(default_factory=dict)

    def parse(self, event: JsonObject) -> list[ModelEvent]:
        kind = event["type"]
        if kind == "content_block_delta":
            return self._parse_delta(self.blocks[event["index"]], event["delta"])
        if kind == "message_start":
            self.usage = event["message"]["usage"]
            return [Started(event["message"].get("id"), event["message"].get("model"))]
        if kind == "content_block_start":
            block = event["content_block"]
            self.blocks[event["index"]] = _Block(block["type"], block)
            return [TextDelta(block["text"])] if block["type"] == "text" and block["text"] else []
        if kind == "content_block_stop":
            return _finish_block(self.blocks[event["index"]])
        if kind == "message_delta":
            self.reason = event["delta"].get("stop_reason") or self.reason
            self.sequence = event["delta"].get("stop_sequence")
            return [_usage(self.usage, event["usage"])]
        if kind == "message_stop":
            self.over = True
            return [Finished(REASONS.get(self.reason, self.reason), self.sequence)]
        return []

    def _parse_delta(self, block: _Block, delta: JsonObject) -> list[ModelEvent]:
        if delta["type"] == "text_delta":
            return [TextDelta(delta["text"])]
        if delta["type"] == "input_json_delta":
            block.pieces.append(delta["partial_json"])
        elif delta["type"] == "thinking_delta":
            block.pieces.append(delta["thinking"])
            return [ReasoningDelta(delta["thinking"])]
        elif delta["type"] == "signature_delta":
            block.signature += delta["signature"]
        return []


def _finish_block(block: _Block) -> list[ModelEvent]:
    if block.kind == "tool_use":
        return [CallReady(call_of(block.start.get("id"), block.start.get("name"), "".join(block.pieces)))]
    if block.kind == "thinking":
        signed = {"type": "thinking", "thinking": "".join(block.pieces), "signature": block.signature}
        return [Thought(signed)]
    return [Thought(block.start)] if block.kind == "redacted_thinking" else []


def _mark_for_cache(body: JsonObject, request: ModelRequest) -> None:
    """Mark the part of the prompt that will be the same next time, because the service caches only what is marked.

    During a tool loop, mark the end too: the next round only adds to it.
    """
    prefix = to_anthropic(request.messages[: request.stable])
    if all(message["role"] == "system" for message in request.messages[: request.stable]):
        prefix["messages"] = []
    weight = len(prefix["system"]) + sum(len(str(turn["content"])) for turn in prefix["messages"])
    if not request.stable or weight < MIN_CACHED:
        return
    messages = body["messages"]
    if prefix["messages"]:
        turn, end = len(prefix["messages"]) - 1, len(prefix["messages"][-1]["content"]) - 1
        messages[turn] = _mark_block(messages[turn], end)
    else:
        body["system"] = [{"type": "text", "text": body["system"], "cache_control": EPHEMERAL}]
    if request.messages[-1]["role"] == "tool":
        messages[-1] = _mark_block(messages[-1], len(messages[-1]["content"]) - 1)


def _mark_instructions(body: JsonObject, request: ModelRequest, control: object) -> None:
    """Mark the first system message, which is the caller's own, as the caller asked for. Memory follows it unmarked."""
    if not isinstance(control, Mapping) or "system" not in body:
        return
    blocks = body["system"] if isinstance(body["system"], list) else [{"type": "text", "text": body["system"]}]
    first, text = request.messages[0]["content"], blocks[0]["text"]
    rest = text.removeprefix(first) if isinstance(first, str) else ""
    marked = {"type": "text", "text": text.removesuffix(rest) if rest else text, "cache_control": dict(control)}
    body["system"] = [marked, {**blocks[0], "text": rest}] if rest else [marked]


def _mark_block(message: JsonObject, place: int) -> JsonObject:
    blocks = list(message["content"])
    blocks[place] = {**blocks[place], "cache_control": EPHEMERAL}
    return {**message, "content": blocks}


def _with_reasoning(message: JsonObject, reasoning: Mapping[str, Sequence[Mapping[str, object]]]) -> JsonObject:
    """Put the model's reasoning before its calls again: the service requires it."""
    for block in message["content"] if reasoning else ():
        if block["type"] == "tool_use" and block["id"] in reasoning:
            return {**message, "content": [*map(dict, reasoning[block["id"]]), *message["content"]]}
    return message


def _tool(tool: ToolSpec) -> JsonObject:
    strict = {"strict": True} if tool.strict else {}
    return {
        "name": provider_name(tool.name),
        "description": tool.description,
        "input_schema": dict(tool.parameters),
        **strict,
    }


def _choice(request: ModelRequest) -> JsonObject:
    if isinstance(request.tool_choice, dict):
        return {"type": "tool", "name": provider_name(request.tool_choice["name"])}
    return {"type": "any" if request.tool_choice == "required" else request.tool_choice}


def _usage(start: JsonObject, end: JsonObject) -> Usage:
    """Add up the input tokens: the service reports those read from and written to its cache separately."""
    cached = start.get("cache_read_input_tokens") or 0
    prompt = (start.get("input_tokens") or 0) + cached + (start.get("cache_creation_input_tokens") or 0)
    return Usage(prompt=prompt, completion=end.get("output_tokens"), cached=cached)


def _json(value: object) -> str:
    import msgspec

    return msgspec.json.encode(value).decode()
