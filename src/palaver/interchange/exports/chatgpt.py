"""The data export of ChatGPT: `conversations.json`, or `conversations-000.json` and so on, with the files next to them.

A conversation is a tree of nodes: an edited question or a regenerated answer is another child of the same node.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from palaver.interchange.exports.documents import Advance, Source, read_lists
from palaver.interchange.exports.trees import UNREACHABLE, in_order, merge_results
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

NAME, TITLE = "chatgpt", "ChatGPT's data export"
FILES = ("conversations.json", "conversations-[0-9]*.json")
ROLES = frozenset({"user", "assistant", "system", "tool"})
EMPTY, HIDDEN, REASONING = "empty message", "hidden system message", "the model's reasoning"
OTHER_ROLE = "unknown role"
POINTERS = ("file-service://", "sediment://")


def matches(source: Source) -> bool:
    return any(b'"mapping"' in source.head(name) for name in source.matching(*FILES, "*.json")[:3])


def read(source: Source, advance: Advance) -> Iterator[Entry]:
    names = source.matching(*FILES) or source.matching("*.json")
    files = {_file_id(name): name for name in source.names}
    return read_lists(source, names, lambda raw: conversation(raw, source, files), _updated, advance)


def _updated(raw: dict[str, Any]) -> float:
    return seconds(raw.get("update_time")) or seconds(raw.get("create_time"))


def _file_id(name: str) -> str:
    """Return the id at the start of a file's name: `file-AbC123-photo.png`, `file_0000abc-sanitized.png`."""
    last = name.rpartition("/")[2]
    stem = last.rpartition(".")[0] or last
    prefix, dash, rest = stem.partition("-")
    return f"{prefix}-{rest.partition('-')[0]}" if prefix == "file" and dash else prefix


def conversation(raw: dict[str, Any], source: Source, files: Mapping[str, str]) -> ExportedConversation:
    """Return a conversation as ChatGPT exports it."""
    nodes = {str(id): mapping(node) for id, node in mapping(raw.get("mapping")).items()}
    result = ExportedConversation(
        id=str(raw.get("conversation_id") or raw.get("id") or ""),
        title=text_of(raw.get("title")) or None,
        model=text_of(raw.get("default_model_slug")) or None,
        metadata={name: raw[name] for name in ("gizmo_id", "create_time", "is_archived") if raw.get(name)},
        records=sum(bool(node.get("message")) for node in nodes.values()),
    )
    _Reader(result, nodes, source, files).read(str(raw.get("current_node")))
    merge_results(result)
    return result


class _Reader:
    def __init__(
        self, result: ExportedConversation, nodes: dict[str, dict[str, Any]], source: Source, files: Mapping[str, str]
    ) -> None:
        self.result, self.nodes, self.source, self.files = result, nodes, source, files
        self.place: dict[str, str | None] = {}  # of each node, the turn that it is or that it follows
        self.calls: dict[str, str] = {}  # of each turn, the last tool call on its way

    def read(self, current: str) -> None:
        roots = [id for id, node in self.nodes.items() if node.get("parent") not in self.nodes]
        reached = 0
        for id, parent in in_order(roots, self._children):
            before = self.place.get(parent) if parent else None
            message = mapping(self.nodes[id].get("message"))
            self.place[id] = before
            if message:
                reached += 1
                self._add(self._turn(id, before, message))
        if lost := self.result.records - reached:
            self.result.left_out[UNREACHABLE] += lost
        self.result.current = self.place.get(current)

    def _children(self, id: str) -> list[str]:
        found = self.nodes[id].get("children")
        return [str(child) for child in found if str(child) in self.nodes] if isinstance(found, list) else []

    def _add(self, turn: ExportedTurn | str) -> None:
        """Add a turn; a text is the reason to leave the message out."""
        if isinstance(turn, str):
            self.result.left_out[turn] += 1
        else:
            self.result.turns.append(turn)
            self.place[turn.id] = turn.id

    def _turn(self, id: str, parent: str | None, message: dict[str, Any]) -> ExportedTurn | str:
        author, content = mapping(message.get("author")), mapping(message.get("content"))
        role, details = author.get("role"), mapping(message.get("metadata"))
        files = self._files(content, details)
        text = _text(content)
        if content.get("content_type") in ("thoughts", "reasoning_recap"):
            return REASONING
        if role not in ROLES:
            return OTHER_ROLE
        if role == "system" and (details.get("is_visually_hidden_from_conversation") or not text.strip()):
            return HIDDEN
        if not text.strip() and not files:
            return EMPTY
        fields: dict[str, Any] = {"content": text}
        recipient = message.get("recipient")
        if role == "assistant" and isinstance(recipient, str) and recipient not in ("", "all"):
            fields = {"tool_calls": ({"id": id, "name": recipient, "arguments": _arguments(text)},)}
            self.calls[id] = id
        elif role == "tool" and parent in self.calls:
            call = self.calls[id] = self.calls[parent]
            fields = {"tool_results": ({"id": call, "content": text},)}
        elif role == "tool":  # its call is not in the export
            role = "assistant"
            fields["metadata"] = {"tool": author.get("name")}
        return ExportedTurn(
            id=id,
            parent=parent,
            role=role,
            created=moment(message.get("create_time")),
            model=text_of(details.get("model_slug")) or None,
            files=files,
            **fields,
        )

    def _files(self, content: dict[str, Any], details: dict[str, Any]) -> list[ExportedFile]:
        """Return the pictures in the text and the attachments; a picture is often both."""
        named = {str(one.get("id")): one for one in objects(details.get("attachments"))}
        for part in objects(content.get("parts")):
            pointer = part.get("asset_pointer")
            if isinstance(pointer, str) and pointer.startswith(POINTERS):
                named.setdefault(pointer.partition("://")[2], part)
        return [self._file(id, one) for id, one in named.items()]

    def _file(self, id: str, details: dict[str, Any]) -> ExportedFile:
        name = self.files.get(id)
        media = details.get("mime_type") or details.get("mimeType")
        return ExportedFile(
            name=text_of(details.get("name")) or (name or id).rpartition("/")[2],
            read=self.source.reader(name) if name else None,
            media_type=media if isinstance(media, str) and "/" in media else None,
        )


def _text(content: dict[str, Any]) -> str:
    """Return the text of a message of any content type."""
    parts = content.get("parts")
    if isinstance(parts, list):
        texts = [text_of(part) if isinstance(part, str) else text_of(mapping(part).get("text")) for part in parts]
        return "\n\n".join(text for text in texts if text)
    return text_of(content.get("text")) or text_of(content.get("result"))


def _arguments(text: str) -> object:
    """Return the arguments of a tool call: JSON where the model wrote JSON, otherwise its text."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {"input": text}
    return found if isinstance(found, dict) else {"input": text}
