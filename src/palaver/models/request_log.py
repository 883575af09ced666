"""A record of each call of a model: the body as it was sent, why it looked so, and what came back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from palaver.model import Request, Scope
from palaver.ports.engine import RequestStore

NAMES = frozenset(
    {"model", "id", "type", "role", "name", "call_id", "tool_call_id", "tool_use_id", "previous_response_id"}
)  # what they hold are names, and no words
SOON = 0.1  # seconds until a call that is under way is on record
LONG_DATA = 1_000  # characters of a file inside a body: a longer one is named, not kept


@dataclass(slots=True)
class RequestRecorder:
    """One call. Its row is written at the end, and before that unless it is over at once: a crash leaves a trace."""

    engine: RequestStore
    scope: Scope
    request: Request
    redact: Callable[[str], str]
    bodies: int | None
    _begun: asyncio.Task[None] | None = None
    _ended: asyncio.Event = field(default_factory=asyncio.Event)
    _ready: Request | None = None

    def start(self) -> None:
        """It is on its way. Nobody waits for the row, and the first word does not wait for the looking for secrets."""
        if self._begun is None:
            self._begun = asyncio.create_task(self._put_soon(), name="palaver-request")

    async def finish(self, response: Mapping[str, Any], turn: str | None) -> None:
        """Here is what came of it."""
        self._ended.set()
        if self._begun is not None:
            await asyncio.shield(self._begun)
        self.request = replace(self.request, turn=turn)
        await self._put(response)

    async def _put_soon(self) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._ended.wait(), SOON)
        if not self._ended.is_set():
            await self._put(None)

    async def _put(self, response: Mapping[str, Any] | None) -> None:
        if self._ready is None:
            body = await asyncio.to_thread(presentable, self.request.body or {}, self.redact)
            self._ready = replace(self.request, body=body)
        row = replace(self._ready, response=response, turn=self.request.turn)
        await self.engine.put_request(self.scope, row.conversation, row, self.bodies)


def presentable(body: Mapping[str, Any], redact: Callable[[str], str]) -> dict[str, Any]:
    """The body without secrets, and without the bytes of files. Nothing else is changed."""
    shown: dict[str, Any] = _redacted(_without_files(body), redact)
    return shown


def _redacted(value: Any, redact: Callable[[str], str]) -> Any:
    if isinstance(value, Mapping):
        return {name: one if name in NAMES else _redacted(one, redact) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_redacted(one, redact) for one in value]
    return redact(value) if isinstance(value, str) else value


def _without_files(value: Any) -> Any:
    if isinstance(value, str):
        is_file = len(value) > LONG_DATA and value.startswith("data:")
        return f"{value.partition(',')[0]},… {len(value):,} characters" if is_file else value
    if isinstance(value, Mapping):
        if value.get("type") == "base64" and len(value.get("data") or "") > LONG_DATA:
            return {**value, "data": f"… {len(value['data']):,} characters"}
        return {name: _without_files(one) for name, one in value.items()}
    return [_without_files(one) for one in value] if isinstance(value, list | tuple) else value
