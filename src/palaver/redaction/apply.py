"""Redaction of structured values: content, tool calls and tool results, as callers pass them in. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from palaver.model import Reasoning, Text, ToolCall, ToolResult

if TYPE_CHECKING:
    from palaver.redaction.findings import Redacted

Redact = Callable[[str], "Redacted"]


def redact_content(content: Any, redact: Redact) -> Any:
    """Redact every text in the content. Invalid content is returned unchanged, and rejected later."""
    if isinstance(content, str):
        return redact(content).text
    if isinstance(content, Sequence) and not isinstance(content, bytes | bytearray):
        return [_redact_part(part, redact) for part in content]
    return content


def _redact_part(part: object, redact: Redact) -> object:
    if isinstance(part, str):
        return redact(part).text
    if isinstance(part, Text | Reasoning):
        return replace(part, text=redact(part.text).text)
    if isinstance(part, Mapping) and isinstance(part.get("text"), str):
        return {**part, "text": redact(part["text"]).text}
    return part


def redact_results(results: Iterable[Any], redact: Redact) -> list[Any]:
    """Redact every text in the tool results."""
    return [_redact_field(result, "content", redact) for result in results]


def redact_calls(calls: Iterable[Any], redact: Redact) -> list[Any]:
    """Redact every text in the arguments of the tool calls."""
    return [_redact_field(call, "arguments", redact) for call in calls]


def redact_json(value: Any, redact: Redact) -> Any:
    """Redact every text in a JSON value; the names of fields stay."""
    if isinstance(value, str):
        return redact(value).text
    if isinstance(value, Mapping):
        return {name: redact_json(one, redact) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [redact_json(one, redact) for one in value]
    return value


def _redact_field(value: object, field: str, redact: Redact) -> object:
    if isinstance(value, ToolResult | ToolCall):
        return replace(value, **{field: redact_json(getattr(value, field), redact)})
    if isinstance(value, Mapping) and field in value:
        return {**value, field: redact_json(value[field], redact)}
    return value
