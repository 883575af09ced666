"""Neutral messages as input items of OpenAI's Responses API."""

from __future__ import annotations

from collections.abc import Sequence

from palaver.context.render.neutral import Message, MessageContent, Part, part_text


def to_responses(messages: Sequence[Message]) -> list[Message]:
    return [item for message in messages for item in _items(message)]


def _items(message: Message) -> list[Message]:
    if message["role"] == "tool":
        return [{"type": "function_call_output", "call_id": message["tool_call_id"], "output": message["content"]}]
    calls = [
        {"type": "function_call", "call_id": call["id"], "name": call["name"], "arguments": call["arguments"]}
        for call in message.get("tool_calls", ())
    ]
    if calls and not message["content"]:
        return calls
    return [{"role": message["role"], "content": _content(message["content"])}, *calls]


def _content(content: MessageContent) -> MessageContent:
    return content if isinstance(content, str) else [_part(part) for part in content]


def _part(part: Part) -> Part:
    if part["type"] == "image" and part["url"]:
        return {"type": "input_image", "image_url": part["url"]}
    if part["type"] == "document" and not part["url"].startswith("data:"):
        return {"type": "input_file", "file_url": part["url"]}
    if part["type"] == "document":
        return {"type": "input_file", "filename": part["filename"], "file_data": part["url"]}
    return {"type": "input_text", "text": part_text(part)}
