"""Encodes stored events as frames of a live feed, with positions at which a reader can resume. Pure.

A reader gets each frame once. The position after a frame is the number of the last event sent and, for each pending
turn, how many of its characters were sent: live text may be ahead of the log by what is not flushed yet. `41:7.120`
means all events up to 41, and 120 characters of the turn with seq 7.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from palaver.core.identity import stamped_seq
from palaver.model import Event, Turn
from palaver.server import wire

EVENTS_WITH_TURN = ("append", "open", "chunk", "commit", "abort")
DELETED = ("forget", "expire")
PENDING_FIELDS: Mapping[str, object] = {
    "content": "", "status": "pending", "finish_reason": None, "tool_calls": [], "sources": [], "tokens": None,
}  # fmt: skip
_POINT = re.compile(r"(\d{1,15})(?::(\d{1,15}\.\d{1,15}(?:,\d{1,15}\.\d{1,15}){0,99}))?")


@dataclass(slots=True)
class FeedPosition:
    """The position of a reader. `marks` counts the characters sent of pending turns, by the turn's seq."""

    n: int = 0
    marks: dict[int, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> FeedPosition | None:
        """Parse a position. None if it is malformed."""
        match = _POINT.fullmatch(text.strip())
        if match is None:
            return None
        pairs = (mark.split(".") for mark in (match[2] or "").split(",") if mark)
        return cls(int(match[1]), {int(seq): int(offset) for seq, offset in pairs})

    def copy(self) -> FeedPosition:
        return FeedPosition(self.n, dict(self.marks))

    def move_to(self, other: FeedPosition) -> None:
        self.n, self.marks = other.n, dict(other.marks)

    def __str__(self) -> str:
        marks = ",".join(f"{seq}.{offset}" for seq, offset in sorted(self.marks.items()))
        return f"{self.n}:{marks}" if marks else str(self.n)


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame. A `delta` holds characters of a turn from `start` on; in the frame that ends a turn, `start` is the
    number of characters sent before."""

    kind: str
    n: int
    data: Mapping[str, object]
    turn: str | None = None
    start: int = 0
    text: str = ""
    _encoded: list[bytes] = field(default_factory=list, compare=False, repr=False)

    @property
    def encoded(self) -> bytes:
        """The data as JSON, encoded once for all readers."""
        if not self._encoded:
            self._encoded.append(wire.encode(self.data))
        return self._encoded[0]

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    @property
    def is_last(self) -> bool:
        """True if nothing can follow: the conversation was deleted."""
        return self.kind == "gone"


def delta(turn: str, n: int, start: int, text: str) -> Frame:
    return Frame("delta", n, {"turn": turn, "from": start, "text": text}, turn, start, text)


class FrameEncoder:
    """Encodes a log as frames, from a position on."""

    def __init__(self, point: FeedPosition) -> None:
        self.point = point

    def encode_events(self, events: Iterable[Event], turns: Mapping[str, Turn]) -> list[Frame]:
        """Encode a page of the log. `turns` are the turns of its events, in their current state."""
        frames: list[Frame] = []
        for event in events:
            frames += self._encode_event(event, turns)
        return _join_deltas(frames)

    def encode_unflushed(self, turn: str, text_since: Callable[[int], str], length: int) -> list[Frame]:
        """Encode text of a writer in this process that is not in the log yet. Turns unknown to the log are skipped."""
        seq = _seq(turn)
        sent = self.point.marks.get(seq)
        if sent is None or length <= sent:
            return []
        self.point.marks[seq] = length
        return [delta(turn, self.point.n, sent, text_since(sent))]

    def _encode_event(self, event: Event, turns: Mapping[str, Turn]) -> list[Frame]:
        if event.n <= self.point.n:
            return []
        self.point.n = event.n
        turn = turns.get(event.turn or "")
        if event.kind in EVENTS_WITH_TURN and turn is not None:
            return self._encode_turn_event(event, turn)
        if event.kind in DELETED and event.turn is None:
            return [Frame("gone", event.n, wire.event(event))]
        return [Frame(event.kind, event.n, wire.event(event), event.turn)]

    def _encode_turn_event(self, event: Event, turn: Turn) -> list[Frame]:
        marks, seq, ended = self.point.marks, _seq(turn.id), 0
        frames: list[Frame] = []
        if event.kind == "open":
            marks.setdefault(seq, 0)
        elif event.kind == "chunk":
            sent = marks.setdefault(seq, event.payload["from"])
            text = turn.text[sent : event.payload["to"]]
            marks[seq] = max(sent, event.payload["to"])
            return [delta(turn.id, event.n, sent, text)] if text else []
        elif seq in marks:
            sent = marks.pop(seq)
            ended = max(sent, len(turn.text))
            if sent < ended:  # the rest of the text, which the log has only now
                frames.append(delta(turn.id, event.n - 1, sent, turn.text[sent:]))
        shown = wire.turn(turn)
        if event.kind == "open":  # its text follows in deltas
            shown |= PENDING_FIELDS
        return [*frames, Frame(event.kind, event.n, {**wire.event(event), "turn": shown}, turn.id, ended)]


class ReaderCursor:
    """Tracks one reader: selects what is new to it from the frames of a shared feed."""

    def __init__(self, point: FeedPosition) -> None:
        self.point = point

    def new_part(self, frame: Frame) -> Frame | None:
        """Return the frame, its new part, or None. Raises LookupError if something before it is missing."""
        marks = self.point.marks
        seq = _seq(frame.turn) if frame.turn else -1
        if frame.kind == "delta":
            return self._new_text(frame, seq)
        if frame.n <= self.point.n:
            return None
        if frame.kind in ("commit", "abort") and marks.get(seq, frame.start) < frame.start:
            raise LookupError(frame.turn)  # its last text was published while this reader was behind
        self.point.n = frame.n
        if frame.kind == "open":
            marks.setdefault(seq, 0)
        elif frame.kind in ("commit", "abort"):
            marks.pop(seq, None)
        return frame

    def _new_text(self, frame: Frame, seq: int) -> Frame | None:
        """Return the new part of a delta. A turn without a mark ended before, or starts here."""
        point, sent = self.point, self.point.marks.get(seq)
        if sent is None:
            if frame.n < point.n:
                return None
            if frame.n == point.n:
                raise LookupError(frame.turn)  # it started while this reader was behind
            sent = frame.start
        if frame.start > sent:
            raise LookupError(frame.turn)
        point.n = max(point.n, frame.n)
        if frame.end <= sent:
            return None
        point.marks[seq] = frame.end
        return (
            frame if sent == frame.start else delta(frame.turn or "", frame.n, sent, frame.text[sent - frame.start :])
        )


def _seq(turn: str) -> int:
    return stamped_seq(turn) or 0


def _join_deltas(frames: list[Frame]) -> list[Frame]:
    """Join neighbouring deltas of one turn."""
    joined: list[Frame] = []
    for frame in frames:
        last = joined[-1] if joined else None
        if last is not None and frame.kind == last.kind == "delta" and frame.turn == last.turn:
            text = last.text + frame.text
            joined[-1] = delta(last.turn or "", frame.n, last.start, text)
        else:
            joined.append(frame)
    return joined
