"""Messages with a parent each, in an order in which a parent comes before its children."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from palaver.interchange.exports.values import ExportedConversation, ExportedTurn

UNREACHABLE = "its place in the thread cannot be found"

# Makes the turns of a message from its id, the turn before it and its fields; a text is the reason to leave it out.
TurnsOf = Callable[[str, str | None, dict[str, Any]], list[ExportedTurn] | str]


def in_order(roots: Iterable[str], children: Callable[[str], Sequence[str]]) -> Iterator[tuple[str, str | None]]:
    """Yield each message with its parent, depth first, each once: a damaged file may have cycles."""
    waiting: list[tuple[str, str | None]] = [(root, None) for root in reversed(list(roots))]
    seen: set[str] = set()
    while waiting:
        id, parent = waiting.pop()
        if id in seen:
            continue
        seen.add(id)
        yield id, parent
        waiting += [(child, id) for child in reversed(children(id))]


def parents_of(messages: Mapping[str, dict[str, Any]], field: str) -> dict[str, str | None]:
    """Return the parent of each message. Where no message names another as its parent, they follow each other."""
    named = {id: parent if isinstance(parent := one.get(field), str) else None for id, one in messages.items()}
    if any(parent in messages for parent in named.values()):
        return named
    ids = list(messages)
    return dict(zip(ids, [None, *ids], strict=False))


def tree_of(parents: Mapping[str, str | None]) -> Iterator[tuple[str, str | None]]:
    """Yield ids by their parents. One whose parent is not there is a beginning."""
    children: dict[str | None, list[str]] = {}
    for id, parent in parents.items():
        children.setdefault(parent if parent in parents and parent != id else None, []).append(id)
    return in_order(children.get(None, []), lambda id: children.get(id, []))


def add_messages(
    result: ExportedConversation,
    messages: Mapping[str, dict[str, Any]],
    parents: Mapping[str, str | None],
    turns_of: TurnsOf,
) -> None:
    """Add the messages of a tree to a conversation, as turns."""
    place: dict[str, str | None] = {}  # of each message, its last turn, or the one that it follows
    for id, parent in tree_of(parents):
        before = place.get(parent) if parent else None
        found = turns_of(id, before, messages[id])
        place[id] = before if isinstance(found, str) else found[-1].id
        if isinstance(found, str):
            result.left_out[found] += 1
        else:
            result.turns += found
            result.split += len(found) - 1
    if lost := result.records - len(place):  # in a cycle, or with the id of another
        result.left_out[UNREACHABLE] += lost
    result.current = place.get(result.current) if result.current else None


def merge_results(conversation: ExportedConversation) -> None:
    """Join results of one tool call that came as several messages: a call has one result."""
    by_id: dict[str, int] = {}
    renamed: dict[str, str] = {}
    kept: list[ExportedTurn] = []
    for turn in conversation.turns:
        parent = renamed.get(turn.parent, turn.parent) if turn.parent else None
        turn = replace(turn, parent=parent)
        before = kept[by_id[parent]] if parent in by_id else None
        if before is not None and _answers_same_call(before, turn):
            kept[by_id[before.id]] = _joined(before, turn)
            renamed[turn.id] = before.id
            conversation.merged += 1
            continue
        by_id[turn.id] = len(kept)
        kept.append(turn)
    conversation.turns = kept
    if conversation.current in renamed:
        conversation.current = renamed[conversation.current]


def _answers_same_call(first: ExportedTurn, second: ExportedTurn) -> bool:
    calls = [[result["id"] for result in turn.tool_results] for turn in (first, second)]
    return first.role == second.role == "tool" and calls[0] == calls[1] and len(calls[0]) == 1


def _joined(first: ExportedTurn, second: ExportedTurn) -> ExportedTurn:
    texts = [turn.tool_results[0]["content"] for turn in (first, second)]
    result = {**first.tool_results[0], "content": "\n\n".join(text for text in texts if text)}
    return replace(first, tool_results=(result,), files=(*first.files, *second.files))
