"""Chats that Open WebUI exports: a list of chats, each with a tree of messages."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterator
from typing import Any

from palaver.interchange.exports.documents import Advance, Source, read_lists
from palaver.interchange.exports.response_items import message_text
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

NAME, TITLE = "open-webui", "chats that Open WebUI exports"
ROLES = ("user", "assistant", "system")
EMPTY, OTHER_ROLE = "empty message", "unknown role"


def matches(source: Source) -> bool:
    heads = [source.head(name) for name in source.matching("*.json")[:3]]
    return any(b'"chat"' in head and (b'"history"' in head or b'"childrenIds"' in head) for head in heads)


def read(source: Source, advance: Advance) -> Iterator[Entry]:
    names = source.matching("*.json")
    return read_lists(source, names, conversation, lambda raw: seconds(raw.get("updated_at")), advance)


def conversation(raw: dict[str, Any]) -> ExportedConversation:
    """Return one chat. Old exports have no tree, only the messages of the thread."""
    chat = mapping(raw.get("chat")) or raw
    history = mapping(chat.get("history"))
    found = list(mapping(history.get("messages")).values()) or chat.get("messages")
    messages = {str(one.get("id") or number): one for number, one in enumerate(objects(found))}
    models = chat.get("models")
    result = ExportedConversation(
        id=str(raw.get("id") or chat.get("id") or ""),
        title=text_of(raw.get("title") or chat.get("title")) or None,
        model=text_of(models[0]) or None if isinstance(models, list) and models else None,
        metadata={name: raw[name] for name in ("pinned", "archived", "folder_id") if raw.get(name)},
        records=len(objects(found)),
    )
    result.current = str(history.get("currentId") or next(reversed(messages), ""))
    add_messages(result, messages, parents_of(messages, "parentId"), _turn)
    return result


def _turn(id: str, parent: str | None, message: dict[str, Any]) -> list[ExportedTurn] | str:
    role = message.get("role")
    if role not in ROLES:
        return OTHER_ROLE
    files = [_file(one) for one in objects(message.get("files"))]
    text = message_text(message.get("content"))
    if not text.strip() and not files:
        return EMPTY
    model = text_of(message.get("model")) or None if role == "assistant" else None
    created = moment(message.get("timestamp"))
    return [ExportedTurn(id, parent, role, text, created=created, model=model, files=files)]


def _file(one: dict[str, Any]) -> ExportedFile:
    url, inner = one.get("url"), mapping(one.get("file"))
    name = text_of(one.get("name") or inner.get("filename")) or str(one.get("type") or "file")
    if isinstance(url, str) and url.startswith("data:") and ";base64," in url:
        media, _, data = url.removeprefix("data:").partition(";base64,")
        return ExportedFile(name, lambda: b64decode(data), media or None)
    text = mapping(inner.get("data")).get("content")
    if isinstance(text, str) and text:
        return ExportedFile(f"{name}.txt", lambda: text.encode("utf-8", "replace"))
    return ExportedFile(name, None)
