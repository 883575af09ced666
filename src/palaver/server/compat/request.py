"""A client's request in a neutral form. Each protocol parses its bodies into this one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import msgspec

from palaver.context.options import IMAGE_TOKENS, OVERHEAD_TOKENS
from palaver.context.settings import clean_context_settings
from palaver.core.concurrency import run_in_strides
from palaver.core.strides import size_of
from palaver.core.validation import did_you_mean
from palaver.errors import InvalidInput
from palaver.generation.tool_clearing import ToolClearing
from palaver.model import ToolCall, ToolResult
from palaver.ports.models import ToolChoice, ToolSpec

MAX_MESSAGES = 10_000
MAX_TOOLS = 512
MAX_DEPTH = 100
EXTENSION = "palaver"  # the field of every protocol's requests for options that only Palaver has
SCHEMES = ("https:", "http:", "data:")
# Settings that every provider has, each under its own name.
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
# Fields of one protocol that may reach a provider, and the parts of those that are objects (none: all of it).
AllowedFields = Mapping[str, Collection[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientMessage:
    """One message of a client's history. `content` is text, or parts: text, image by URL, file by URL."""

    role: Literal["user", "assistant", "tool"]
    content: str | tuple[Part, ...] = ""
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()
    metadata: Mapping[str, object] = field(default_factory=dict)
    reasoning: tuple[Mapping[str, object], ...] = ()  # before the calls, in the provider's own format

    @property
    def text(self) -> str:
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part["text"] for part in self.content if part["type"] == "text")

    @property
    def files(self) -> list[Part]:
        parts = () if isinstance(self.content, str) else self.content
        return [part for part in parts if part["type"] in ("image", "file")]


