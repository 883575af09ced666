"""Redaction applied to what a caller hands in: texts, parts and tool results. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from palaver.model import Reasoning, Text, ToolCall, ToolResult

if TYPE_CHECKING:
    from palaver.redaction.redactor import Redacted

Redact = Callable[[str], "Redacted"]


def redacted_content(content: Any, redact: Redact) -> Any:
    """The content with every text in it redacted; what is not text is left as it is."""
    if isinstance(content, str):
        return redact(content).text
    if isinstance(content, Sequence) and not isinstance(content, bytes | bytearray):
        return [_part(part, redact) for part in content]
    return content


def _part(part: Any, redact: Redact) -> Any:
    if isinstance(part, str):
        return redact(part).text
    if isinstance(part, Text | Reasoning):
        return replace(part, text=redact(part.text).text)
    if isinstance(part, Mapping) and isinstance(part.get("text"), str):
        return {**part, "text": redact(part["text"]).text}
    return part


def redacted_results(results: Any, redact: Redact) -> Any:
    """Tool results with every text in them redacted."""
    return [_with(result, "content", redact) for result in results]


def redacted_calls(calls: Any, redact: Redact) -> Any:
    """Tool calls with every text in their arguments redacted."""
    return [_with(call, "arguments", redact) for call in calls]


def redacted_json(value: Any, redact: Redact) -> Any:
    """The value with every text in it redacted; the names of fields stay."""
    if isinstance(value, str):
        return redact(value).text
    if isinstance(value, Mapping):
        return {name: redacted_json(one, redact) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [redacted_json(one, redact) for one in value]
    return value


def _with(value: Any, field: str, redact: Redact) -> Any:
    if isinstance(value, ToolResult | ToolCall):
        return replace(value, **{field: redacted_json(getattr(value, field), redact)})
    if isinstance(value, Mapping) and field in value:
        return {**value, field: redacted_json(value[field], redact)}
    return value
