"""Encodes an answer as OpenAI's Chat Completions: chunks, or one object. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from palaver.generation.events import Answered, ToolsPlanned
from palaver.model import ToolCall
from palaver.ports.models import ReasoningDelta, TextDelta
from palaver.server.compat.replay import AnswerEvent, AnswerTotals, Interrupted
from palaver.server.compat.request import (
    arguments_text,
)

GAP = "\n\n"  # between text before and after tools ran
PREFIX = "chatcmpl-"
DONE = "[DONE]"
INTERRUPTED = {"message": "The answer was interrupted", "type": "server_error", "param": None, "code": "cut_off"}


@dataclass(slots=True)
class ChatChunks:
    """Encodes an answer as chunks of a stream."""

    id: str
    created: int
    model: str
    include_usage: bool = False
    totals: AnswerTotals = field(default_factory=AnswerTotals)
    _gap: bool = False

    def start(self) -> list[Any]:
        return [self._chunk({"role": "assistant", "content": ""})]

    def encode(self, event: AnswerEvent) -> list[Any]:
        self.totals.add(event)
        if isinstance(event, TextDelta):
            gap, self._gap = (GAP if self._gap else ""), False
            return [self._chunk({"content": gap + event.text})]
        if isinstance(event, ReasoningDelta):
            return [self._chunk({"reasoning_content": event.text})]
        if isinstance(event, ToolsPlanned):
            self._gap = bool(self.totals.text)
        if isinstance(event, Interrupted):
            return [{"error": INTERRUPTED}]
        return self._finish() if isinstance(event, Answered) else []

    def _finish(self) -> list[Any]:
        calls = [{"index": n, **encode_call(call)} for n, call in enumerate(self.totals.calls)]
        frames: list[Any] = [self._chunk({"tool_calls": calls})] if calls else []
        frames.append(self._chunk({}, self.totals.reason))
        if self.include_usage:
            frames.append({**self._chunk({}), "choices": [], "usage": encode_usage(self.totals)})
        return [*frames, DONE]

    def _chunk(self, delta: dict[str, object], reason: str | None = None) -> dict[str, object]:
        chunk: dict[str, object] = {
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": self.created,
            "model": self.model,
            "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}],
        }
        return {**chunk, "usage": None} if self.include_usage else chunk


def build_completion(id: str, created: int, model: str, events: list[AnswerEvent]) -> dict[str, object]:
    """Build the answer as one object."""
    chunks = ChatChunks(id, created, model)
    text = []
    for event in events:
        for frame in chunks.encode(event):
            if frame != DONE and frame["choices"][0]["delta"].get("content"):
                text.append(frame["choices"][0]["delta"]["content"])
    totals = chunks.totals
    message: dict[str, object] = {"role": "assistant", "content": "".join(text) or None, "refusal": None}
    if totals.calls:
        message["tool_calls"] = [encode_call(call) for call in totals.calls]
    elif message["content"] is None:
        message["content"] = ""
    if totals.reasoning:
        message["reasoning_content"] = "".join(totals.reasoning)
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": totals.reason}
    head = {"id": id, "object": "chat.completion", "created": created, "model": model}
    return {**head, "choices": [choice], "usage": encode_usage(totals)}


def encode_call(call: ToolCall) -> dict[str, object]:
    function = {"name": call.name, "arguments": arguments_text(call.arguments)}
    return {"id": call.id, "type": "function", "function": function}


def encode_usage(totals: AnswerTotals) -> dict[str, int]:
    return {
        "prompt_tokens": totals.prompt,
        "completion_tokens": totals.completion,
        "total_tokens": totals.prompt + totals.completion,
    }
