"""The record of each model call: the body as it was sent, its explanation, and how the call ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from palaver.model import Request, Scope
from palaver.ports.engine import RequestStore
from palaver.ports.models import JsonObject

NAMES = frozenset(
    {"model", "id", "type", "role", "name", "call_id", "tool_call_id", "tool_use_id", "previous_response_id"}
)  # fields that hold names or ids, which are not redacted
MAX_DATA = 1_000  # characters of a file inside a body; longer ones are replaced by a note


@dataclass(slots=True)
class RequestRecorder:
    """Records one call at its end. A call that takes longer than `delay` seconds is also recorded before that, so that
    a crash leaves a trace.
    """

    engine: RequestStore
    scope: Scope
    request: Request
    redact: Callable[[str], str]
    bodies: int | None  # newest bodies that are kept per conversation
    delay: float = 0.1
    _begun: asyncio.Task[None] | None = None
    _ended: asyncio.Event = field(default_factory=asyncio.Event)
    _ready: Request | None = None

    def start(self) -> None:
        """Start recording in the background, so that redaction does not delay the first token."""
        if self._begun is None:
            self._begun = asyncio.create_task(self._put_after_delay(), name="palaver-request")

    async def finish(self, response: Mapping[str, object], turn: str | None) -> None:
        """Store the response, and the turn that it became."""
        self._ended.set()
        if self._begun is not None:
            await asyncio.shield(self._begun)
        self.request = replace(self.request, turn=turn)
        await self._put(response)

    async def _put_after_delay(self) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), self.delay)
        if not self._ended.is_set():
            await self._put(None)

    async def _put(self, response: Mapping[str, object] | None) -> None:
        if self._ready is None:
            body = await asyncio.to_thread(clean_body, self.request.body or {}, self.redact)
            self._ready = replace(self.request, body=body)
        row = replace(self._ready, response=response, turn=self.request.turn)
        await self.engine.put_request(self.scope, row.conversation, row, self.bodies)


def clean_body(body: Mapping[str, object], redact: Callable[[str], str]) -> JsonObject:
    """Return the body with secrets redacted and the bytes of files left out. Nothing else is changed."""
    cleaned: JsonObject = _redact_strings(_replace_files(body), redact)
    return cleaned


def _redact_strings(value: Any, redact: Callable[[str], str]) -> Any:
    if isinstance(value, Mapping):
        return {name: one if name in NAMES else _redact_strings(one, redact) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_redact_strings(one, redact) for one in value]
    return redact(value) if isinstance(value, str) else value


def _replace_files(value: Any) -> Any:
    if isinstance(value, str):
        is_file = len(value) > MAX_DATA and value.startswith("data:")
        return f"{value.partition(',')[0]},… {len(value):,} characters" if is_file else value
    if isinstance(value, Mapping):
        if value.get("type") == "base64" and len(value.get("data") or "") > MAX_DATA:
            return {**value, "data": f"… {len(value['data']):,} characters"}
        return {name: _replace_files(one) for name, one in value.items()}
    return [_replace_files(one) for one in value] if isinstance(value, list | tuple) else value
