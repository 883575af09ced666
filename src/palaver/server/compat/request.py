"""What a client asks, in nobody's own form. Each protocol's module makes one of these from a body. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from palaver.errors import InvalidInput
from palaver.model import ToolCall, ToolResult
from palaver.ports.models import ToolSpec

MAX_MESSAGES = 10_000
MAX_TOOLS = 512
MAX_DEPTH = 100
SCHEMES = ("https:", "http:", "data:")
# What every provider knows, each by its own name.
FORWARDED = ("temperature", "top_p", "max_tokens", "stop", "parallel_tool_calls")
NAMES: Mapping[str, Mapping[str, str]] = {
    "openai-chat": {
        "temperature": "temperature", "top_p": "top_p", "max_tokens": "max_tokens", "stop": "stop",
        "parallel_tool_calls": "parallel_tool_calls",
    },
    "openai-responses": {
        "temperature": "temperature", "top_p": "top_p", "max_tokens": "max_output_tokens",
        "parallel_tool_calls": "parallel_tool_calls",
    },
    "anthropic-messages": {
        "temperature": "temperature", "top_p": "top_p", "max_tokens": "max_tokens", "stop": "stop_sequences",
        "parallel_tool_calls": "parallel_tool_calls",
    },
}  # fmt: skip

Part = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientMessage:
    """One message of a client's history. `content` is text or parts: text, image by URL, file by URL."""

    role: Literal["user", "assistant", "tool"]
    content: str | tuple[Part, ...] = ""
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    thoughts: tuple[Mapping[str, Any], ...] = ()  # of a model, before its calls, in its provider's own form

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part["text"] for part in self.content if part["type"] == "text")

    @property
    def files(self) -> list[Part]:
        parts = () if isinstance(self.content, str) else self.content
        return [part for part in parts if part["type"] in ("image", "file")]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRequest:
    """One request for an answer.

    `own` are settings in the words of `shape`, `common` those that other providers have as well. `conversation` and
    `previous` say what it belongs to, where the body does. With `whole`, what is said is all that the client has, also
    when that is one message. `format` is what the answer must look like, as Responses say it: `{"type": "json_schema",
    "schema": …}`. `kept` is stored with the message, for later questions about this answer.
    """

    shape: str
    model: str
    said: tuple[ClientMessage, ...]
    instructions: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    may_call: bool = True
    must_call: bool | str = False
    common: Mapping[str, Any] = field(default_factory=dict)
    own: Mapping[str, Any] = field(default_factory=dict)
    format: Mapping[str, Any] | None = None
    stream: bool = False
    conversation: str | None = None
    previous: str | None = None
    store: bool = False
    whole: bool = False
    kept: Mapping[str, Any] = field(default_factory=dict)


def thoughts_by_call(said: Sequence[ClientMessage]) -> dict[str, tuple[Mapping[str, Any], ...]]:
    """What a client kept of a model's thoughts, by the call that they led to: the provider wants them back."""
    return {one.calls[0].id: one.thoughts for one in said if one.calls and one.thoughts}


def settings_for(ask: ClientRequest, adapter: str) -> dict[str, Any]:
    """The client's settings in the words of the provider that answers."""
    if adapter == ask.shape:
        return dict(ask.own)
    names = NAMES.get(adapter, {})
    given = {names[name]: value for name, value in ask.common.items() if name in names}
    if "stop_sequences" in given and isinstance(given["stop_sequences"], str):
        given["stop_sequences"] = [given["stop_sequences"]]
    return given if ask.format is None else {**given, **_formatted(ask.format, adapter)}


def _formatted(format: Mapping[str, Any], adapter: str) -> dict[str, Any]:
    """What an answer must look like, in the words of the provider."""
    is_schema = format["type"] == "json_schema"
    named = {"name": "answer", **format} if is_schema else format  # OpenAI wants a name
    if adapter == "openai-responses":
        return {"text": {"format": named}}
    if adapter == "openai-chat":
        schema = {name: value for name, value in named.items() if name != "type"}
        return {"response_format": {"type": "json_schema", "json_schema": schema} if is_schema else named}
    if adapter != "anthropic-messages":
        return {}
    if not is_schema:
        raise invalid("format", "must be a json_schema: the model that answers knows no other")
    return {"output_config": {"format": {"type": "json_schema", "schema": format.get("schema")}}}


# ---- reading what came in ------------------------------------------------------------------------------------------


