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
