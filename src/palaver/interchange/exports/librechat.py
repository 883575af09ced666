"""A conversation that LibreChat exports as JSON: a list of messages with parents, or a nested tree."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from palaver.interchange.exports.documents import Advance, Source, read_lists
from palaver.interchange.exports.response_items import arguments_of
from palaver.interchange.exports.trees import add_messages, parents_of
from palaver.interchange.exports.values import (
    Entry,
    ExportedConversation,
    ExportedFile,
    ExportedTurn,
    mapping,
    moment,
    objects,
    seconds,
    text_of,
)

NAME, TITLE = "librechat", "conversations that LibreChat exports"
EMPTY, FAILED = "empty message", "an error message of the program"


def matches(source: Source) -> bool:
    heads = [source.head(name) for name in source.matching("*.json")[:3]]
    return any(b'"conversationId"' in head and b'"messages' in head for head in heads)


def read(source: Source, advance: Advance) -> Iterator[Entry]:
    return read_lists(source, source.matching("*.json"), conversation, _updated, advance)


def _updated(raw: dict[str, Any]) -> float:
    return max((seconds(one.get("createdAt")) for one in _flat(raw)), default=0.0)


def _flat(raw: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the messages; those of a nested tree get the id of the message around them as their parent."""
    if not isinstance(raw.get("messagesTree"), list):
        return objects(raw.get("messages"))
    found: list[dict[str, Any]] = []
    waiting = [(one, None) for one in reversed(objects(raw["messagesTree"]))]
    while waiting:
        message, parent = waiting.pop()
        found.append({"parentMessageId": parent, **message})
        waiting += [(child, message.get("messageId")) for child in reversed(objects(message.get("children")))]
    return found


def conversation(raw: dict[str, Any]) -> ExportedConversation:
    """Return one conversation."""
    listed = _flat(raw)
    messages = {str(one.get("messageId") or number): one for number, one in enumerate(listed)}
    options = mapping(raw.get("options"))
    result = ExportedConversation(
        id=str(raw.get("conversationId") or ""),
        title=text_of(raw.get("title")) or None,
        model=text_of(options.get("model")) or None,
        metadata={"endpoint": raw["endpoint"]} if isinstance(raw.get("endpoint"), str) else {},
        records=len(listed),
    )
    add_messages(result, messages, parents_of(messages, "parentMessageId"), _turns)
    newest = max(
        reversed(result.turns), key=lambda turn: turn.created.timestamp() if turn.created else 0.0, default=None
    )
    result.current = newest.id if newest else None
    return result


def _turns(id: str, parent: str | None, message: dict[str, Any]) -> list[ExportedTurn] | str:
    role = "user" if message.get("isCreatedByUser") else "assistant"
    if message.get("error"):
        return FAILED
    text, calls = _content(message)
    files = [ExportedFile(text_of(one.get("filename")) or "file", None) for one in objects(message.get("files"))]
    if not text.strip() and not calls and not files:
        return EMPTY
    created, model = moment(message.get("createdAt")), text_of(message.get("model")) or None
    if not calls:
        model = model if role == "assistant" else None
        return [ExportedTurn(id, parent, role, text, created=created, model=model, files=files)]
    asked = [{"id": one["id"], "name": one["name"], "arguments": one["arguments"]} for one in calls]
    results = [{"id": one["id"], "content": one["output"]} for one in calls]
    turns = [
        ExportedTurn(f"{id}#calls", parent, "assistant", created=created, model=model, tool_calls=asked),
        ExportedTurn(f"{id}#results", f"{id}#calls", "tool", created=created, tool_results=results),
    ]
    if text.strip():
        turns.append(ExportedTurn(id, f"{id}#results", "assistant", text, created=created, model=model, files=files))
    return turns


def _content(message: dict[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    """Return the text of a message and its tool calls with their output."""
    texts, calls = [], []
    for number, part in enumerate(objects(message.get("content"))):
        inner = part.get("text")
        if part.get("type") == "text":
            texts.append(text_of(mapping(inner).get("value")) if isinstance(inner, dict) else text_of(inner))
        elif isinstance(part.get("tool_call"), dict):
            call = part["tool_call"]
            name = text_of(call.get("name")) or text_of(mapping(call.get("function")).get("name")) or "tool"
            given = call.get("args", mapping(call.get("function")).get("arguments", {}))
            output = text_of(call.get("output")) or text_of(mapping(call.get("function")).get("output"))
            id = str(call.get("id") or f"{message.get('messageId')}-{number}")
            calls.append({"id": id, "name": name, "arguments": arguments_of(given), "output": output})
    return "\n\n".join(text for text in texts if text) or text_of(message.get("text")), calls
