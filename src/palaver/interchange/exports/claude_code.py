"""Session files of Claude Code: one JSON object on each line, each with the id of the line before it.

One answer of the model is several lines with the same message id, and the results of parallel calls are lines with the
same parent. Those are joined; what then still has the same parent is a branch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from palaver.interchange.exports.blocks import split_blocks
from palaver.interchange.exports.documents import Advance, Source, json_lines
from palaver.interchange.exports.trees import UNREACHABLE, tree_of
from palaver.interchange.exports.values import (
    Entry,
    ExportedConversation,
    ExportedTurn,
    mapping,
    moment,
    objects,
    text_of,
)

NAME, TITLE = "claude-code", "session files of Claude Code"
BROKEN, EMPTY, NOT_A_MESSAGE = "a line that is not JSON", "empty message", "a record that is not a message"
SUBAGENT, HIDDEN, SUMMARY = "a subagent's own thread", "a message of the program", "a summary of the program"
DETAILS = ("cwd", "gitBranch", "version")


def matches(source: Source) -> bool:
    return any(b'"sessionId"' in source.head(name) for name in source.matching("*.jsonl")[:3])


def read(source: Source, advance: Advance) -> Iterator[Entry]:
    for name in source.matching("*.jsonl"):
        yield Entry(_updated(source, name), partial(conversation, source, name, advance))


def _updated(source: Source, name: str) -> float:
    last = 0.0
    for line in json_lines(source, name):
        found = moment(line.get("timestamp")) if line else None
        last = found.timestamp() if found else last
    return last


@dataclass(slots=True)
class _Message:
    """One message, of one or several lines."""

    role: str
    parent: str | None
    first: dict[str, Any]
    blocks: list[dict[str, Any]] = field(default_factory=list)
    lines: int = 0


def conversation(source: Source, name: str, advance: Advance = lambda _: None) -> ExportedConversation:
    """Return one session."""
    result = ExportedConversation(id=name.rpartition("/")[2].removesuffix(".jsonl"))
    messages: dict[str, _Message] = {}
    place: dict[str, str] = {}  # of each line, its message
    details: dict[str, Any] = {}
    last = None
    for line in json_lines(source, name, advance):
        result.records += 1
        problem = _problem(line)
        if line and line.get("type") == "summary":
            result.title = text_of(line.get("summary"))[:1_000] or None
        if line is None or problem:
            _follow(line, place)
            result.left_out[problem or BROKEN] += 1
            continue
        details |= {key: line[key] for key in DETAILS if isinstance(line.get(key), str)}
        last = _add(line, messages, place)
    result.metadata = details
    _build(result, messages)
    result.current = next((turn.id for turn in reversed(result.turns) if turn.id.partition("#")[0] == last), None)
    return result


def _problem(line: dict[str, Any] | None) -> str | None:
    """Return why a line is left out, if it is."""
    if line is None:
        return BROKEN
    if line.get("type") not in ("user", "assistant") or not isinstance(line.get("message"), dict):
        return NOT_A_MESSAGE
    if line.get("isSidechain"):
        return SUBAGENT
    if line.get("isCompactSummary"):
        return SUMMARY
    return HIDDEN if line.get("isMeta") else None


def _follow(line: dict[str, Any] | None, place: dict[str, str]) -> None:
    """Let the lines after one that is left out follow the message before it."""
    parent = str(line.get("parentUuid") or line.get("logicalParentUuid")) if line else ""
    if line and parent in place and line.get("uuid"):
        place[str(line["uuid"])] = place[parent]


def _add(line: dict[str, Any], messages: dict[str, _Message], place: dict[str, str]) -> str:
    """Add a line to its message, and return the id of the message."""
    uuid, parent = str(line.get("uuid")), place.get(str(line.get("parentUuid")))
    message = line["message"]
    blocks = _blocks(message.get("content"))
    id = uuid
    if line["type"] == "assistant" and message.get("id"):
        id = f"message:{message['id']}"
    elif line["type"] == "user" and blocks and all(block.get("type") == "tool_result" for block in blocks):
        id = f"results:{parent}"
    found = messages.get(id)
    if found is None:
        found = messages[id] = _Message(str(line["type"]), parent, line)
    found.blocks += blocks
    found.lines += 1
    place[uuid] = id
    return id


def _blocks(content: object) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else objects(content)


def _build(result: ExportedConversation, messages: dict[str, _Message]) -> None:
    last: dict[str, str | None] = {}
    for id, parent in tree_of({id: one.parent for id, one in messages.items()}):
        before = last.get(parent) if parent else None
        turns = _turns(id, before, messages[id])
        last[id] = turns[-1].id if turns else before
        result.turns += turns
        result.split += max(0, len(turns) - 1)
        result.merged += messages[id].lines - 1
        if not turns:
            result.left_out[EMPTY] += 1
    if lost := len(messages) - len(last):
        result.left_out += Counter({UNREACHABLE: lost})
        result.merged += sum(one.lines - 1 for id, one in messages.items() if id not in last)


def _turns(id: str, parent: str | None, message: _Message) -> list[ExportedTurn]:
    model = text_of(mapping(message.first.get("message")).get("model")) or None
    created = moment(message.first.get("timestamp"))
    return split_blocks(id, parent, message.role, message.blocks, created=created, model=model)
