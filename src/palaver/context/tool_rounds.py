"""Units of turns that belong together: a tool call and its results. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from palaver.model import Turn


class Unit(msgspec.Struct, frozen=True):
    """Turns that are kept or left out as a whole: one turn, or an assistant's calls with all their results."""

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
    """Group turns of the active branch, oldest first, so that every turn is in exactly one unit."""
    found: list[Unit] = []
    index = 0
    while index < len(turns):
        turn = turns[index]
        unit = _round(turns, index) if turn.tool_calls else Unit((turn,), whole=turn.role != "tool")
        found.append(unit)
        index += len(unit.turns)
    return found


def _round(turns: Sequence[Turn], start: int) -> Unit:
    """Return the calls at `start` and the tool turns right after them; nothing may come between call and result."""
    wanted = {call.id for call in turns[start].tool_calls}
    answered: list[str] = []
    end = start + 1
    while end < len(turns) and turns[end].role == "tool":
        ids = [result.id for result in turns[end].tool_results]
        if not wanted.issuperset(ids):
            break
        answered.extend(ids)
        end += 1
    is_whole = len(answered) == len(set(answered)) and set(answered) == wanted
    return Unit(tuple(turns[start:end]), whole=is_whole)


def earlier_answers(question: Turn, following: Sequence[Turn]) -> frozenset[str]:
    """Return the ids of those turns after a question that answer earlier ones, with their tool rounds.

    A turn that answers names its question. `following` holds every turn after `question`, so a question that is not
    among them is an earlier one.
    """
    later = {question.id, *(turn.id for turn in following)}
    found: list[str] = []
    calls: set[str] = set()
    for turn in following:
        named = turn.metadata.get("answers")
        if turn.role == "assistant" and isinstance(named, str) and named not in later:
            found.append(turn.id)
            calls.update(call.id for call in turn.tool_calls)
        elif turn.role == "tool" and calls.issuperset(result.id for result in turn.tool_results):
            found.append(turn.id)
    return frozenset(found)


def steps_of(question: Turn, following: Sequence[Turn]) -> frozenset[str]:
    """Return the ids of those turns after a question that are steps of its answer: calls, and their results.

    Turns of an answer name their question. Turns from a client's history name none: they belong to the question until
    another one is asked. Steps before a complete answer belong to that answer, not to the next one.
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
