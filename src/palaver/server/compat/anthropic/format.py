"""Anthropic's Messages: what its clients send, and how an answer is told to them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from palaver.generation.events import Answered, ToolsPlanned
from palaver.model import ToolCall, ToolResult
from palaver.models.response_accumulator import STOP_SEQUENCE
from palaver.ports.models import ReasoningDelta, TextDelta, Thought
from palaver.server.compat.replay import Beat, Cut, Sum
from palaver.server.compat.request import (
    MAX_TOOLS,
    Ask,
    Part,
    Said,
    arguments_text,
    bad,
    common_settings,
    flag_in,
    format_in,
    listed,
    name_in,
    object_in,
    own_settings,
    plain,
    spec_in,
    text_in,
    url_in,
)

DECIDED = frozenset("model messages system stream tools tool_choice metadata store".split())
COMMON = {"temperature": "temperature", "top_p": "top_p", "max_tokens": "max_tokens", "stop_sequences": "stop"}
REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
CUT_OFF = {"type": "error", "error": {"type": "api_error", "message": "The answer was cut off"}}
PING = {"type": "ping"}


# ---- what comes in -------------------------------------------------------------------------------------------------


def ask_of(body: Mapping[str, Any]) -> Ask:
    """From the body of a request. Raises InvalidInput, which names the field."""
    said = said_of(listed("messages", body.get("messages")))
    if not said:
        raise bad("messages", "must not be empty")
    named = object_in("metadata", body.get("metadata")).get("conversation_id")
    may_call, must_call = _choice(body.get("tool_choice"))
    one_by_one = _one_by_one(body.get("tool_choice"))
    return Ask(
        shape="anthropic-messages",
        model=text_in("model", body.get("model")),
        said=said,
        instructions=_text(body.get("system"), "system") or None,
        tools=tuple(_tool(one) for one in listed("tools", body.get("tools") or [], MAX_TOOLS)),
        may_call=may_call,
        must_call=must_call,
        common={**common_settings(body, COMMON), **one_by_one},
        own={**own_settings(body, DECIDED), **one_by_one},
        format=format_in("output_config.format", object_in("output_config", body.get("output_config")).get("format")),
        stream=flag_in("stream", body.get("stream")),
        conversation=None if named is None else name_in("metadata.conversation_id", named),
        store=flag_in("store", body.get("store")),
    )


def _choice(given: Any) -> tuple[bool, bool | str]:
    kind = given.get("type") if isinstance(given, Mapping) else given
    if kind in (None, "auto"):
        return True, False
    if kind in ("none", "any"):
        return kind == "any", kind == "any"
    if kind == "tool" and isinstance(given, Mapping):
        return True, text_in("tool_choice.name", given.get("name"))
    raise bad("tool_choice", "must be of type auto, any, tool or none")


def _one_by_one(choice: Any) -> dict[str, bool]:
    """Whether the model may call several tools at once is said with the choice, here."""
    once = isinstance(choice, Mapping) and flag_in(
        "tool_choice.disable_parallel_tool_use", choice.get("disable_parallel_tool_use")
    )
    return {"parallel_tool_calls": False} if once else {}


def _tool(one: Mapping[str, Any]) -> Any:
    if one.get("type") not in (None, "custom"):
        raise bad("tools", "must be tools of the client's own")
    return spec_in("tools", one.get("name"), one.get("description"), one.get("input_schema"), one.get("strict"))


def said_of(messages: list[Mapping[str, Any]]) -> tuple[Said, ...]:
    said: list[Said] = []
    for one in messages:
        content = one.get("content")
        told = [{"type": "text", "text": content}] if isinstance(content, str) else content
        blocks = listed("messages.content", told)
        if one.get("role") == "assistant":
            said.append(_assistant(blocks))
        elif one.get("role") == "user":
            said += _user(blocks)
        else:
            raise bad("messages.role", "must be user or assistant")
    return tuple(said)


def _user(blocks: list[Mapping[str, Any]]) -> list[Said]:
    """Results come first, then what the user says."""
    results = tuple(_result(block) for block in blocks if block.get("type") == "tool_result")
    parts = [_part(block) for block in blocks if block.get("type") != "tool_result"]
    found = [Said(role="tool", results=results)] if results else []
    return [*found, Said(role="user", content=plain(parts))] if parts else found


def _assistant(blocks: list[Mapping[str, Any]]) -> Said:
    """What it thought is the provider's own: it goes back there, and is not stored."""
    text = "\n\n".join(str(block.get("text") or "") for block in blocks if block.get("type") == "text")
    calls = tuple(_call(block) for block in blocks if block.get("type") == "tool_use")
    thoughts = tuple(block for block in blocks if block.get("type") in ("thinking", "redacted_thinking"))
    return Said(role="assistant", content=text, calls=calls, thoughts=thoughts)


def _call(block: Mapping[str, Any]) -> ToolCall:
    input = block.get("input")
    if not isinstance(input, Mapping):
        raise bad("messages.content.input", "must be an object")
    id, name = block.get("id"), block.get("name")
    return ToolCall(text_in("messages.content.id", id), text_in("messages.content.name", name), dict(input))


def _result(block: Mapping[str, Any]) -> ToolResult:
    id = text_in("messages.content.tool_use_id", block.get("tool_use_id"))
    return ToolResult(id, _text(block.get("content"), "messages.content"), block.get("is_error") is True)


