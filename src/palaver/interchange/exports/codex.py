"""Session files of Codex (`rollout-….jsonl`): lines with a type and a payload; older ones hold the items themselves."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from palaver.interchange.exports.documents import Advance, Source, json_lines
from palaver.interchange.exports.response_items import Item, Thread, message_text
from palaver.interchange.exports.values import Entry, ExportedConversation, mapping, moment, text_of

NAME, TITLE = "codex", "session files of Codex"
BROKEN, EVENT, CONTEXT = "a line that is not JSON", "an event of the program", "context that the program added"
ADDED = (
    "<environment_context>",
    "<user_instructions>",
    "<permissions",
    "# AGENTS.md",
    "<INSTRUCTIONS>",
    "<turn_aborted>",
)


def matches(source: Source) -> bool:
    heads = [source.head(name) for name in source.matching("*.jsonl")[:3]]
    return any(b'"session_meta"' in head or b'"response_item"' in head for head in heads) or bool(
        source.matching("rollout-*.jsonl")
    )


def read(source: Source, advance: Advance) -> Iterator[Entry]:
    for name in source.matching("*.jsonl"):
        yield Entry(_updated(source, name), partial(conversation, source, name, advance))


def _updated(source: Source, name: str) -> float:
    """Return the time of the session's first line: sessions of one folder are sorted by it."""
    found = next((moment(line.get("timestamp")) for line in json_lines(source, name) if line), None)
    return found.timestamp() if found else 0.0


def conversation(source: Source, name: str, advance: Advance = lambda _: None) -> ExportedConversation:
    """Return one session."""
    result = ExportedConversation(id=name.rpartition("/")[2].removesuffix(".jsonl"))
    thread, model = Thread(result), None
    for number, line in enumerate(json_lines(source, name, advance)):
        result.records += 1
        if line is None:
            result.left_out[BROKEN] += 1
            continue
        kind, data = _unpacked(line)
        if kind == "session_meta":
            result.id = str(data.get("id") or result.id)
            result.metadata = {key: data[key] for key in ("cwd", "cli_version") if isinstance(data.get(key), str)}
        model = text_of(data.get("model")) or model if kind == "turn_context" else model
        if kind != "response_item":
            result.left_out[EVENT] += 1
        elif _is_added(data):
            result.left_out[CONTEXT] += 1
        else:
            thread.add(Item(f"{number}", data, moment(line.get("timestamp")), model))
    result.turns = thread.turns
    result.current = thread.turns[-1].id if thread.turns else None
    return result


def _unpacked(line: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the kind and the content of a line; an older line is an item itself."""
    if isinstance(line.get("payload"), dict):
        return str(line.get("type")), line["payload"]
    if "type" in line or "role" in line:
        return "response_item", line
    return ("session_meta" if "id" in line else "other"), mapping(line)


def _is_added(data: dict[str, Any]) -> bool:
    if data.get("type", "message") != "message":
        return False
    return data.get("role") in ("developer", "system") or message_text(data.get("content")).lstrip().startswith(ADDED)
