"""Neutral messages as the body of Anthropic's Messages API."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Sequence
from typing import TypedDict

import msgspec

from palaver.context.render.neutral import OPENING, Message, Part, message_text, part_text
from palaver.context.render.tool_ids import map_tool_calls


class AnthropicPrompt(TypedDict):
    """The part of a request that holds the prompt."""

    system: str
    messages: list[Message]


def to_anthropic(messages: Sequence[Message]) -> AnthropicPrompt:
    """Return `{"system", "messages"}`. Roles alternate, and a user speaks first, as the API requires."""
    lead = 0
    while lead < len(messages) and messages[lead]["role"] == "system":
        lead += 1
    turns: list[Message] = []
    for message in map_tool_calls(messages[lead:]).messages:
        role = "assistant" if message["role"] == "assistant" else "user"
        blocks = _blocks(message)
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        elif blocks:
            turns.append({"role": role, "content": blocks})
    if not turns or turns[0]["role"] == "assistant":
        turns.insert(0, {"role": "user", "content": [{"type": "text", "text": OPENING}]})
    return {"system": "\n\n".join(message_text(message) for message in messages[:lead]), "messages": turns}


def _blocks(message: Message) -> list[Part]:
    if message["role"] == "tool":
        result = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
        return [{**result, "is_error": True} if message.get("is_error") else result]
    content = message["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    render = _text_part if message["role"] == "assistant" else _part
    blocks = [render(part) for part in parts if part["type"] != "text" or part["text"].strip()]
    for call in message.get("tool_calls", ()):
        arguments = _decode_object(call["arguments"])
        blocks.append({"type": "tool_use", "id": call["id"], "name": call["name"], "input": arguments})
    return blocks


def _text_part(part: Part) -> Part:
    """Return a part of an assistant's message: the API takes images and documents from users only."""
    return {"type": "text", "text": part_text(part)}


def _part(part: Part) -> Part:
    url = part.get("url") or ""
    if part["type"] == "document":
        return {"type": "document", "source": _document_source(url), "title": part["filename"]}
    if part["type"] == "image" and url:
        return {"type": "image", "source": _source(url)}
    return {"type": "text", "text": part_text(part)}


def _source(url: str) -> dict[str, str]:
    if not url.startswith("data:") or ";base64," not in url:
        return {"type": "url", "url": url}
    kind, data = url.removeprefix("data:").split(";base64,", 1)
    return {"type": "base64", "media_type": kind, "data": data}


def _document_source(url: str) -> dict[str, str]:
    """Return the source of a document. The API takes text as text, and everything else as bytes."""
    source = _source(url)
    if not source.get("media_type", "").startswith("text/"):
        return source
    return {"type": "text", "media_type": "text/plain", "data": b64decode(source["data"]).decode(errors="replace")}


def _decode_object(arguments: str) -> dict[str, object]:
    """Decode tool arguments. The API takes only objects, so a model's text that is not one is wrapped."""
    try:
        value = msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        value = None
    return value if isinstance(value, dict) else {"arguments": arguments}
