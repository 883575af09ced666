"""Shared by the routes of other protocols: read a body, open the exchange, reply as JSON or as a stream."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Protocol

import msgspec
from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from palaver.conversations.conversation import Conversation
from palaver.conversations.store import Store
from palaver.errors import ModelUnavailable, PalaverError, PermissionDenied, ScrubPending
from palaver.model import Turn
from palaver.server import wire
from palaver.server.auth import Caller
from palaver.server.compat import errors as compat_errors
from palaver.server.compat.exchange import Exchange, input_turns, turns_after
from palaver.server.compat.exchanges import Exchanges
from palaver.server.compat.replay import INPUT, AnswerEvent, Interrupted
from palaver.server.compat.request import (
    ClientRequest,
    TooDeep,
    decode_json,
    with_provider_fields,
)
from palaver.server.compat.sdk_retries import COUNT, fingerprint, is_retry
from palaver.server.components import Services
from palaver.server.dependencies import Reply
from palaver.server.errors import Refusal
from palaver.server.json_body import TOO_DEEP, describe_failure
from palaver.server.live import sse

CONVERSATION = "x-conversation-id"


class Renderer(Protocol):
    """Encodes an answer as the frames of one protocol. Pure."""

    def start(self) -> list[Any]: ...

    def encode(self, event: AnswerEvent) -> list[Any]: ...


async def read_body(request: Request) -> tuple[dict[str, Any], bytes]:
    """Return the body as an object and as bytes."""
    data = await request.body()
    try:
        body = decode_json(data) if data else {}
    except TooDeep:
        raise Refusal(400, f"The body {TOO_DEEP}", field="body") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Refusal(400, f"The body {describe_failure(data)}", field="body") from None
    if not isinstance(body, dict):
        raise Refusal(400, "The body must be a JSON object", field="body")
    return body, data


async def open_exchange(
    request: Request, services: Services, store: Store, caller: Caller, ask: ClientRequest, data: bytes
) -> Exchange:
    """Open the exchange of a request and wait for its first output. An earlier failure is raised."""
    exchange = await begin_exchange(request, services, store, caller, ask, data)
    await exchange.wait_for_output(services.settings.heartbeat)
    return exchange


async def begin_exchange(
    request: Request, services: Services, store: Store, caller: Caller, ask: ClientRequest, data: bytes
) -> Exchange:
    """Open the exchange of a request without waiting for its answer."""
    exchanges = Exchanges(services, store, caller)
    ask = with_provider_fields(ask, services.settings.provider_fields)
    again = is_retry(request.headers.get(COUNT))
    mark = fingerprint(request.url.path, data)
    return await exchanges.open(ask, request.headers.get(CONVERSATION) or None, mark, again)


async def collect_events(exchange: Exchange) -> list[AnswerEvent]:
    """Return all events of an answer. An interrupted answer raises ModelUnavailable."""
    events = [event async for event in exchange.listen()]
    if events and isinstance(events[-1], Interrupted):
        raise ModelUnavailable(events[-1].turn.model or "the model", "was interrupted in the middle of its answer")
    return events


def stream_reply(
    request: Request,
    services: Services,
    exchange: Exchange,
    renderer: Renderer,
    write: Callable[[Any], bytes],
    encode_error: Callable[[dict[str, Any]], list[Any]],
    headers: Mapping[str, str] | None = None,
) -> Response:
    """Stream the answer as server-sent events. Disconnecting does not stop it."""
    frames = _frames(request.url.path, exchange, renderer, write, encode_error)
    alive = sse.keep_alive(frames, services.settings.heartbeat)
    return sse.EventStream(alive, {**exchange.headers(), **(headers or {})}, with_retry=False)


async def _frames(
    path: str,
    exchange: Exchange,
    renderer: Renderer,
    write: Callable[[Any], bytes],
    encode_error: Callable[[dict[str, Any]], list[Any]],
) -> AsyncIterator[bytes]:
    for one in renderer.start():
        yield write(one)
    try:
        async for event in exchange.listen():
            for one in renderer.encode(event):
                yield write(one)
    except (PalaverError, HTTPException) as problem:
        for one in encode_error(compat_errors.stream_error(path, problem)[1]):
            yield write(one)


def encode_data(value: Any) -> bytes:
    """Encode a frame without a name, as OpenAI's chat and the AI SDK expect."""
    return b"data: %s\n\n" % (value.encode() if isinstance(value, str) else wire.encode(value))


def encode_named(value: Mapping[str, Any]) -> bytes:
    """Encode a frame named after its type, as OpenAI's Responses and Anthropic expect."""
    return sse.frame(value["type"], value)


def json_reply(exchange: Exchange, value: Any) -> Response:
    return Reply(value, headers=exchange.headers())


async def forget_turns(talk: Conversation, turns: Iterable[Turn | None]) -> int:
    """Forget turns; None stands for the conversation. Returns 202 if bytes wait for another reader of the file."""
    status = 200
    for turn in turns:
        try:
            await (talk.forget() if turn is None else talk.forget(turn))
        except ScrubPending:
            status = 202
    return status


async def forget_exchange(exchange: Exchange) -> int:
    """Forget a request and its answer; an unnamed conversation with its last one, by its owner. Returns the status."""
    talk, input = exchange.stored()
    mine = [turn for turn in await turns_after(talk, input) if turn.metadata.get(INPUT) == input.id]
    status = await forget_turns(talk, [*mine, *await input_turns(exchange)])
    if talk.info.ttl is not None and talk.info.key is None and not await talk.history(1):
        with suppress(PermissionDenied):  # the caller is not the owner: the empty conversation expires later
            status = max(status, await forget_turns(talk, [None]))
    return status
