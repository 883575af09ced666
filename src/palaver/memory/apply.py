"""Redaction applied to what a caller hands in: texts, parts and tool results. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from palaver.model import Reasoning, Text, ToolResult

if TYPE_CHECKING:
    from palaver.memory.redact import Redacted

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
    """Tool results with their textual contents redacted."""
    return [_result(result, redact) for result in results]


def _result(result: Any, redact: Redact) -> Any:
    if isinstance(result, ToolResult) and isinstance(result.content, str):
        return replace(result, content=redact(result.content).text)
    if isinstance(result, Mapping) and isinstance(result.get("content"), str):
        return {**result, "content": redact(result["content"]).text}
    return result
