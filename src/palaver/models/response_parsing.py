"""Parts of requests and responses that the chat models share: settings, tool calls, retry delays. Pure."""

from __future__ import annotations

import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from palaver.core.identity import new_id
from palaver.errors import InvalidInput
from palaver.model import ToolCall
from palaver.ports.models import JsonObject


def with_settings(body: JsonObject, settings: Mapping[str, object]) -> JsonObject:
    """Return the body with the caller's settings. Fields that Palaver sets itself are rejected."""
    taken = (body.keys() | {"stream"}) & settings.keys()
    if taken:
        raise InvalidInput(f"settings.{sorted(taken)[0]}", "is set by generate and cannot be overridden")
    return {**body, **settings}


def call_of(id: str | None, name: str | None, arguments: str) -> ToolCall:
    """Return a call as the model wrote it. Arguments that are not a JSON object stay text; a missing id is made."""
    value: Any = arguments
    try:
        value = msgspec.json.decode(arguments) if arguments.strip() else {}
    except msgspec.DecodeError:
        pass  # the tool runner reports invalid arguments to the model
    return ToolCall(id or f"call_{new_id()}", name or "unnamed", value if isinstance(value, dict) else arguments)


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return how many seconds the service asks to wait before the next request, if it says so."""
    try:
        if "retry-after-ms" in headers:
            return max(0.0, float(headers["retry-after-ms"]) / 1000)
        text = headers.get("retry-after", "")
        return max(0.0, float(text)) if _is_number(text) else max(0.0, _seconds_until(text))
    except (ValueError, TypeError):
        return None


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()


def _seconds_until(date: str) -> float:
    return parsedate_to_datetime(date).timestamp() - time.time()
