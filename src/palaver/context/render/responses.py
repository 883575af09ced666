"""Neutral messages as input items of OpenAI's Responses API."""

from __future__ import annotations

from collections.abc import Sequence

from palaver.context.render.neutral import OPENING, Message, MessageContent, Part, part_text
from palaver.context.render.tool_ids import map_tool_calls


def to_responses(messages: Sequence[Message]) -> list[Message]:
    """Return the input items. The API refuses an empty list."""
    items = [item for message in map_tool_calls(messages).messages for item in _items(message)]
    if all(item.get("role") == "system" for item in items):
        items.append({"role": "user", "content": OPENING})
    return items


def _items(message: Message) -> list[Message]:
    if message["role"] == "tool":
        return [{"type": "function_call_output", "call_id": message["tool_call_id"], "output": message["content"]}]
    calls = [
        {"type": "function_call", "call_id": call["id"], "name": call["name"], "arguments": call["arguments"]}
        for call in message.get("tool_calls", ())
    ]
    if calls and not message["content"]:
        return calls
    return [{"role": message["role"], "content": _content(message["role"], message["content"])}, *calls]


def _content(role: str, content: MessageContent) -> MessageContent:
    """Return the content. Only a user may send images and files; those of others are named."""
    if isinstance(content, str):
        return content
    if role == "user":
        return [_part(part) for part in content]
    return "\n".join(part_text(part) for part in content)


def _part(part: Part) -> Part:
    if part["type"] == "image" and part["url"]:
        return {"type": "input_image", "image_url": part["url"]}
    if part["type"] == "document" and not part["url"].startswith("data:"):
        return {"type": "input_file", "file_url": part["url"]}
    if part["type"] == "document":
        return {"type": "input_file", "filename": part["filename"], "file_data": part["url"]}
    return {"type": "input_text", "text": part_text(part)}
