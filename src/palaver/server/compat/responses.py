"""What the routes of other people's protocols share: reading a body, opening the exchange, telling it as frames."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any, Protocol

import msgspec
from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from palaver.context.options import IMAGE_TOKENS, OVERHEAD_TOKENS
from palaver.conversations.conversation import Conversation
from palaver.conversations.store import Store
from palaver.errors import ModelUnavailable, PalaverError, ScrubPending
from palaver.model import Turn
from palaver.server.auth import Caller
from palaver.server.compat import errors as compat_errors
from palaver.server.compat.exchange import Exchange, Exchanges
from palaver.server.compat.replay import Beat, Cut
from palaver.server.compat.request import Ask, arguments_text, decoded, result_text
from palaver.server.compat.sdk_retries import COUNT, fingerprint, is_retry
from palaver.server.components import Services
from palaver.server.errors import Refused
from palaver.server.live import sse
from palaver.server.rest import wire
from palaver.server.rest.dependencies import Reply

CONVERSATION = "x-conversation-id"


class Renderer(Protocol):
    """An answer in the frames of one protocol. Pure."""

    def begin(self) -> list[Any]: ...

    def take(self, beat: Beat) -> list[Any]: ...


async def body_of(request: Request) -> tuple[dict[str, Any], bytes]:
    """The body as an object, and as it came."""
    data = await request.body()
    try:
        body = decoded(data) if data else {}
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Refused(400, "The body is not valid JSON, or nested too deeply", field="body") from None
    if not isinstance(body, dict):
        raise Refused(400, "The body must be a JSON object", field="body")
    return body, data


async def opened(
    request: Request, services: Services, store: Store, caller: Caller, ask: Ask, data: bytes, *, waits: bool = True
) -> Exchange:
    """The exchange of this request, with the beginning of its answer; what fails before that is raised.

    Whoever wants the answer made in the background does not wait for its beginning.
    """
    exchanges = Exchanges(services, store, caller)
    again = is_retry(request.headers.get(COUNT))
    mark = fingerprint(request.url.path, data)
    exchange = await exchanges.open(ask, request.headers.get(CONVERSATION) or None, mark, again)
    if waits:
        await exchange.begun(services.settings.heartbeat)
    return exchange


async def heard(exchange: Exchange) -> list[Beat]:
    """All of an answer."""
    beats = [beat async for beat in exchange.listen()]
    if beats and isinstance(beats[-1], Cut):
        raise ModelUnavailable(beats[-1].turn.model or "the model", "was cut off in the middle of its answer")
    return beats


def streamed(
    request: Request,
    services: Services,
    exchange: Exchange,
    renderer: Renderer,
    encode: Callable[[Any], bytes],
    fail: Callable[[dict[str, Any]], list[Any]],
    headers: Mapping[str, str] | None = None,
) -> Response:
    """The answer as server-sent events. Hanging up does not end it."""
    frames = _frames(request.url.path, exchange, renderer, encode, fail)
    alive = sse.kept_alive(frames, services.settings.heartbeat)
    return sse.EventStream(alive, {**exchange.headers(), **(headers or {})}, greeted=False)


async def _frames(
    path: str,
    exchange: Exchange,
    renderer: Renderer,
    encode: Callable[[Any], bytes],
    fail: Callable[[dict[str, Any]], list[Any]],
) -> AsyncIterator[bytes]:
    for one in renderer.begin():
        yield encode(one)
    try:
        async for beat in exchange.listen():
            for one in renderer.take(beat):
                yield encode(one)
    except (PalaverError, HTTPException) as problem:
        for one in fail(compat_errors.of_error(path, problem)[1]):
            yield encode(one)


def data_frame(value: Any) -> bytes:
    """A frame without a name, as OpenAI's chat and the AI SDK have them."""
    return b"data: %s\n\n" % (value.encode() if isinstance(value, str) else wire.encode(value))


def named_frame(value: Mapping[str, Any]) -> bytes:
    """A frame that is named after its type, as OpenAI's responses and Anthropic have them."""
    return sse.frame(value["type"], value)


def whole(exchange: Exchange, value: Any) -> Response:
    return Reply(value, headers=exchange.headers())


async def forgotten(talk: Conversation, turns: Iterable[Turn | None]) -> int:
    """Forget each of them; None is the conversation. 202 while another reader still holds on to last bytes."""
    status = 200
    for turn in turns:
        try:
            await (talk.forget() if turn is None else talk.forget(turn))
        except ScrubPending:
            status = 202
    return status


def counted(ask: Ask, count: Callable[[str], int]) -> int:
    """What a request weighs, by our own count."""
    texts = [ask.instructions or "", *(one.text for one in ask.said)]
    texts += [arguments_text(call.arguments) for one in ask.said for call in one.calls]
    texts += [result_text(result.content) for one in ask.said for result in one.results]
    texts += [f"{tool.name} {tool.description} {arguments_text(dict(tool.parameters))}" for tool in ask.tools]
    images = sum(len(one.files) for one in ask.said)
    return sum(count(text) + OVERHEAD_TOKENS for text in texts if text) + images * IMAGE_TOKENS
