"""Encodes an answer as Anthropic's Messages: events, or one object. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from palaver.generation.events import Answered, ToolsPlanned
from palaver.models.response_accumulator import STOP_SEQUENCE
from palaver.ports.models import JsonObject, ReasoningDelta, TextDelta, Thought
from palaver.server.compat.compaction import Compaction
from palaver.server.compat.context_edits import report_cleared
from palaver.server.compat.replay import AnswerEvent, AnswerTotals, Interrupted
from palaver.server.compat.request import (
    arguments_text,
)

REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
INTERRUPTED = {"type": "error", "error": {"type": "api_error", "message": "The answer was interrupted"}}
PING = {"type": "ping"}


@dataclass(slots=True)
class MessageFrames:
    """Encodes an answer as the events of a message."""

    id: str
    model: str
    compaction: Compaction | None = None
    is_paused: bool = False  # returns after the compaction
    applied: list[JsonObject] | None = None  # edits of the context; None: the client asked for none
    totals: AnswerTotals = field(default_factory=AnswerTotals)
    blocks: list[JsonObject] = field(default_factory=list)
    _open: str | None = None  # the type of the open block
    _pieces: list[str] = field(default_factory=list)

    def message(self) -> JsonObject:
        last = self.totals.last
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": list(self.blocks),
            **(self._stop_fields() if last is not None else {"stop_reason": None, "stop_sequence": None}),
            "usage": {"input_tokens": self.totals.prompt, "output_tokens": self.totals.completion},
            **self._edits(),
        }

    def start(self) -> list[Any]:
        return [{"type": "message_start", "message": self.message()}, PING]

    def encode(self, event: AnswerEvent) -> list[Any]:
        self.totals.add(event)
        return [*self._compaction_frames(), *self._encode(event)]

    def _compaction_frames(self) -> list[Any]:
        """Encode the compaction, the first block. Clients send it back in place of the messages before it."""
        if self.compaction is None or self.blocks:
            return []
        content = {"content": self.compaction.text, "encrypted_content": self.compaction.reference}
        self.blocks.append({"type": "compaction", **content})
        return [
            {"type": "content_block_start", "index": 0, "content_block": {"type": "compaction", "content": None}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "compaction_delta", **content}},
            {"type": "content_block_stop", "index": 0},
        ]

    def _edits(self) -> JsonObject:
        if self.applied is None:
            return {}
        cleared = report_cleared(self.totals.prompted.cleared) if self.totals.prompted is not None else []
        return {"context_management": {"applied_edits": [*self.applied, *cleared]}}

    def _encode(self, event: AnswerEvent) -> list[Any]:
        if isinstance(event, TextDelta):
            return self._text_delta("text", {"type": "text_delta", "text": event.text}, event.text)
        if isinstance(event, ReasoningDelta):
            return self._text_delta("thinking", {"type": "thinking_delta", "thinking": event.text}, event.text)
        if isinstance(event, Thought):
            return self._thought(event.block)
        if isinstance(event, ToolsPlanned):
            return self._close_open()
        if isinstance(event, Interrupted):
            return [*self._close_open(), INTERRUPTED]
        return self._finish() if isinstance(event, Answered) else []

    def _text_delta(self, kind: str, delta: JsonObject, text: str) -> list[Any]:
        frames: list[Any] = []
        if self._open != kind:
            frames = self._close_open()
            self._open = kind
            self.blocks.append(_block(kind, ""))
            frames.append({"type": "content_block_start", "index": self._index, "content_block": _block(kind, "")})
        self._pieces.append(text)
        return [*frames, {"type": "content_block_delta", "index": self._index, "delta": delta}]

    def _thought(self, block: Mapping[str, Any]) -> list[Any]:
        """Encode a complete reasoning block with the provider's signature, which clients must send back."""
        if self._open == "thinking" and block.get("type") == "thinking":
            delta = {"type": "signature_delta", "signature": str(block.get("signature") or "")}
            frames: list[Any] = [{"type": "content_block_delta", "index": self._index, "delta": delta}]
            frames += self._close_open()
            self.blocks[-1] = dict(block)
            return frames
        frames = self._close_open()
        self.blocks.append(dict(block))
        frames.append({"type": "content_block_start", "index": self._index, "content_block": dict(block)})
        return [*frames, {"type": "content_block_stop", "index": self._index}]

    def _close_open(self) -> list[Any]:
        if self._open is None:
            return []
        self.blocks[-1] = _block(self._open, "".join(self._pieces))
        self._open, self._pieces = None, []
        return [{"type": "content_block_stop", "index": self._index}]

    def _finish(self) -> list[Any]:
        frames = self._close_open()
        for call in self.totals.calls:
            block = {"type": "tool_use", "id": call.id, "name": call.name, "input": _input(call.arguments)}
            self.blocks.append(block)
            delta = {"type": "input_json_delta", "partial_json": arguments_text(block["input"])}
            frames += [
                {"type": "content_block_start", "index": self._index, "content_block": {**block, "input": {}}},
                {"type": "content_block_delta", "index": self._index, "delta": delta},
                {"type": "content_block_stop", "index": self._index},
            ]
        usage = {"input_tokens": self.totals.prompt, "output_tokens": self.totals.completion}
        return [
            *frames,
            {"type": "message_delta", "delta": self._stop_fields(), "usage": usage, **self._edits()},
            {"type": "message_stop"},
        ]

    def _stop_fields(self) -> JsonObject:
        """Return why it ended, and the stop sequence if one ended it."""
        if self.is_paused:
            return {"stop_reason": "compaction", "stop_sequence": None}
        sequence = self.totals.last.metadata.get(STOP_SEQUENCE) if self.totals.last is not None else None
        if isinstance(sequence, str) and self.totals.reason == "stop":
            return {"stop_reason": "stop_sequence", "stop_sequence": sequence}
        return {"stop_reason": REASONS[self.totals.reason], "stop_sequence": None}

    @property
    def _index(self) -> int:
        return len(self.blocks) - 1


def build_message(frames: MessageFrames, events: list[AnswerEvent]) -> JsonObject:
    """Build the answer as one object."""
    for event in events:
        frames.encode(event)
    return frames.message()


def _block(kind: str, text: str) -> JsonObject:
    if kind == "thinking":
        return {"type": "thinking", "thinking": text, "signature": ""}
    return {"type": "text", "text": text}  # without `citations`: the service omits it, and clients reject null


def _input(arguments: Any) -> JsonObject:
    """Return arguments as an object. Other values are wrapped."""
    return dict(arguments) if isinstance(arguments, Mapping) else {"arguments": arguments}
