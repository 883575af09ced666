"""From stored events to frames of a live feed, and the points at which a reader may go on. Pure.

A frame is told once per reader. The point after it is the number of the last event that was told, and for each turn
that is still being written the number of its characters that were told: text may run ahead of the log by what is not
flushed yet. `41:7.120` reads: all events up to 41, and 120 characters of the turn with seq 7.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from palaver.core.identity import stamped_seq
from palaver.model import Event, Turn
from palaver.server.rest import wire

TOLD_WITH_TURN = ("append", "open", "chunk", "commit", "abort")
DELETED = ("forget", "expire")
UNWRITTEN: Mapping[str, Any] = {
    "content": "", "status": "pending", "finish_reason": None, "tool_calls": [], "sources": [], "tokens": None,
}  # fmt: skip
_POINT = re.compile(r"(\d{1,15})(?::(\d{1,15}\.\d{1,15}(?:,\d{1,15}\.\d{1,15}){0,99}))?")


@dataclass(slots=True)
class Point:
    """Where a reader is. `marks` are characters told of pending turns, by the turn's seq."""

    n: int = 0
    marks: dict[int, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Point | None:
        """None when it is no point of ours."""
        match = _POINT.fullmatch(text.strip())
        if match is None:
            return None
        pairs = (mark.split(".") for mark in (match[2] or "").split(",") if mark)
        return cls(int(match[1]), {int(seq): int(offset) for seq, offset in pairs})

    def copy(self) -> Point:
        return Point(self.n, dict(self.marks))

    def go_to(self, other: Point) -> None:
        self.n, self.marks = other.n, dict(other.marks)

    def __str__(self) -> str:
        marks = ",".join(f"{seq}.{offset}" for seq, offset in sorted(self.marks.items()))
        return f"{self.n}:{marks}" if marks else str(self.n)


@dataclass(frozen=True, slots=True)
class Frame:
    """One thing that happened. A `delta` holds characters of a turn from `start` on; where a turn ends, so many of them
    were told before."""

    kind: str
    n: int
    data: Mapping[str, Any]
    turn: str | None = None
    start: int = 0
    text: str = ""
    _encoded: list[bytes] = field(default_factory=list, compare=False, repr=False)

    @property
    def encoded(self) -> bytes:
        """The data as JSON, made once for all readers."""
        if not self._encoded:
            self._encoded.append(wire.encode(self.data))
        return self._encoded[0]

    @property
    def end(self) -> int:
        return self.start + len(self.text)

    @property
    def is_last(self) -> bool:
        """Whether nothing can come after it: the conversation is gone."""
        return self.kind == "gone"


def delta(turn: str, n: int, start: int, text: str) -> Frame:
    return Frame("delta", n, {"turn": turn, "from": start, "text": text}, turn, start, text)


class Teller:
    """Tells a log as frames, from a point on."""

    def __init__(self, point: Point) -> None:
        self.point = point

    def page(self, events: Iterable[Event], turns: Mapping[str, Turn]) -> list[Frame]:
        """The frames of a page of the log. `turns` are those that its events are about, as they are now."""
        frames: list[Frame] = []
        for event in events:
            frames += self._event(event, turns)
        return _joined(frames)

    def written(self, turn: str, text_since: Any, length: int) -> list[Frame]:
        """What a writer of this process has, ahead of the log. Unknown turns are told when the log tells of them."""
        seq = _seq(turn)
        told = self.point.marks.get(seq)
        if told is None or length <= told:
            return []
        self.point.marks[seq] = length
        return [delta(turn, self.point.n, told, text_since(told))]

    def _event(self, event: Event, turns: Mapping[str, Turn]) -> list[Frame]:
        if event.n <= self.point.n:
            return []
        self.point.n = event.n
        turn = turns.get(event.turn or "")
        if event.kind in TOLD_WITH_TURN and turn is not None:
            return self._about_turn(event, turn)
        if event.kind in DELETED and event.turn is None:
            return [Frame("gone", event.n, wire.event(event))]
        return [Frame(event.kind, event.n, wire.event(event), event.turn)]

    def _about_turn(self, event: Event, turn: Turn) -> list[Frame]:
        marks, seq, ended = self.point.marks, _seq(turn.id), 0
        frames: list[Frame] = []
        if event.kind == "open":
            marks.setdefault(seq, 0)
        elif event.kind == "chunk":
            told = marks.setdefault(seq, event.payload["from"])
            text = turn.text[told : event.payload["to"]]
            marks[seq] = max(told, event.payload["to"])
            return [delta(turn.id, event.n, told, text)] if text else []
        elif seq in marks:
            told = marks.pop(seq)
            ended = max(told, len(turn.text))
            if told < ended:  # what others were told before the log told of it
                frames.append(delta(turn.id, event.n - 1, told, turn.text[told:]))
        shown = wire.turn(turn)
        if event.kind == "open":  # its text follows, in pieces
            shown |= UNWRITTEN
        return [*frames, Frame(event.kind, event.n, {**wire.event(event), "turn": shown}, turn.id, ended)]


class Telling:
    """What one reader was told: passes on the frames of a shared feed that are new to it."""

    def __init__(self, point: Point) -> None:
        self.point = point

    def new(self, frame: Frame) -> Frame | None:
        """The frame, what is new of it, or nothing. Raises LookupError when something before it is missing."""
        marks = self.point.marks
        seq = _seq(frame.turn) if frame.turn else -1
        if frame.kind == "delta":
            return self._piece(frame, seq)
        if frame.n <= self.point.n:
            return None
        if frame.kind in ("commit", "abort") and marks.get(seq, frame.start) < frame.start:
            raise LookupError(frame.turn)  # its last words were told while this reader was looking elsewhere
        self.point.n = frame.n
        if frame.kind == "open":
            marks.setdefault(seq, 0)
        elif frame.kind in ("commit", "abort"):
            marks.pop(seq, None)
        return frame

    def _piece(self, frame: Frame, seq: int) -> Frame | None:
        """What is new of a piece of text. A turn of which nothing is known was sealed before, or begins here."""
        point, told = self.point, self.point.marks.get(seq)
        if told is None:
            if frame.n < point.n:
                return None
            if frame.n == point.n:
                raise LookupError(frame.turn)  # it began while this reader was looking elsewhere
            told = frame.start
        if frame.start > told:
            raise LookupError(frame.turn)
        point.n = max(point.n, frame.n)
        if frame.end <= told:
            return None
        point.marks[seq] = frame.end
        return (
            frame if told == frame.start else delta(frame.turn or "", frame.n, told, frame.text[told - frame.start :])
        )


def _seq(turn: str) -> int:
    return stamped_seq(turn) or 0


def _joined(frames: list[Frame]) -> list[Frame]:
    """Neighbouring pieces of one turn as one piece."""
    joined: list[Frame] = []
    for frame in frames:
        last = joined[-1] if joined else None
        if last is not None and frame.kind == last.kind == "delta" and frame.turn == last.turn:
            text = last.text + frame.text
            joined[-1] = delta(last.turn or "", frame.n, last.start, text)
        else:
            joined.append(frame)
    return joined
