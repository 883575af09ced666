"""Turns that travel together: a tool call and its results, or not at all. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from palaver.model import Turn


class Unit(msgspec.Struct, frozen=True):
    """What is kept or left out as a whole: one turn, or an assistant's calls with all their results."""

    turns: tuple[Turn, ...]
    whole: bool = True  # false: a call without a result, or a result without its call

    @property
    def first(self) -> Turn:
        return self.turns[0]

    @property
    def position(self) -> int:
        return self.turns[0].position

    @property
    def is_tool_round(self) -> bool:
        return bool(self.turns[0].tool_calls) or self.turns[0].role == "tool"


def units(turns: Sequence[Turn]) -> list[Unit]:
    """Group the turns of the active view, oldest first. Every turn is in exactly one unit."""
    found: list[Unit] = []
    index = 0
    while index < len(turns):
        turn = turns[index]
        unit = _round(turns, index) if turn.tool_calls else Unit((turn,), whole=turn.role != "tool")
        found.append(unit)
        index += len(unit.turns)
    return found


def _round(turns: Sequence[Turn], start: int) -> Unit:
    """The calls at `start` and the tool turns right behind them. Nothing may stand between a call and its result."""
    wanted = {call.id for call in turns[start].tool_calls}
    answered: list[str] = []
    end = start + 1
    while end < len(turns) and turns[end].role == "tool":
        ids = [result.id for result in turns[end].tool_results]
        if not wanted.issuperset(ids):
            break
        answered.extend(ids)
        end += 1
    return Unit(tuple(turns[start:end]), whole=len(answered) == len(set(answered)) and set(answered) == wanted)


def steps_of(question: Turn, following: Sequence[Turn]) -> frozenset[str]:
    """The ids of those turns behind a question that are steps of its answer: calls, and results of these calls.

    Turns of an answer name their question. Those that a client handed in name none: they are the question's as long as
    nobody has asked something else. What comes before a complete answer belongs to that answer, not to the next one.
    """
    steps: list[str] = []
    calls: set[str] = set()
    asked_since = False
    for turn in following:
        asked_since = asked_since or turn.role == "user"
        named = turn.metadata.get("answers")
        if turn.role == "tool" and calls.issuperset(result.id for result in turn.tool_results):
            steps.append(turn.id)
        elif turn.role == "assistant" and (named == question.id or (named is None and not asked_since)):
            steps.append(turn.id)
            calls.update(call.id for call in turn.tool_calls)
            if named is not None and not turn.tool_calls:
                steps.clear()
    return frozenset(steps)
