"""The response of one model call, accumulated event by event."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from palaver.core.identity import new_id
from palaver.model import ToolCall
from palaver.ports.models import (
    CallReady,
    Cited,
    Finished,
    JsonObject,
    ModelEvent,
    ReasoningDelta,
    Started,
    TextDelta,
    Thought,
    Usage,
)

STOPPED = "stopped"
STOP_SEQUENCE = "stop_sequence"  # metadata of an answer: the stop sequence at which the model stopped


@dataclass(slots=True)
class ModelResponse:
    """The response so far: ids, tool calls, sources, reasoning, usage and times. The text is stored elsewhere.

    `names` has the application's names of tools that the provider calls otherwise.
    """

    began: float = field(default_factory=time.perf_counter)
    first: float | None = None
    id: str | None = None
    model: str | None = None
    calls: list[ToolCall] = field(default_factory=list)
    sources: list[Mapping[str, object]] = field(default_factory=list)
    reasoning_blocks: list[Mapping[str, object]] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    finish: str | None = None
    sequence: str | None = None
    retries: list[JsonObject] = field(default_factory=list)
    characters: int = 0  # of text, reasoning and calls
    names: Mapping[str, str] = field(default_factory=dict)

    def consume(self, event: ModelEvent) -> None:
        if self.first is None and not isinstance(event, Started):
            self.first = time.perf_counter()
        if isinstance(event, Started):
            self.id, self.model = event.id, event.model
        elif isinstance(event, CallReady):
            call = replace(event.call, name=self.names.get(event.call.name, event.call.name))
            self.calls.append(self._with_unique_id(call))
            self.characters += len(call.name) + len(str(call.arguments))
        elif isinstance(event, TextDelta | ReasoningDelta):
            self.characters += len(event.text)
        elif isinstance(event, Cited):
            self.sources.append(event.source)
        elif isinstance(event, Thought):
            self.reasoning_blocks.append(event.block)
        elif isinstance(event, Usage):
            self.usage = event
        elif isinstance(event, Finished):
            self.finish, self.sequence = event.reason, event.sequence

    def _with_unique_id(self, call: ToolCall) -> ToolCall:
        """Give a call a new id if its own is taken: some servers repeat one id, and results are matched by id."""
        taken = {one.id for one in self.calls}
        return replace(call, id=f"call_{new_id()}") if call.id in taken else call

    @property
    def reason(self) -> str:
        """The finish reason of a reply without calls. If calls were dropped because none were allowed, it is "stop"."""
        return "stop" if self.finish is None or self.finish == "tool_calls" else self.finish

    @property
    def end_metadata(self) -> dict[str, str]:
        """Metadata about the end of the response, for the stored turn."""
        return {} if self.sequence is None else {STOP_SEQUENCE: self.sequence}

    def timings(self) -> dict[str, float | None]:
        first = None if self.first is None else round(self.first - self.began, 4)
        return {"first_token": first, "total": round(time.perf_counter() - self.began, 4)}

    def to_record(self, problem: BaseException | None, *, stopped: bool = False) -> JsonObject:
        """Return how the call ended, without any of its text."""
        usage = {name: getattr(self.usage, name) for name in self.usage.__dataclass_fields__}
        status = getattr(problem, "status", None)
        return {
            "id": self.id,
            "model": self.model,
            "finish_reason": STOPPED if stopped else self.finish,
            "usage": {name: value for name, value in usage.items() if value is not None},
            "timings": self.timings(),
            "retries": self.retries,
            "calls": [call.name for call in self.calls],
            "error": None if problem is None else {"type": type(problem).__name__, "status": status},
        }
