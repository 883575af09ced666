"""Encodes an answer as the AI SDK's UI message stream. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from palaver.generation.events import Answered, ToolDone, ToolsPlanned
from palaver.model import ToolCall
from palaver.ports.models import ReasoningDelta, TextDelta
from palaver.server.compat.replay import AnswerEvent, AnswerTotals, Interrupted

HEADERS = {"x-vercel-ai-ui-message-stream": "v1"}
DONE = "[DONE]"
REASONS = {"stop": "stop", "length": "length", "tool_calls": "tool-calls", "content_filter": "content-filter"}
MEMORY = "data-memory"


@dataclass(slots=True)
class UIMessageFrames:
    """Encodes an answer as parts of a UI message. `memory`, at its head, describes what was recalled."""

    id: str
    conversation: str
    memory: Mapping[str, object] | None = None
    totals: AnswerTotals = field(default_factory=AnswerTotals)
    _open: str | None = None  # the type of the open part
    _count: int = 0
    _step: bool = False
    _ran: bool = False  # tools ran in this step

    def start(self) -> list[Any]:
        about = {"conversation": self.conversation}
        frames: list[Any] = [{"type": "start", "messageId": self.id, "messageMetadata": about}]
        if self.memory is not None:
            frames.append({"type": MEMORY, "id": f"memory-{self.id}", "data": dict(self.memory)})
        return frames

    def encode(self, event: AnswerEvent) -> list[Any]:
        self.totals.add(event)
        if isinstance(event, TextDelta):
            return self._text_delta("text", event.text)
        if isinstance(event, ReasoningDelta):
            return self._text_delta("reasoning", event.text)
        if isinstance(event, ToolsPlanned):
            frames = [*self._start_step(), *self._close_open(), *map(_input, event.calls)]
            self._ran = True
            return frames
        if isinstance(event, ToolDone):
            return [_output(event)]
        if isinstance(event, Answered):
            return self._finish(event)
        return self.encode_error({"detail": "The answer was interrupted"}) if isinstance(event, Interrupted) else []

    def encode_error(self, problem: Mapping[str, object]) -> list[Any]:
        return [*self._close_open(), {"type": "error", "errorText": str(problem["detail"])}, DONE]

    def _start_step(self) -> list[Any]:
        """Start a step, if needed. Each call of the model is a step; the next one starts after its tools ran."""
        if self._step and not self._ran:
            return []
        ended = [{"type": "finish-step"}] if self._ran else []
        self._step, self._ran = True, False
        return [*ended, {"type": "start-step"}]

    def _text_delta(self, kind: str, text: str) -> list[Any]:
        frames = self._start_step()
        if self._open != kind:
            frames += self._close_open()
            self._open, self._count = kind, self._count + 1
            frames.append({"type": f"{kind}-start", "id": str(self._count)})
        return [*frames, {"type": f"{kind}-delta", "id": str(self._count), "delta": text}]

    def _close_open(self) -> list[Any]:
        kind, self._open = self._open, None
        return [] if kind is None else [{"type": f"{kind}-end", "id": str(self._count)}]

    def _finish(self, event: Answered) -> list[Any]:
        # Calls for the page belong to the same step as those that ran on the server.
        frames = [] if self.totals.calls and self._ran else self._start_step()
        frames += [*self._close_open(), *map(_input, self.totals.calls)]
        frames += [shown for n, one in enumerate(event.turn.sources) if (shown := _source(f"{event.turn.id}-{n}", one))]
        finish = {"type": "finish", "finishReason": REASONS[self.totals.reason]}
        return [*frames, {"type": "finish-step"}, finish, DONE]


def _input(call: ToolCall) -> dict[str, object]:
    head = {"type": "tool-input-available", "toolCallId": call.id, "toolName": call.name}
    return {**head, "input": call.arguments}


def _output(event: ToolDone) -> dict[str, object]:
    if event.is_error:
        return {"type": "tool-output-error", "toolCallId": event.call.id, "errorText": str(event.content)}
    return {"type": "tool-output-available", "toolCallId": event.call.id, "output": event.content}


def _source(id: str, source: Mapping[str, object]) -> dict[str, object] | None:
    if isinstance(source.get("url"), str):
        title = source.get("title")
        return {"type": "source-url", "sourceId": id, "url": source["url"], **({"title": title} if title else {})}
    title = source.get("title") or source.get("filename") or source.get("turn")
    if title is None:
        return None
    return {"type": "source-document", "sourceId": id, "mediaType": "text/plain", "title": str(title)}
