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
from palaver.server.compat.replay import AnswerEvent, AnswerTotals, Interrupted
from palaver.server.compat.request import (
    MAX_TOOLS,
    ClientMessage,
    ClientRequest,
    Part,
    arguments_text,
    common_settings,
    invalid,
    own_settings,
    parse_format,
    parse_tool,
    require_flag,
    require_list,
    require_name,
    require_object,
    require_text,
    require_url,
    simplify_parts,
)

DECIDED = frozenset("model messages system stream tools tool_choice metadata store".split())
COMMON = {"temperature": "temperature", "top_p": "top_p", "max_tokens": "max_tokens", "stop_sequences": "stop"}
REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
CUT_OFF = {"type": "error", "error": {"type": "api_error", "message": "The answer was cut off"}}
PING = {"type": "ping"}


# ---- what comes in -------------------------------------------------------------------------------------------------


def parse_request(body: Mapping[str, Any]) -> ClientRequest:
    """From the body of a request. Raises InvalidInput, which names the field."""
    said = parse_messages(require_list("messages", body.get("messages")))
    if not said:
        raise invalid("messages", "must not be empty")
    named = require_object("metadata", body.get("metadata")).get("conversation_id")
    may_call, must_call = _parse_tool_choice(body.get("tool_choice"))
    one_by_one = _parallel_setting(body.get("tool_choice"))
    return ClientRequest(
        shape="anthropic-messages",
        model=require_text("model", body.get("model")),
        said=said,
        instructions=_join_text(body.get("system"), "system") or None,
        tools=tuple(_parse_tool(one) for one in require_list("tools", body.get("tools") or [], MAX_TOOLS)),
        may_call=may_call,
        must_call=must_call,
        common={**common_settings(body, COMMON), **one_by_one},
        own={**own_settings(body, DECIDED), **one_by_one},
        format=parse_format(
            "output_config.format", require_object("output_config", body.get("output_config")).get("format")
        ),
        stream=require_flag("stream", body.get("stream")),
        conversation=None if named is None else require_name("metadata.conversation_id", named),
        store=require_flag("store", body.get("store")),
    )


def _parse_tool_choice(given: Any) -> tuple[bool, bool | str]:
    kind = given.get("type") if isinstance(given, Mapping) else given
    if kind in (None, "auto"):
        return True, False
    if kind in ("none", "any"):
        return kind == "any", kind == "any"
    if kind == "tool" and isinstance(given, Mapping):
        return True, require_text("tool_choice.name", given.get("name"))
    raise invalid("tool_choice", "must be of type auto, any, tool or none")


def _parallel_setting(choice: Any) -> dict[str, bool]:
    """Whether the model may call several tools at once is said with the choice, here."""
    once = isinstance(choice, Mapping) and require_flag(
        "tool_choice.disable_parallel_tool_use", choice.get("disable_parallel_tool_use")
    )
    return {"parallel_tool_calls": False} if once else {}


def _parse_tool(one: Mapping[str, Any]) -> Any:
    if one.get("type") not in (None, "custom"):
        raise invalid("tools", "must be tools of the client's own")
    return parse_tool("tools", one.get("name"), one.get("description"), one.get("input_schema"), one.get("strict"))


def parse_messages(messages: list[Mapping[str, Any]]) -> tuple[ClientMessage, ...]:
    said: list[ClientMessage] = []
    for one in messages:
        content = one.get("content")
        told = [{"type": "text", "text": content}] if isinstance(content, str) else content
        blocks = require_list("messages.content", told)
        if one.get("role") == "assistant":
            said.append(_parse_assistant(blocks))
        elif one.get("role") == "user":
            said += _parse_user(blocks)
        else:
            raise invalid("messages.role", "must be user or assistant")
    return tuple(said)


def _parse_user(blocks: list[Mapping[str, Any]]) -> list[ClientMessage]:
    """Results come first, then what the user says."""
    results = tuple(_parse_result(block) for block in blocks if block.get("type") == "tool_result")
    parts = [_parse_part(block) for block in blocks if block.get("type") != "tool_result"]
    found = [ClientMessage(role="tool", results=results)] if results else []
    return [*found, ClientMessage(role="user", content=simplify_parts(parts))] if parts else found


def _parse_assistant(blocks: list[Mapping[str, Any]]) -> ClientMessage:
    """What it thought is the provider's own: it goes back there, and is not stored."""
    text = "\n\n".join(str(block.get("text") or "") for block in blocks if block.get("type") == "text")
    calls = tuple(_parse_call(block) for block in blocks if block.get("type") == "tool_use")
    thoughts = tuple(block for block in blocks if block.get("type") in ("thinking", "redacted_thinking"))
    return ClientMessage(role="assistant", content=text, calls=calls, thoughts=thoughts)


def _parse_call(block: Mapping[str, Any]) -> ToolCall:
    input = block.get("input")
    if not isinstance(input, Mapping):
        raise invalid("messages.content.input", "must be an object")
    id, name = block.get("id"), block.get("name")
    return ToolCall(require_text("messages.content.id", id), require_text("messages.content.name", name), dict(input))


def _parse_result(block: Mapping[str, Any]) -> ToolResult:
    id = require_text("messages.content.tool_use_id", block.get("tool_use_id"))
    return ToolResult(id, _join_text(block.get("content"), "messages.content"), block.get("is_error") is True)