@dataclass(frozen=True, slots=True)
class CompactionItem:
    """A compaction that the client sent back, in place of the messages before it.

    `reference` names one that Palaver made. `text` is its summary, if the protocol shows it to clients.
    """

    reference: str | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextEdits:
    """How a request wants its context kept small.

    - `compact_at`: tokens of the thread from which it is compacted; None: it is not.
    - `pause`: return after a compaction, without an answer.
    - `clear_tools`: when to clear old tool results from the prompt.
    - `is_reported`: the reply lists the edits that were made; `applied` are those made while parsing.
    """

    compact_at: int | None = None
    pause: bool = False
    clear_tools: ToolClearing | None = None
    is_reported: bool = False
    applied: tuple[Mapping[str, object], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientRequest:
    """One request for an answer.

    `shape` is the protocol. `own` are settings under its names, `common` those that other providers have as well.
    `ignored` are fields that do not reach a provider.
    `conversation` and `previous` name what the request belongs to, if the body does. With `whole`, `said` is the
    client's complete history, even if it is one message. `format` is the required format of the answer, as Responses
    write it: `{"type": "json_schema", "schema": …}`. `kept` is stored with the message. `context` are options of the
    context, from the field `palaver` that Palaver adds to each protocol. `compaction` stands for the messages before
    `said`. With `after`, `said` is the client's history after this turn of the conversation.
    """

    shape: str
    model: str
    said: tuple[ClientMessage, ...]
    instructions: str | None = None
    tools: tuple[ToolSpec, ...] = ()
    tool_choice: ToolChoice = "auto"
    common: Mapping[str, object] = field(default_factory=dict)
    own: Mapping[str, object] = field(default_factory=dict)
    ignored: Mapping[str, object] = field(default_factory=dict)
    format: Mapping[str, object] | None = None
    stream: bool = False
    conversation: str | None = None
    previous: str | None = None
    store: bool = False
    whole: bool = False
    kept: Mapping[str, object] = field(default_factory=dict)
    context: Mapping[str, object] = field(default_factory=dict)
    edits: ContextEdits = field(default_factory=ContextEdits)
    compaction: CompactionItem | None = None
    after: str | None = None


def reasoning_by_call(said: Sequence[ClientMessage]) -> dict[str, tuple[Mapping[str, object], ...]]:
    """Return the reasoning that a client sent back, by the call that follows it. Providers require it."""
    return {one.calls[0].id: one.reasoning for one in said if one.calls and one.reasoning}


def settings_for(ask: ClientRequest, adapter: str) -> dict[str, Any]:
    """Translate the client's settings to the names of the provider that answers."""
    if adapter == ask.shape:
        return dict(ask.own)
    names = NAMES.get(adapter, {})
    given = {names[name]: value for name, value in ask.common.items() if name in names}
    if "stop_sequences" in given and isinstance(given["stop_sequences"], str):
        given["stop_sequences"] = [given["stop_sequences"]]
    return given if ask.format is None else {**given, **_format_setting(ask.format, adapter)}


def _format_setting(format: Mapping[str, object], adapter: str) -> dict[str, Any]:
    """Translate the required format of the answer to the provider's setting."""
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
        raise invalid("format", "must be a json_schema: the answering model supports no other format")
    return {"output_config": {"format": {"type": "json_schema", "schema": format.get("schema")}}}


# ---- checking input ------------------------------------------------------------------------------------------------


class TooDeep(msgspec.DecodeError):
    """JSON has more levels than `MAX_DEPTH`."""


def decode_json(data: bytes | str) -> object:
    """Decode JSON, limiting its depth so that recursive code cannot overflow the stack."""
    try:
        value = msgspec.json.decode(data)
    except RecursionError:
        raise TooDeep from None
    level, depth = [value], 0
    while level:
        if (depth := depth + 1) > MAX_DEPTH:
            raise TooDeep
        level = [
            child
            for one in level
            if isinstance(one, dict | list)
            for child in (one.values() if isinstance(one, dict) else one)
        ]
    return value


def invalid(field: str, problem: str) -> InvalidInput:
    return InvalidInput(field, problem)


def require_list(field: str, value: object, most: int = MAX_MESSAGES) -> list[Mapping[str, object]]:
    """Require a list of objects with at most `most` entries."""
    if not isinstance(value, list) or not all(isinstance(one, Mapping) for one in value):
        raise invalid(field, "must be a list of objects")
    if len(value) > most:
        raise invalid(field, f"has {len(value):,} entries; the limit is {most:,}")
    return value


def require_text(field: str, value: object) -> str:
    if not isinstance(value, str):
        raise invalid(field, "must be text")
    return value


def optional_text(field: str, value: object) -> str | None:
    return None if value is None else require_text(field, value)


def require_name(field: str, value: object) -> str:
    """Require a text that is not empty."""
    if not require_text(field, value):
        raise invalid(field, "must not be empty")
    return str(value)


def require_flag(field: str, value: object, default: bool = False) -> bool:
    """Require a boolean. The text "false" is rejected, because Python treats it as true."""
    if value is None:
        return default
    if not isinstance(value, bool):
        raise invalid(field, "must be true or false")
    return value


def require_object(field: str, value: object) -> Mapping[str, object]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise invalid(field, "must be an object")
    return value


def parse_extension(body: Mapping[str, object]) -> Mapping[str, object]:
    """Return the options of the context from the field `palaver`: `{"context": {"policy": …}}`."""
    given = require_object(EXTENSION, body.get(EXTENSION))
    for name in given:
        if name != "context":
            raise invalid(
                f"{EXTENSION}.{name}", f"is unknown{did_you_mean(name, ['context'])}; the only option is context"
            )
    return clean_context_settings(f"{EXTENSION}.context", given.get("context"), is_stored=True)


def parse_format(field: str, value: object) -> Mapping[str, object] | None:
    """Return the required format of the answer; None for plain text."""
    format = require_object(field, value)
    return format if format.get("type", "text") != "text" else None


def require_url(field: str, value: object) -> str:
    """Require the URL of a file, or a `data:` URL."""
    if not require_text(field, value).lower().startswith(SCHEMES):
        raise invalid(field, "must be an https, http or data URL")
    return str(value)


def reject_unsupported(body: Mapping[str, object], names: Iterable[str]) -> None:
    """Reject unsupported options that would otherwise be ignored silently."""
    for name in names:
        if body.get(name):
            raise invalid(name, "is not supported")


def reject_provider_tools(body: Mapping[str, object], names: Iterable[str]) -> None:
    """Reject fields that make the provider run tools, on the operator's account. An empty object switches them on."""
    for name in names:
        if body.get(name) is not None:
            raise invalid(name, "is not supported: tools that the provider runs are not available here")


def parse_call(field: str, id: object, name: object, arguments: object) -> ToolCall:
    """Parse a tool call. Arguments that are not a JSON object stay text."""
    value = arguments
    if isinstance(arguments, str):
        try:
            value = decode_json(arguments) if arguments.strip() else {}
        except msgspec.DecodeError:
            value = arguments
        if not isinstance(value, Mapping):
            value = arguments
    return ToolCall(require_text(f"{field}.id", id), require_text(f"{field}.name", name), value)


def parse_tool(field: str, name: object, description: object, parameters: object, strict: object) -> ToolSpec:
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
    """Reduce a single part of text to the text."""
    if all(part["type"] == "text" for part in parts) and len(parts) <= 1:
        return str(parts[0]["text"]) if parts else ""
    return tuple(parts)


def arguments_text(arguments: object) -> str:
    return arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()


def result_text(content: object) -> str:
    return content if isinstance(content, str) else msgspec.json.encode(content).decode()


def provider_settings(body: Mapping[str, object], allowed: AllowedFields) -> dict[str, Any]:
    """Return the fields that are passed to a provider of the same protocol: those on the list, and of each only the
    listed parts. Other fields could cost the operator money, or choose how the request is served."""
    given = {name: body[name] for name in allowed if body.get(name) is not None}
    return {name: _listed_parts(value, allowed[name]) for name, value in given.items()}


def _listed_parts(value: object, parts: Collection[str]) -> object:
    if not parts or not isinstance(value, Mapping):
        return value
    return {name: part for name, part in value.items() if name in parts}


def other_fields(body: Mapping[str, object], decided: frozenset[str], allowed: AllowedFields) -> dict[str, object]:
    """Return the fields that are ignored, unless the operator adds them to the list."""
    known = decided | allowed.keys() | {EXTENSION}
    return {name: value for name, value in body.items() if name not in known and value is not None}


def with_provider_fields(ask: ClientRequest, names: Collection[str]) -> ClientRequest:
    """Also pass the fields that the operator added to the list of every protocol (`provider_fields`)."""
    added = {name: value for name, value in ask.ignored.items() if name in names}
    if not added:
        return ask
    ignored = {name: value for name, value in ask.ignored.items() if name not in added}
    return replace(ask, own={**ask.own, **added}, ignored=ignored)


def common_settings(body: Mapping[str, object], names: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings that every provider has, from this provider's names."""
    return {
        ours: body[theirs]
        for theirs, ours in names.items()
        if body.get(theirs) is not None and ours in FORWARDED
    }  # fmt: skip


async def count_tokens(ask: ClientRequest, count: Callable[[str], int]) -> int:
    """Count the tokens of a request with Palaver's own counter, in strides if it is large."""
    return await run_in_strides(partial(sum_tokens, ask, count), size_of(ask))


def sum_tokens(ask: ClientRequest, count: Callable[[str], int]) -> int:
    """Count the tokens of a request. Pure."""
    texts = [ask.instructions or "", *(one.text for one in ask.said)]
    texts += [arguments_text(call.arguments) for one in ask.said for call in one.calls]
    texts += [result_text(result.content) for one in ask.said for result in one.results]
    texts += [f"{tool.name} {tool.description} {arguments_text(dict(tool.parameters))}" for tool in ask.tools]
    images = sum(len(one.files) for one in ask.said)
    return sum(count(text) + OVERHEAD_TOKENS for text in texts if text) + images * IMAGE_TOKENS
