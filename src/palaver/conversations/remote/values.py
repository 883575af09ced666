"""Values of the library from the JSON that a server sends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from palaver.context.explain import Explanation
from palaver.context.inputs import Context
from palaver.core.filters import clean_where, where_json
from palaver.core.identity import canonical_json
from palaver.core.turn_draft import decode_part, encode_part
from palaver.model import (
    Attachment,
    Branch,
    ContentInput,
    ConversationInfo,
    ConversationMatch,
    Empty,
    Fact,
    File,
    FileQuote,
    Image,
    Page,
    Reasoning,
    RecallHit,
    Results,
    Summary,
    Text,
    TokenUsage,
    ToolCall,
    ToolResult,
    Turn,
    TurnMatch,
)

Json = Mapping[str, Any]
R = TypeVar("R")
V = TypeVar("V")

# The types of a turn's fields that are not plain JSON, but for its content.
TURN_TYPES: Mapping[str, Any] = {
    "created": datetime,
    "tool_calls": tuple[ToolCall, ...],
    "tool_results": tuple[ToolResult, ...],
    "attachments": tuple[Attachment, ...],
    "sources": tuple[dict[str, Any], ...],
    "tokens": TokenUsage | None,
}


def value(data: Any, kind: type[V]) -> V:
    """Return a value whose fields are sent as they are. Fields that this version does not know are ignored."""
    return msgspec.convert(data, kind)


def turn(data: Json) -> Turn:
    known = {name: data[name] for name in Turn.__struct_fields__ if name in data}
    content = known["content"]
    known["content"] = content if isinstance(content, str) else tuple(decode_part(part) for part in content)
    converted = {name: msgspec.convert(known[name], kind) for name, kind in TURN_TYPES.items() if name in known}
    return Turn(**{**known, **converted})


def turn_or_summary(data: Json) -> Turn | Summary:
    return value(data, Summary) if "level" in data else turn(data)


def match(data: Json) -> TurnMatch:
    return TurnMatch(turn(data["turn"]), tuple(data["terms"]))


def found(data: Json) -> ConversationMatch:
    matches = tuple(match(one) for one in data["matches"])
    return ConversationMatch(value(data["conversation"], ConversationInfo), matches, data["in_title"])


def hit(data: Json) -> RecallHit:
    return RecallHit(
        score=data["score"],
        relevance=data["relevance"],
        parts=data["parts"],
        turn=None if data["turn"] is None else turn(data["turn"]),
        fact=None if data["fact"] is None else value(data["fact"], Fact),
        quote=None if data["quote"] is None else value(data["quote"], FileQuote),
    )


def branch(data: Json) -> Branch:
    return Branch(data["position"], tuple(turn(one) for one in data["turns"]))


def page(data: Json) -> Page:
    return Page(tuple(value(one, ConversationInfo) for one in data["items"]), data["cursor"], _empty(data))


def results(data: Json, read: Callable[[Json], R]) -> Results[R]:
    """Return the items of a reply, and why there are none. A server of an older version does not say it."""
    return Results.of([read(one) for one in data["items"]], _empty(data))


def _empty(data: Json) -> Empty | None:
    return Empty(**data["empty"]) if data.get("empty") else None


def context(data: Json) -> Context:
    explanation = Explanation.from_dict(data["explanation"])
    return Context(
        messages=data["messages"], tokens=data["tokens"], turn_ids=tuple(data["turn_ids"]), explanation=explanation
    )


# ---- what is sent --------------------------------------------------------------------------------------------------


def content_json(content: ContentInput) -> Any:
    """Return a content as JSON: text, or a list of parts."""
    if isinstance(content, str):
        return content
    return [encode_part(one) if isinstance(one, Text | Image | File | Reasoning) else one for one in content]


def fields_json(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return options as JSON: values as their fields, turns and attachments as their ids; None is left out."""
    return {name: _field(name, one) for name, one in fields.items() if one is not None}


def where_text(where: Mapping[str, Any] | None) -> str | None:
    """Return a filter as a query parameter, after checking it."""
    clean_where(where)
    return None if where is None else canonical_json(where_json(where))


def _field(name: str, one: Any) -> Any:
    if name in ("content", "message"):
        return content_json(one)
    if name == "attachments":
        return [file.id for file in one]
    if isinstance(one, Turn):
        return one.id
    if isinstance(one, frozenset | set):
        return sorted(one)
    return msgspec.to_builtins(one, builtin_types=(datetime,)) if not isinstance(one, datetime) else one.isoformat()
