"""From the stored log to what an answer told while it was made. Pure.

Every protocol's frames are made from these events, whether they come from the answer itself or from the log: so each
shape can be replayed, also by another process, also after a crash.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from palaver.generation.events import Answered, GenerateEvent, Prompted, ToolDone, ToolsPlanned, TurnOpened
from palaver.generation.tool_calls import client_calls, server_calls
from palaver.generation.tool_round import STOPPED_CALL
from palaver.model import Event, ToolCall, Turn
from palaver.models.response_accumulator import STOPPED
from palaver.ports.models import ReasoningDelta, TextDelta

INPUT = "input"  # in the metadata of an answer's turns: the last turn that it was asked with
TOLD_BY = ("open", "chunk", "commit", "abort", "append")


@dataclass(frozen=True, slots=True)
class Cut:
    """The answer ended in the middle; what came of it is in the turn."""

    turn: Turn


Beat = GenerateEvent | Cut


@dataclass(slots=True)
class Story:
    """The answer to one input, from the events behind it."""

    input: str
    told: dict[str, int] = field(default_factory=dict)  # characters, by turn
    running: dict[str, ToolCall] = field(default_factory=dict)
    waiting: Turn | None = None  # has calls for the client, and others that still run here
    planned: Turn | None = None  # has the calls that run here
    over: bool = False
    failed: frozenset[str] = frozenset()

    def take(self, event: Event, turn: Turn) -> list[Beat]:
        """What an event tells. `turn` is the one that it is about, as it is now."""
        if self.over or event.kind not in TOLD_BY:
            return []
        if turn.role == "tool":
            return self._results(turn)
        if turn.metadata.get(INPUT) != self.input or turn.id in self.failed:
            return []
        beats: list[Beat] = []
        if turn.id not in self.told:
            self.told[turn.id] = 0
            beats.append(TurnOpened(turn))
        if event.kind == "chunk":
            return beats + self._text(turn, event.payload["to"])
        if event.kind in ("commit", "append"):
            return beats + self._text(turn, len(turn.text)) + self._committed(turn)
        if event.kind == "abort":
            self.over = True
            return [*beats, *self._text(turn, len(turn.text)), Cut(turn)]
        return beats

    def told_by(self, turn: Turn) -> list[Beat]:
        """What a turn tells, as it is now."""
        if self.over:
            return []
        if turn.role == "tool":
            return self._results(turn)
        if turn.metadata.get(INPUT) != self.input or turn.status == "forgotten" or turn.id in self.failed:
            return []
        self.told[turn.id] = 0
        beats = [TurnOpened(turn), *self._text(turn, len(turn.text))]
        if turn.status == "complete":
            return beats + self._committed(turn)
        self.over = turn.status == "aborted"
        return [*beats, Cut(turn)] if self.over else beats

    def _text(self, turn: Turn, end: int) -> list[Beat]:
        start, self.told[turn.id] = self.told[turn.id], max(end, self.told[turn.id])
        return [TextDelta(turn.text[start:end])] if end > start else []

    def _committed(self, turn: Turn) -> list[Beat]:
        ours = server_calls(turn)
        if not ours:
            self.over = True
            return [Answered(turn)]
        self.running, self.planned = {call.id: call for call in ours}, turn
        self.waiting = turn if client_calls(turn) else None
        return [ToolsPlanned(turn, ours)]

    def _results(self, turn: Turn) -> list[Beat]:
        beats: list[Beat] = []
        stopped = False
        for result in turn.tool_results:
            call = self.running.pop(result.id, None)
            if call is not None:
                beats.append(ToolDone(call, result.content, result.is_error))
                stopped = stopped or (result.is_error and result.content == STOPPED_CALL)
        if stopped and self.planned is not None:  # a stop while tools ran: the round with the calls is the end
            self.over = True
            beats.append(Answered(self.planned))
        elif beats and not self.running and self.waiting is not None:
            self.over = True
            beats.append(Answered(self.waiting))
        return beats


def told(input: str, events: Iterable[Event], turns: Mapping[str, Turn]) -> list[Beat]:
    """The whole story, as far as the log has it."""
    story = Story(input)
    about = [(event, turns.get(event.turn or "")) for event in events]
    return [beat for event, turn in about if turn is not None for beat in story.take(event, turn)]


def from_turns(input: str, turns: Iterable[Turn]) -> list[Beat]:
    """The same from the turns behind an input alone: in one piece each, and as far as they are."""
    found = list(turns)
    story, beats = Story(input, failed=failures(input, found)), list[Beat]()
    for turn in found:
        beats += story.told_by(turn)
    return beats


def failures(input: str, turns: Iterable[Turn]) -> frozenset[str]:
    """Turns of tries that were cut and made again: they are not part of the story."""
    ids = [(turn.id, turn.status) for turn in turns if turn.role == "assistant" and turn.metadata.get(INPUT) == input]
    return frozenset(id for id, status in ids[:-1] if status == "aborted")


@dataclass(slots=True)
class Sum:
    """What an answer amounts to."""

    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    prompt: int = 0
    completion: int = 0
    turns: list[Turn] = field(default_factory=list)
    prompted: Prompted | None = None
    cut: bool = False
    ended: bool = False

    def take(self, beat: Beat) -> None:
        if isinstance(beat, TextDelta):
            self.text.append(beat.text)
        elif isinstance(beat, ReasoningDelta):
            self.reasoning.append(beat.text)
        elif isinstance(beat, ToolsPlanned | Answered | Cut):
            self._count(beat.turn)
            self.cut, self.ended = isinstance(beat, Cut), isinstance(beat, Answered)
        elif isinstance(beat, Prompted):
            self.prompted = beat

    def _count(self, turn: Turn) -> None:
        if any(known.id == turn.id for known in self.turns):
            return  # a round with calls for both sides is told twice
        self.turns.append(turn)
        if turn.tokens is not None:
            self.prompt += turn.tokens.prompt or 0
            self.completion += turn.tokens.completion or 0

    @property
    def stopped(self) -> bool:
        """Whether somebody stopped it: while the model wrote, or while tools ran whose results it never got."""
        last = self.last
        if last is None or not self.ended:
            return False
        return last.finish_reason == STOPPED or bool(server_calls(last) and not client_calls(last))

    @property
    def last(self) -> Turn | None:
        return self.turns[-1] if self.turns else None

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """Those that the client is to run."""
        return client_calls(self.last) if self.last is not None else ()

    @property
    def reason(self) -> str:
        """stop, length, tool_calls or content_filter."""
        if self.calls:
            return "tool_calls"
        given = (self.last.finish_reason if self.last is not None else None) or "stop"
        return given if given in ("length", "content_filter") else "stop"
