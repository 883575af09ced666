"""Turns the stored log back into the events that an answer emitted while it was made. Pure.

Every protocol renders its frames from these events, whether they come from the running answer or from the log. So every
format can be replayed, even by another process and even after a crash.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from palaver.generation.events import Answered, GenerateEvent, Prompted, ToolDone, ToolsPlanned, TurnOpened
from palaver.generation.tool_calls import client_calls, server_calls
from palaver.generation.tool_round import STOPPED_CALL
from palaver.model import Event, ToolCall, Turn
from palaver.models.response_accumulator import STOPPED
from palaver.ports.models import ReasoningDelta, TextDelta

INPUT = "input"  # metadata key on an answer's turns: the id of the last turn of the request
REPLAYED = ("open", "chunk", "commit", "abort", "append")  # kinds of log events that an answer leaves


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The answer was interrupted. The turn holds the text that arrived."""

    turn: Turn


AnswerEvent = GenerateEvent | Interrupted


@dataclass(slots=True)
class AnswerReplay:
    """Replays the answer to one input from the events that follow it."""

    input: str
    sent: dict[str, int] = field(default_factory=dict)  # characters already replayed, by turn
    running: dict[str, ToolCall] = field(default_factory=dict)
    waiting: Turn | None = None  # has calls for the client, and others that still run on the server
    planned: Turn | None = None  # has the calls that run on the server
    is_over: bool = False
    failed: frozenset[str] = frozenset()

    def replay_event(self, event: Event, turn: Turn) -> list[AnswerEvent]:
        """Return what one log event adds. `turn` is the turn of the event, in its current state."""
        if self.is_over or event.kind not in REPLAYED:
            return []
        if turn.role == "tool":
            return self._replay_results(turn)
        if turn.metadata.get(INPUT) != self.input or turn.id in self.failed:
            return []
        found: list[AnswerEvent] = []
        if turn.id not in self.sent:
            self.sent[turn.id] = 0
            found.append(TurnOpened(turn))
        if event.kind == "chunk":
            return found + self._replay_text(turn, event.payload["to"])
        if event.kind in ("commit", "append"):
            return found + self._replay_text(turn, len(turn.text)) + self._replay_commit(turn)
        if event.kind == "abort":
            self.is_over = True
            return [*found, *self._replay_text(turn, len(turn.text)), Interrupted(turn)]
        return found

    def replay_turn(self, turn: Turn) -> list[AnswerEvent]:
        """Return the events of a turn in its current state, its text in one piece."""
        if self.is_over:
            return []
        if turn.role == "tool":
            return self._replay_results(turn)
        if turn.metadata.get(INPUT) != self.input or turn.status == "forgotten" or turn.id in self.failed:
            return []
        self.sent[turn.id] = 0
        found = [TurnOpened(turn), *self._replay_text(turn, len(turn.text))]
        if turn.status == "complete":
            return found + self._replay_commit(turn)
        self.is_over = turn.status == "aborted"
        return [*found, Interrupted(turn)] if self.is_over else found

    def _replay_text(self, turn: Turn, end: int) -> list[AnswerEvent]:
        start, self.sent[turn.id] = self.sent[turn.id], max(end, self.sent[turn.id])
        return [TextDelta(turn.text[start:end])] if end > start else []

    def _replay_commit(self, turn: Turn) -> list[AnswerEvent]:
        own_calls = server_calls(turn)
        if not own_calls:
            self.is_over = True
            return [Answered(turn)]
        self.running, self.planned = {call.id: call for call in own_calls}, turn
        self.waiting = turn if client_calls(turn) else None
        return [ToolsPlanned(turn, own_calls)]

    def _replay_results(self, turn: Turn) -> list[AnswerEvent]:
        found: list[AnswerEvent] = []
        stopped = False
        for result in turn.tool_results:
            call = self.running.pop(result.id, None)
            if call is not None:
                found.append(ToolDone(call, result.content, result.is_error))
                stopped = stopped or (result.is_error and result.content == STOPPED_CALL)
        if stopped and self.planned is not None:  # stopped while tools ran: the round with the calls is the last one
            self.is_over = True
            found.append(Answered(self.planned))
        elif found and not self.running and self.waiting is not None:
            self.is_over = True
            found.append(Answered(self.waiting))
        return found


def replay_turns(input: str, turns: Iterable[Turn]) -> list[AnswerEvent]:
    """Replay an answer from the turns after its input alone: each turn in one piece, as far as they are stored."""
    found = list(turns)
    replay = AnswerReplay(input, failed=failed_turns(input, found))
    return [event for turn in found for event in replay.replay_turn(turn)]


def failed_turns(input: str, turns: Iterable[Turn]) -> frozenset[str]:
    """Return the ids of interrupted attempts that were retried. They are not part of the answer."""
    ids = [(turn.id, turn.status) for turn in turns if turn.role == "assistant" and turn.metadata.get(INPUT) == input]
    return frozenset(id for id, status in ids[:-1] if status == "aborted")


@dataclass(slots=True)
class AnswerTotals:
    """Accumulates the text, token counts and turns of one answer."""

    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    prompt: int = 0
    completion: int = 0
    turns: list[Turn] = field(default_factory=list)
    prompted: Prompted | None = None
    ended: bool = False

    def add(self, event: AnswerEvent) -> None:
        if isinstance(event, TextDelta):
            self.text.append(event.text)
        elif isinstance(event, ReasoningDelta):
            self.reasoning.append(event.text)
        elif isinstance(event, ToolsPlanned | Answered | Interrupted):
            self._count(event.turn)
            self.ended = isinstance(event, Answered)
        elif isinstance(event, Prompted):
            self.prompted = event

    def _count(self, turn: Turn) -> None:
        if any(known.id == turn.id for known in self.turns):
            return  # a round with calls for server and client has two events
        self.turns.append(turn)
        if turn.tokens is not None:
            self.prompt += turn.tokens.prompt or 0
            self.completion += turn.tokens.completion or 0

    @property
    def stopped(self) -> bool:
        """True if a caller stopped it: while the model wrote, or while tools ran whose results it never got."""
        last = self.last
        if last is None or not self.ended:
            return False
        return last.finish_reason == STOPPED or bool(server_calls(last) and not client_calls(last))

    @property
    def last(self) -> Turn | None:
        return self.turns[-1] if self.turns else None

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The tool calls that the client has to run."""
        return client_calls(self.last) if self.last is not None else ()

    @property
    def reason(self) -> str:
        """stop, length, tool_calls or content_filter."""
        if self.calls:
            return "tool_calls"
        given = (self.last.finish_reason if self.last is not None else None) or "stop"
        return given if given in ("length", "content_filter") else "stop"
