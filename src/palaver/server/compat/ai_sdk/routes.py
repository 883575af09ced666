"""Routes of the AI SDK's `useChat`: post a message, resume its stream."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any

from fastapi import Path, Request
from starlette.responses import Response

from palaver.conversations.conversation import Conversation
from palaver.conversations.store import Store
from palaver.errors import ModelError, NotFound, PermissionDenied
from palaver.model import Turn
from palaver.server.compat import responses
from palaver.server.compat.ai_sdk.frames import HEADERS, UIMessageFrames
from palaver.server.compat.ai_sdk.parse import parse_request
from palaver.server.compat.exchange import Exchange
from palaver.server.compat.exchanges import Exchanges
from palaver.server.compat.references import exchange_id, find_conversation_named
from palaver.server.compat.replay import INPUT
from palaver.server.components import Services
from palaver.server.dependencies import ID, CallerDep, ServicesDep, StoreDep

EXCERPT = 500  # characters shown of a recalled turn
RECENT = 20  # turns among which a pending answer is searched


async def create_chat_message(request: Request, services: ServicesDep, store: StoreDep, caller: CallerDep) -> Response:
    """Answer as a UI message stream of the AI SDK. The conversation `id` is created if it does not exist.

    Send the whole thread as `messages`, or only the last message as `message`. Disconnecting does not stop the answer:
    resume it at `/api/chat/{id}/stream`, or stop it at `/api/conversations/{id}/stop`.
    """
    body, data = await responses.read_body(request)
    ask = parse_request(body)
    exchange = await responses.begin_exchange(request, services, store, caller, ask, data)
    with suppress(ModelError):  # sent in the stream: of another status, `useChat` would show the raw body
        await exchange.wait_for_output(services.settings.heartbeat)
    return await _stream_answer(request, services, store, exchange)


async def resume_chat_message(
    request: Request,
    services: ServicesDep,
    store: StoreDep,
    caller: CallerDep,
    chat: Annotated[str, Path(**ID, description="The id or the key of the conversation.")],
) -> Response:
    """Stream the running answer of a conversation from its start. The status is 204 if no answer is running."""
    talk = await find_conversation_named(store, chat)
    name = None if talk is None else await _find_running(services, talk)
    if talk is None or name is None:
        return Response(status_code=204)
    exchange = await Exchanges(services, store, caller).find(name)
    return await _stream_answer(request, services, store, exchange)


async def _find_running(services: Services, talk: Conversation) -> str | None:
    """Return the id of the exchange whose answer is running, in this process or, by the log, in another."""
    running = services.answers.running(talk)
    known = [one for one in services.recent_exchanges.values() if running is not None and one.answer is running]
    if known:
        return str(known[-1].id)
    latest: list[Turn] = await talk.history(RECENT)
    for turn in reversed(latest):
        if turn.status == "pending" and turn.metadata.get(INPUT):
            return exchange_id(talk.id, turn.metadata[INPUT])
    return None


async def _stream_answer(request: Request, services: Services, store: Store, exchange: Exchange) -> Response:
    talk, _ = exchange.stored()
    memory = await _describe_memory(store, exchange)
    frames = UIMessageFrames(exchange.id, talk.id, memory)
    return responses.stream_reply(
        request, services, exchange, frames, responses.encode_data, frames.encode_error, HEADERS
    )


async def _describe_memory(store: Store, exchange: Exchange) -> dict[str, Any] | None:
    """Describe which turns were recalled for an answer, and how full its prompt is."""
    explanation = await _explanation(exchange)
    if explanation is None:
        return None
    scores = [one for block in explanation["blocks"] if block["kind"] == "recalled" for one in block["scores"]]
    recalled = [shown for one in scores if (shown := await _describe_recalled(store, one)) is not None]
    talk, _ = exchange.stored()
    return {
        "conversation": talk.id,
        "tokens": explanation["tokens"],
        "budget": explanation["budget"],
        "recalled": recalled,
        "explanation": f"/api/conversations/{talk.id}/requests",
    }


async def _explanation(exchange: Exchange) -> Mapping[str, Any] | None:
    if exchange.prompted is not None:
        return exchange.prompted.context.explanation.to_dict()
    talk, _ = exchange.stored()
    try:
        records = await talk.requests(1)
    except PermissionDenied:  # a prompt may quote what a participant cannot see
        return None
    return records[-1].explanation if records else None


async def _describe_recalled(store: Store, score: Mapping[str, Any]) -> dict[str, Any] | None:
    try:
        turn = await (await store.get(score["conversation"])).turn(score["turn"])
    except NotFound:
        return None
    shown = {"turn": turn.id, "conversation": turn.conversation, "role": turn.role, "actor": turn.actor}
    return {**shown, "created": turn.created, "text": turn.text[:EXCERPT], "score": score["score"]}
