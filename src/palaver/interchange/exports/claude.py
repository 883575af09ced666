"""The data export of Claude: `conversations.json`, a list of conversations with their messages in order.

Attached documents come as the text that was extracted from them. Answers hold their tool calls and results as blocks;
each becomes turns: the text so far with the calls, the results, and what follows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from palaver.interchange.exports.blocks import split_blocks
from palaver.interchange.exports.documents import Advance, Source, read_lists
from palaver.interchange.exports.trees import add_messages, parents_of
from palaver.interchange.exports.values import (
    Entry,
    ExportedConversation,
    ExportedFile,
    ExportedTurn,
    moment,
    objects,
    seconds,
    text_of,
)

NAME, TITLE = "claude", "Claude's data export"
FILES = ("conversations.json", "conversations-[0-9]*.json")
ROLES = {"human": "user", "user": "user", "assistant": "assistant"}
EMPTY, OTHER_ROLE = "empty message", "unknown role"


def matches(source: Source) -> bool:
    return any(b'"chat_messages"' in source.head(name) for name in source.matching(*FILES, "*.json")[:3])


def read(source: Source, advance: Advance) -> Iterator[Entry]:
    names = source.matching(*FILES) or source.matching("*.json")
    return read_lists(source, names, conversation, lambda raw: seconds(raw.get("updated_at")), advance)


def conversation(raw: dict[str, Any]) -> ExportedConversation:
    """Return a conversation as Claude exports it."""
    messages = {str(one.get("uuid") or number): one for number, one in enumerate(objects(raw.get("chat_messages")))}
    result = ExportedConversation(
        id=str(raw.get("uuid") or ""),
        title=text_of(raw.get("name")) or None,
        model=text_of(raw.get("model")) or None,
        metadata={name: raw[name] for name in ("summary", "created_at") if isinstance(raw.get(name), str)},
        records=len(objects(raw.get("chat_messages"))),
    )
    result.current = str(raw.get("current_leaf_message_uuid") or next(reversed(messages), ""))
    add_messages(result, messages, parents_of(messages, "parent_message_uuid"), _turns)
    return result


def _turns(id: str, parent: str | None, message: dict[str, Any]) -> list[ExportedTurn] | str:
    role = ROLES.get(str(message.get("sender")))
    if role is None:
        return OTHER_ROLE
    created = moment(message.get("created_at"))
    return split_blocks(id, parent, role, _blocks(message), created=created, files=_files(message)) or EMPTY


def _blocks(message: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the blocks of a message; old exports have its text only."""
    blocks = objects(message.get("content"))
    if any(text_of(block.get("text")) or block.get("type") in ("tool_use", "tool_result") for block in blocks):
        return blocks
    return [{"type": "text", "text": text_of(message.get("text"))}]


def _files(message: dict[str, Any]) -> list[ExportedFile]:
    documents = [_document(one) for one in objects(message.get("attachments"))]
    others = [ExportedFile(text_of(one.get("file_name")) or "file", None) for one in objects(message.get("files"))]
    return documents + others


def _document(attachment: dict[str, Any]) -> ExportedFile:
    text = attachment.get("extracted_content")
    name = text_of(attachment.get("file_name")) or "attachment"
    if not isinstance(text, str) or not text:
        return ExportedFile(name, None)
    if not name.lower().endswith((".txt", ".md", ".csv", ".json", ".html", ".xml")):
        name += ".txt"  # the words of a document, not the document
    return ExportedFile(name, lambda: text.encode("utf-8", "replace"))
