"""Encodes an answer as OpenAI's Responses: events, or one object. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from palaver.generation.events import Answered, ToolDone, ToolsPlanned, TurnOpened
from palaver.model import ToolCall, Turn
from palaver.ports.models import JsonObject, ReasoningDelta, TextDelta
from palaver.server.compat import openai_items
from palaver.server.compat.compaction import COMPACTED, compaction_item
from palaver.server.compat.openai_responses.parse import ECHOED, PREFIX
from palaver.server.compat.replay import INPUT, AnswerEvent, AnswerTotals, Interrupted
from palaver.server.compat.request import (
    arguments_text,
)

FIRST_FRAMES = 4  # identical in every replay: created, in progress, the message, its text part


@dataclass(slots=True)
class ResponseFrames:
    """Encodes an answer as numbered events of a response. `number` is that of the next event."""

    id: str
    created: int
    conversation: str | None
    echo: Mapping[str, Any]
    number: int = 0
    output: list[JsonObject] = field(default_factory=list)
    totals: AnswerTotals = field(default_factory=AnswerTotals)
    status: str = "in_progress"
    error: JsonObject | None = None
    _turn: str = ""
    _text: list[str] | None = None  # of the open message
    _thought: list[str] | None = None
    _round: ToolsPlanned | None = None  # of tools that run on the server
    _done: dict[str, ToolDone] = field(default_factory=dict)
    _first_tool: int = 0

    # ---- the object

    def response(self) -> JsonObject:
        reason = {"length": "max_output_tokens", "content_filter": "content_filter"}.get(self.totals.reason)
        details = {"reason": reason} if self.status == "incomplete" else None
        conversation = None if self.conversation is None else {"id": f"conv_{self.conversation}"}
        return {
            "id": f"{PREFIX}{self.id}",
            "object": "response",
            "created_at": self.created,
            "completed_at": self.created if self.status == "completed" else None,
            "status": self.status,
            "error": self.error,
            "incomplete_details": details,
            **{name: self.echo.get(name, usual) for name, usual in ECHOED.items()},
            "model": self.echo.get("model", ""),
            "output": list(self.output),
            "conversation": conversation,
            "usage": _usage(self.totals) if self.status != "in_progress" else None,
        }

    # ---- the events

    def start(self) -> list[Any]:
        return [self._about("response.created"), self._about("response.in_progress")]

    def encode(self, event: AnswerEvent) -> list[Any]:
        self.totals.add(event)
        if isinstance(event, TurnOpened):
            self._turn = event.turn.id
            return self._encode_compaction(event.turn)
        if isinstance(event, ReasoningDelta):
            return self._reasoning_delta(event.text)
        if isinstance(event, TextDelta):
            return self._output_delta(event.text)
        if isinstance(event, ToolsPlanned):
            return [*self._close_open(), *self._begin_tools(event)]
        if isinstance(event, ToolDone):
            return self._end_tools(event)
        if isinstance(event, Answered):
            return self._finish(event)
        return self._interrupted() if isinstance(event, Interrupted) else []

    def _begin_tools(self, event: ToolsPlanned) -> list[Any]:
        """Encode the calls that run on the server."""
        self._round, self._done, frames = event, {}, list[Any]()
        self._first_tool = len(self.output)
        for n, call in enumerate(event.calls):
            item = openai_items.tool_item(event.turn.id, n, call, None)
            self.output.append(item)
            at = {"item_id": item["id"], "output_index": len(self.output) - 1}
            frames += [
                self._item("added", {**item, "arguments": ""}),
                self._frame("mcp_call.in_progress", **at),
                self._frame("mcp_call_arguments.delta", **at, delta=item["arguments"]),
                self._frame("mcp_call_arguments.done", **at, arguments=item["arguments"]),
            ]
        return frames

    def _end_tools(self, event: ToolDone) -> list[Any]:
        """Encode the results of a round once all are there: in the order of the calls, the same in every replay."""
        self._done[event.call.id] = event
        if self._round is None or any(call.id not in self._done for call in self._round.calls):
            return []
        frames: list[Any] = []
        for n, call in enumerate(self._round.calls):
            place = self._first_tool + n
            item = openai_items.tool_item(self._round.turn.id, n, call, self._done[call.id])
            self.output[place] = item
            frames += [
                self._frame(f"mcp_call.{item['status']}", item_id=item["id"], output_index=place),
                self._frame("output_item.done", output_index=place, item=item),
            ]
        self._round = None
        return frames

    def _encode_compaction(self, turn: Turn) -> list[Any]:
        """Encode the compaction of the thread that was made before the first turn of an answer."""
        if self.output or not turn.metadata.get(COMPACTED):
            return []
        self.output.append(compaction_item(turn.conversation, str(turn.metadata[INPUT])))
        return [self._item("added", self.output[-1]), self._item("done", self.output[-1])]

    def encode_error(self, error: Mapping[str, Any]) -> list[Any]:
        """Encode the end of an answer that failed."""
        self.status, self.error = "failed", {"code": "server_error", "message": error["message"]}
        return [*self._close_open("incomplete"), self._about("response.failed")]

    def _interrupted(self) -> list[Any]:
        return self.encode_error({"message": "The answer was interrupted"})

    def _finish(self, event: Answered) -> list[Any]:
        frames = self._close_open()
        for n, call in enumerate(event.turn.tool_calls):
            if call in self.totals.calls:
                frames += self._encode_call(event.turn.id, n, call)
        if self.totals.stopped:
            # The service documents no event for a stop. Clients treat this one as an incomplete answer.
            self.status = "cancelled"
            return [*frames, self._about("response.incomplete")]
        self.status = "incomplete" if self.totals.reason in ("length", "content_filter") else "completed"
        return [*frames, self._about(f"response.{self.status}")]

    def _output_delta(self, text: str) -> list[Any]:
        frames = self._close_reasoning()
        if self._text is None:
            self._text = []
            item = self._message("in_progress", [])
            self.output.append(item)
            part = openai_items.output_text("")
            frames += [self._item("added", item), self._frame("content_part.added", **self._place(), part=part)]
        self._text.append(text)
        return [*frames, self._frame("output_text.delta", **self._place(), delta=text, logprobs=[])]

    def _close_open(self, status: str = "completed") -> list[Any]:
        """Encode the end of the open message and reasoning."""
        frames = self._close_reasoning()
        if self._text is None:
            return frames
        text, self._text = "".join(self._text), None
        part = openai_items.output_text(text)
        self.output[-1] = item = self._message(status, [part])
        return [
            *frames,
            self._frame("output_text.done", **self._place(), text=text, logprobs=[]),
            self._frame("content_part.done", **self._place(), part=part),
            self._item("done", item),
        ]

    def _reasoning_delta(self, text: str) -> list[Any]:
        frames: list[Any] = []
        if self._thought is None:
            frames, self._thought = self._close_open(), []
            item = self._reasoning([])
            self.output.append(item)
            part = {"type": "summary_text", "text": ""}
            frames += [
                self._item("added", item),
                self._frame("reasoning_summary_part.added", **self._aside(), part=part),
            ]
        self._thought.append(text)
        return [*frames, self._frame("reasoning_summary_text.delta", **self._aside(), delta=text)]

    def _close_reasoning(self) -> list[Any]:
        if self._thought is None:
            return []
        text, self._thought = "".join(self._thought), None
        part = {"type": "summary_text", "text": text}
        self.output[-1] = item = self._reasoning([part])
        return [
            self._frame("reasoning_summary_text.done", **self._aside(), text=text),
            self._frame("reasoning_summary_part.done", **self._aside(), part=part),
            self._item("done", item),
        ]

    def _encode_call(self, turn: str, n: int, call: ToolCall) -> list[Any]:
        item, arguments = openai_items.call_item(turn, n, call), arguments_text(call.arguments)
        self.output.append(item)
        at = {"item_id": item["id"], "output_index": len(self.output) - 1}
        return [
            self._item("added", {**item, "arguments": "", "status": "in_progress"}),
            self._frame("function_call_arguments.delta", **at, delta=arguments),
            self._frame("function_call_arguments.done", **at, name=call.name, arguments=arguments),
            self._item("done", item),
        ]

    def _message(self, status: str, content: list[JsonObject]) -> JsonObject:
        head = {"id": f"msg_{self._turn or self.id}", "type": "message", "status": status}
        return {**head, "role": "assistant", "content": content}

    def _reasoning(self, summary: list[JsonObject]) -> JsonObject:
        return {"id": f"rs_{self._turn or self.id}", "type": "reasoning", "summary": summary}

    def _place(self) -> JsonObject:
        return {"item_id": f"msg_{self._turn or self.id}", "output_index": len(self.output) - 1, "content_index": 0}

    def _aside(self) -> JsonObject:
        return {"item_id": f"rs_{self._turn or self.id}", "output_index": len(self.output) - 1, "summary_index": 0}

    def _item(self, what: str, item: Mapping[str, Any]) -> JsonObject:
        return self._frame(f"output_item.{what}", output_index=len(self.output) - 1, item=item)

    def _about(self, kind: str) -> JsonObject:
        return self._frame(kind.removeprefix("response."), response=self.response())

    def _frame(self, kind: str, **fields: Any) -> JsonObject:
        self.number += 1
        return {"type": f"response.{kind}", "sequence_number": self.number - 1, **fields}


@dataclass(slots=True)
class ResumedFrames:
    """Encodes the rest of a response for a client that has the frames up to number `after`."""

    frames: ResponseFrames
    after: int
    exact: bool

    def start(self) -> list[Any]:
        return self._new_frames(self.frames.start())

    def encode(self, event: AnswerEvent) -> list[Any]:
        return self._new_frames(self.frames.encode(event))

    def encode_error(self, error: Mapping[str, Any]) -> list[Any]:
        return self._new_frames(self.frames.encode_error(error))

    def _new_frames(self, frames: list[Any]) -> list[Any]:
        if self.exact or self.after < FIRST_FRAMES:
            return [one for one in frames if one["sequence_number"] > self.after]
        # The log has other text pieces than the live stream had. Only frames that end something repeat all of it.
        ends = [one for one in frames if one["type"].endswith((".done", ".completed", ".incomplete", ".failed"))]
        numbered = [{**one, "sequence_number": self.after + n} for n, one in enumerate(ends, 1)]
        self.after += len(numbered)
        return numbered


def build_response(frames: ResponseFrames, events: list[AnswerEvent]) -> JsonObject:
    """Build an answer as one object, complete or as far as it is."""
    for event in events:
        frames.encode(event)
    if frames._text is not None:
        frames._close_open("in_progress")
    return frames.response()


def _usage(totals: AnswerTotals) -> JsonObject:
    return {
        "input_tokens": totals.prompt,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": totals.completion,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": totals.prompt + totals.completion,
    }