def decode_json(data: bytes | str) -> Any:
    """JSON, not nested so deeply that somebody behind us, who walks it by calling himself, comes to an end."""
    try:
        value = msgspec.json.decode(data)
    except RecursionError:
        raise msgspec.DecodeError("nested too deeply") from None
    level, depth = [value], 0
    while level:
        if (depth := depth + 1) > MAX_DEPTH:
            raise msgspec.DecodeError("nested too deeply")
        level = [
            child
            for one in level
            if isinstance(one, dict | list)
            for child in (one.values() if isinstance(one, dict) else one)
        ]
    return value


def invalid(field: str, problem: str) -> InvalidInput:
    return InvalidInput(field, problem)


def require_list(field: str, value: Any, most: int = MAX_MESSAGES) -> list[Mapping[str, Any]]:
    """A list of objects, not longer than it should be."""
    if not isinstance(value, list) or not all(isinstance(one, Mapping) for one in value):
        raise invalid(field, "must be a list of objects")
    if len(value) > most:
        raise invalid(field, f"holds {len(value):,} entries, and {most:,} is the limit")
    return value


def require_text(field: str, value: Any) -> str:
    if not isinstance(value, str):
        raise invalid(field, "must be text")
    return value


def optional_text(field: str, value: Any) -> str | None:
    return None if value is None else require_text(field, value)


def require_name(field: str, value: Any) -> str:
    """A text that says something."""
    if not require_text(field, value):
        raise invalid(field, "must not be empty")
    return str(value)


def require_flag(field: str, value: Any, usual: bool = False) -> bool:
    """Not what is merely true to Python: the text "false" is."""
    if value is None:
        return usual
    if not isinstance(value, bool):
        raise invalid(field, "must be true or false")
    return value


def require_object(field: str, value: Any) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise invalid(field, "must be an object")
    return value


def parse_format(field: str, value: Any) -> Mapping[str, Any] | None:
    """What an answer must look like; None where any text will do."""
    format = require_object(field, value)
    return format if format.get("type", "text") != "text" else None


def require_url(field: str, value: Any) -> str:
    """Where a file is, or the file itself."""
    if not require_text(field, value).lower().startswith(SCHEMES):
        raise invalid(field, "must be a URL: https, http or data")
    return str(value)


def reject_unsupported(body: Mapping[str, Any], names: Iterable[str]) -> None:
    """What would be passed over in silence, and change the answer by it."""
    for name in names:
        if body.get(name):
            raise invalid(name, "is not available here")


def parse_call(field: str, id: Any, name: Any, arguments: Any) -> ToolCall:
    """A call; its arguments as an object where they are one."""
    value = arguments
    if isinstance(arguments, str):
        try:
            value = decode_json(arguments) if arguments.strip() else {}
        except msgspec.DecodeError:
            value = arguments
        if not isinstance(value, Mapping):
            value = arguments
    return ToolCall(require_text(f"{field}.id", id), require_text(f"{field}.name", name), value)


def parse_tool(field: str, name: Any, description: Any, parameters: Any, strict: Any) -> ToolSpec:
    if parameters is not None and not isinstance(parameters, Mapping):
        raise invalid(f"{field}.parameters", "must be a JSON schema")
    schema = dict(parameters) if parameters else {"type": "object", "properties": {}}
    return ToolSpec(
        name=require_text(f"{field}.name", name),
        description=optional_text(f"{field}.description", description) or "",
        parameters=schema,
        strict=None if strict is None else require_flag(f"{field}.strict", strict),
    )


def simplify_parts(parts: Sequence[Part]) -> str | tuple[Part, ...]:
    """One part of text is the same as the text."""
    if all(part["type"] == "text" for part in parts) and len(parts) <= 1:
        return str(parts[0]["text"]) if parts else ""
    return tuple(parts)


def arguments_text(arguments: Any) -> str:
    return arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()


def result_text(content: Any) -> str:
    return content if isinstance(content, str) else msgspec.json.encode(content).decode()


def own_settings(body: Mapping[str, Any], decided: frozenset[str]) -> dict[str, Any]:
    """The fields that are passed on as they are: all but those that are decided here, and those without a value."""
    return {name: value for name, value in body.items() if name not in decided and value is not None}


def common_settings(body: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Settings that every provider has, from the names that this one calls them by."""
    return {
        ours: body[theirs]
        for theirs, ours in names.items()
        if body.get(theirs) is not None and ours in FORWARDED
    }  # fmt: skip
