"""Redaction of structured values: content, tool calls, tool results and metadata, as callers pass them in. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from palaver.model import File, Image, Reasoning, Text, ToolCall, ToolResult
from palaver.redaction.findings import Finding, merge_findings, replace_findings

if TYPE_CHECKING:
    from palaver.redaction.findings import Redacted

Redact = Callable[[str], "Redacted"]

MAX_NAMED = 1_024  # characters of a value whose name may announce a secret, as in {"password": "…"}
# Fields of a part that identify something, or that only the provider can read.
_TEXTS = ("text", "url", "filename")
_KEPT = frozenset(("type", "attachment", "media_type", "signature"))


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
    if isinstance(part, Text | Image | File | Reasoning):
        known = {name: getattr(part, name) for name in _TEXTS if hasattr(part, name)}
        extra = part.extra if isinstance(part, Reasoning) else _redact_fields(part.extra, redact)
        return replace(part, **_redact_texts(known, redact), extra=extra)
    if isinstance(part, Mapping):
        known = {name: part[name] for name in _TEXTS if name in part}
        extra = {name: value for name, value in part.items() if name not in known}
        extra = extra if part.get("type") == "reasoning" else _redact_fields(extra, redact)
        return {**extra, **_redact_texts(known, redact)}
    return part


def _redact_texts(known: Mapping[str, Any], redact: Redact) -> dict[str, Any]:
    return {
        name: redact(value).text if isinstance(value, str) and not _is_file(value) else value
        for name, value in known.items()
    }


def _redact_fields(fields: Mapping[str, Any], redact: Redact) -> dict[str, Any]:
    """Redact the fields of a part that is not reasoning: of that, everything but the text is for its provider."""
    kept = {name: value for name, value in fields.items() if name in _KEPT or _is_file(value)}
    return {**redact_json({name: value for name, value in fields.items() if name not in kept}, redact), **kept}


def _is_file(value: object) -> bool:
    """Return whether a URL holds the bytes of a file: as text they mean nothing."""
    return isinstance(value, str) and value[:5].lower() == "data:" and ";base64," in value[:200]


def redact_results(results: Iterable[Any], redact: Redact) -> list[Any]:
    """Redact every text in the tool results."""
    return [_redact_field(result, "content", redact) for result in results]


def redact_calls(calls: Iterable[Any], redact: Redact) -> list[Any]:
    """Redact every text in the arguments of the tool calls."""
    return [_redact_field(call, "arguments", redact) for call in calls]


def redact_json(value: Any, redact: Redact) -> Any:
    """Redact every text in a JSON value, the names of fields included. A name may announce the text: `password`."""
    if isinstance(value, str):
        return redact(value).text
    if isinstance(value, Mapping):
        clean: dict[Any, Any] = {}
        for name, one in value.items():
            named = isinstance(name, str) and isinstance(one, str) and len(one) <= MAX_NAMED
            clean[_redact_name(name, clean, redact)] = (
                _redact_named(name, one, redact) if named else redact_json(one, redact)
            )
        return clean
    if isinstance(value, list | tuple):
        return [redact_json(one, redact) for one in value]
    return value


def _redact_name(name: Any, taken: Mapping[Any, Any], redact: Redact) -> Any:
    """Redact the name of a field. Of several that become the same, each later one gets a number."""
    clean = redact(name).text if isinstance(name, str) else name
    if clean == name or clean not in taken:
        return clean
    return next(one for n in range(2, len(taken) + 3) if (one := f"{clean} {n}") not in taken)


def _redact_named(name: str, value: str, redact: Redact) -> str:
    prefix = f"{name[-MAX_NAMED:]}: "
    announced = redact(prefix + value).findings
    shifted = [
        Finding(one.kind, max(0, one.start - len(prefix)), one.end - len(prefix))
        for one in announced
        if one.end > len(prefix)
    ]
    return replace_findings(value, merge_findings([*redact(value).findings, *shifted]))


def _redact_field(value: object, field: str, redact: Redact) -> object:
    if isinstance(value, ToolResult | ToolCall):
        return replace(value, **{field: redact_json(getattr(value, field), redact)})
    if isinstance(value, Mapping) and field in value:
        return {**value, field: redact_json(value[field], redact)}
    return value