def _text(content: Any, field: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    blocks = listed(field, content)
    return "\n".join(str(block.get("text") or f"[{block.get('type')}]") for block in blocks)


def _part(block: Mapping[str, Any]) -> Part:
    kind, source = block.get("type"), block.get("source")
    if kind == "text":
        return {"type": "text", "text": text_in("messages.content.text", block.get("text"))}
    if kind in ("image", "document") and isinstance(source, Mapping):
        part = {"type": "image" if kind == "image" else "file", "url": _url(source)}
        return part if kind == "image" else {**part, "filename": str(block.get("title") or "document")}
    raise bad("messages.content", "must be text, image, document or tool_result")


def _url(source: Mapping[str, Any]) -> str:
    if source.get("type") == "base64":
        media = text_in("messages.content.source.media_type", source.get("media_type"))
        return f"data:{media};base64,{text_in('messages.content.source.data', source.get('data'))}"
    if source.get("type") == "text":
        return f"data:text/plain,{quote(text_in('messages.content.source.data', source.get('data')))}"
    if source.get("type") == "url":
        return url_in("messages.content.source.url", source.get("url"))
    raise bad("messages.content.source", "must be of type base64, text or url")


# ---- what goes out -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Frames:
    """An answer as the events of a message."""

    id: str
    model: str
    sum: Sum = field(default_factory=Sum)
    blocks: list[dict[str, Any]] = field(default_factory=list)
    _open: str | None = None  # the kind of the block that is being told
    _pieces: list[str] = field(default_factory=list)

    def message(self) -> dict[str, Any]:
        last = self.sum.last
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": list(self.blocks),
            **(self._why() if last is not None else {"stop_reason": None, "stop_sequence": None}),
            "usage": {"input_tokens": self.sum.prompt, "output_tokens": self.sum.completion},
        }

    def begin(self) -> list[Any]:
        return [{"type": "message_start", "message": self.message()}, PING]

    def take(self, beat: Beat) -> list[Any]:
        self.sum.take(beat)
        if isinstance(beat, TextDelta):
            return self._piece("text", {"type": "text_delta", "text": beat.text}, beat.text)
        if isinstance(beat, ReasoningDelta):
            return self._piece("thinking", {"type": "thinking_delta", "thinking": beat.text}, beat.text)
        if isinstance(beat, Thought):
            return self._thought(beat.block)
        if isinstance(beat, ToolsPlanned):
            return self._closed()
        if isinstance(beat, Cut):
            return [*self._closed(), CUT_OFF]
        return self._end() if isinstance(beat, Answered) else []

    def _piece(self, kind: str, delta: dict[str, Any], text: str) -> list[Any]:
        frames: list[Any] = []
        if self._open != kind:
            frames = self._closed()
            self._open = kind
            self.blocks.append(_block(kind, ""))
            frames.append({"type": "content_block_start", "index": self._index, "content_block": _block(kind, "")})
        self._pieces.append(text)
        return [*frames, {"type": "content_block_delta", "index": self._index, "delta": delta}]

    def _thought(self, block: Mapping[str, Any]) -> list[Any]:
        """A finished thought, with the provider's signature, which its clients must send back."""
        if self._open == "thinking" and block.get("type") == "thinking":
            delta = {"type": "signature_delta", "signature": str(block.get("signature") or "")}
            frames: list[Any] = [{"type": "content_block_delta", "index": self._index, "delta": delta}]
            frames += self._closed()
            self.blocks[-1] = dict(block)
            return frames
        frames = self._closed()
        self.blocks.append(dict(block))
        frames.append({"type": "content_block_start", "index": self._index, "content_block": dict(block)})
        return [*frames, {"type": "content_block_stop", "index": self._index}]

    def _closed(self) -> list[Any]:
        if self._open is None:
            return []
        self.blocks[-1] = _block(self._open, "".join(self._pieces))
        self._open, self._pieces = None, []
        return [{"type": "content_block_stop", "index": self._index}]

    def _end(self) -> list[Any]:
        frames = self._closed()
        for call in self.sum.calls:
            block = {"type": "tool_use", "id": call.id, "name": call.name, "input": _input(call.arguments)}
            self.blocks.append(block)
            delta = {"type": "input_json_delta", "partial_json": arguments_text(block["input"])}
            frames += [
                {"type": "content_block_start", "index": self._index, "content_block": {**block, "input": {}}},
                {"type": "content_block_delta", "index": self._index, "delta": delta},
                {"type": "content_block_stop", "index": self._index},
            ]
        usage = {"input_tokens": self.sum.prompt, "output_tokens": self.sum.completion}
        return [*frames, {"type": "message_delta", "delta": self._why(), "usage": usage}, {"type": "message_stop"}]

    def _why(self) -> dict[str, Any]:
        """Why it ended, and what it was told to stop at, if it did."""
        sequence = self.sum.last.metadata.get(STOP_SEQUENCE) if self.sum.last is not None else None
        if isinstance(sequence, str) and self.sum.reason == "stop":
            return {"stop_reason": "stop_sequence", "stop_sequence": sequence}
        return {"stop_reason": REASONS[self.sum.reason], "stop_sequence": None}

    @property
    def _index(self) -> int:
        return len(self.blocks) - 1


def message(frames: Frames, beats: list[Beat]) -> dict[str, Any]:
    """The same answer as one object."""
    for beat in beats:
        frames.take(beat)
    return frames.message()


def _block(kind: str, text: str) -> dict[str, Any]:
    if kind == "thinking":
        return {"type": "thinking", "thinking": text, "signature": ""}
    return {"type": "text", "text": text}  # without `citations`: the service leaves it out, and clients refuse null


def _input(arguments: Any) -> dict[str, Any]:
    """An object, always; what a model wrote that is none is handed over as text."""
    return dict(arguments) if isinstance(arguments, Mapping) else {"arguments": arguments}