def _join_text(content: Any, field: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    blocks = require_list(field, content)
    return "\n".join(str(block.get("text") or f"[{block.get('type')}]") for block in blocks)


def _parse_part(block: Mapping[str, Any]) -> Part:
    kind, source = block.get("type"), block.get("source")
    if kind == "text":
        return {"type": "text", "text": require_text("messages.content.text", block.get("text"))}
    if kind in ("image", "document") and isinstance(source, Mapping):
        part = {"type": "image" if kind == "image" else "file", "url": _parse_source(source)}
        return part if kind == "image" else {**part, "filename": str(block.get("title") or "document")}
    raise invalid("messages.content", "must be text, image, document or tool_result")


def _parse_source(source: Mapping[str, Any]) -> str:
    if source.get("type") == "base64":
        media = require_text("messages.content.source.media_type", source.get("media_type"))
        return f"data:{media};base64,{require_text('messages.content.source.data', source.get('data'))}"
    if source.get("type") == "text":
        return f"data:text/plain,{quote(require_text('messages.content.source.data', source.get('data')))}"
    if source.get("type") == "url":
        return require_url("messages.content.source.url", source.get("url"))
    raise invalid("messages.content.source", "must be of type base64, text or url")


# ---- what goes out -------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class MessageFrames:
    """An answer as the events of a message."""

    id: str
    model: str
    totals: AnswerTotals = field(default_factory=AnswerTotals)
    blocks: list[dict[str, Any]] = field(default_factory=list)
    _open: str | None = None  # the kind of the block that is being told
    _pieces: list[str] = field(default_factory=list)

    def message(self) -> dict[str, Any]:
        last = self.totals.last
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": list(self.blocks),
            **(self._stop_fields() if last is not None else {"stop_reason": None, "stop_sequence": None}),
            "usage": {"input_tokens": self.totals.prompt, "output_tokens": self.totals.completion},
        }

    def start(self) -> list[Any]:
        return [{"type": "message_start", "message": self.message()}, PING]

    def encode(self, event: AnswerEvent) -> list[Any]:
        self.totals.add(event)
        if isinstance(event, TextDelta):
            return self._text_delta("text", {"type": "text_delta", "text": event.text}, event.text)
        if isinstance(event, ReasoningDelta):
            return self._text_delta("thinking", {"type": "thinking_delta", "thinking": event.text}, event.text)
        if isinstance(event, Thought):
            return self._thought(event.block)
        if isinstance(event, ToolsPlanned):
            return self._close_open()
        if isinstance(event, Interrupted):
            return [*self._close_open(), CUT_OFF]
        return self._finish() if isinstance(event, Answered) else []

    def _text_delta(self, kind: str, delta: dict[str, Any], text: str) -> list[Any]:
        frames: list[Any] = []
        if self._open != kind:
            frames = self._close_open()
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
            frames += self._close_open()
            self.blocks[-1] = dict(block)
            return frames
        frames = self._close_open()
        self.blocks.append(dict(block))
        frames.append({"type": "content_block_start", "index": self._index, "content_block": dict(block)})
        return [*frames, {"type": "content_block_stop", "index": self._index}]

    def _close_open(self) -> list[Any]:
        if self._open is None:
            return []
        self.blocks[-1] = _block(self._open, "".join(self._pieces))
        self._open, self._pieces = None, []
        return [{"type": "content_block_stop", "index": self._index}]

    def _finish(self) -> list[Any]:
        frames = self._close_open()
        for call in self.totals.calls:
            block = {"type": "tool_use", "id": call.id, "name": call.name, "input": _input(call.arguments)}
            self.blocks.append(block)
            delta = {"type": "input_json_delta", "partial_json": arguments_text(block["input"])}
            frames += [
                {"type": "content_block_start", "index": self._index, "content_block": {**block, "input": {}}},
                {"type": "content_block_delta", "index": self._index, "delta": delta},
                {"type": "content_block_stop", "index": self._index},
            ]
        usage = {"input_tokens": self.totals.prompt, "output_tokens": self.totals.completion}
        return [
            *frames,
            {"type": "message_delta", "delta": self._stop_fields(), "usage": usage},
            {"type": "message_stop"},
        ]

    def _stop_fields(self) -> dict[str, Any]:
        """Why it ended, and what it was told to stop at, if it did."""
        sequence = self.totals.last.metadata.get(STOP_SEQUENCE) if self.totals.last is not None else None
        if isinstance(sequence, str) and self.totals.reason == "stop":
            return {"stop_reason": "stop_sequence", "stop_sequence": sequence}
        return {"stop_reason": REASONS[self.totals.reason], "stop_sequence": None}

    @property
    def _index(self) -> int:
        return len(self.blocks) - 1


def message(frames: MessageFrames, events: list[AnswerEvent]) -> dict[str, Any]:
    """The same answer as one object."""
    for event in events:
        frames.encode(event)
    return frames.message()


def _block(kind: str, text: str) -> dict[str, Any]:
    if kind == "thinking":
        return {"type": "thinking", "thinking": text, "signature": ""}
    return {"type": "text", "text": text}  # without `citations`: the service leaves it out, and clients refuse null


def _input(arguments: Any) -> dict[str, Any]:
    """An object, always; what a model wrote that is none is handed over as text."""
    return dict(arguments) if isinstance(arguments, Mapping) else {"arguments": arguments}
