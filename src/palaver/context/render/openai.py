"""Neutral messages as messages of OpenAI's Chat Completions."""

from __future__ import annotations

from collections.abc import Sequence

from palaver.context.render.neutral import OPENING, Message, MessageContent, Part, part_text
from palaver.context.render.tool_ids import map_tool_calls

LONGEST_ID = 40  # characters of a call's id that the API accepts


def to_openai(messages: Sequence[Message]) -> list[Message]:
    """Return the messages. The API refuses an empty list, and some servers one without any turn."""
    made = [_message(message) for message in map_tool_calls(messages, LONGEST_ID).messages]
    if all(message["role"] == "system" for message in made):
        made.append({"role": "user", "content": OPENING})
    return made


def _message(message: Message) -> Message:
    out: Message = {"role": message["role"], "content": _content(message["role"], message["content"])}
    if "tool_call_id" in message:
        out["tool_call_id"] = message["tool_call_id"]
    if "tool_calls" in message:
        out["tool_calls"] = [
            {"id": call["id"], "type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}}
            for call in message["tool_calls"]
        ]
    return out


def _content(role: str, content: MessageContent) -> MessageContent:
    """Return the content. Only a user may send images and files; those of others are named."""
    if isinstance(content, str):
        return content
    if role == "user":
        return [_part(part) for part in content]
    return "\n".join(part_text(part) for part in content)


def _part(part: Part) -> Part:
    if part["type"] == "image" and part["url"]:
        return {"type": "image_url", "image_url": {"url": part["url"]}}
    if part["type"] == "document":
        return {"type": "file", "file": {"filename": part["filename"], "file_data": part["url"]}}
    return {"type": "text", "text": part_text(part)}
