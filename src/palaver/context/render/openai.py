"""Neutral messages as messages of OpenAI's Chat Completions."""

from __future__ import annotations

from collections.abc import Sequence

from palaver.context.render.neutral import Message, MessageContent, Part, part_text


def to_openai(messages: Sequence[Message]) -> list[Message]:
    return [_message(message) for message in messages]


def _message(message: Message) -> Message:
    out: Message = {"role": message["role"], "content": _content(message["content"])}
    if "tool_call_id" in message:
        out["tool_call_id"] = message["tool_call_id"]
    if "tool_calls" in message:
        out["tool_calls"] = [
            {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}
            for call in message["tool_calls"]
        ]
    return out


def _content(content: MessageContent) -> MessageContent:
    return content if isinstance(content, str) else [_part(part) for part in content]


def _part(part: Part) -> Part:
    if part["type"] == "image" and part["url"]:
        return {"type": "image_url", "image_url": {"url": part["url"]}}
    if part["type"] == "document":
        return {"type": "file", "file": {"filename": part["filename"], "file_data": part["url"]}}
    return {"type": "text", "text": part_text(part)}
