"""The AI SDK's chat: what `useChat` posts, and the stream that it resumes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import Path, Request
from starlette.responses import Response

from palaver.conversations.conversation import Conversation
from palaver.conversations.store import Store
from palaver.errors import Gone, NotFound, PermissionDenied
from palaver.model import Turn
from palaver.server.compat import responses
from palaver.server.compat.ai_sdk import format as ai_sdk
from palaver.server.compat.exchange import Exchange, Exchanges, conversation_known
from palaver.server.compat.replay import INPUT
from palaver.server.components import Services
from palaver.server.rest.dependencies import ID, CallerOf, ServicesOf, StoreOf

EXCERPT = 500  # characters of a turn that was recalled
RECENT = 20


async def create_chat_message(request: Request, services: ServicesOf, store: StoreOf, caller: CallerOf) -> Response:
    """An answer as the AI SDK's UI message stream, in the conversation that `id` names; a new name makes one.

    `messages` may be the whole thread, or `message` the last one. Hanging up does not end the answer: resume it at
    `/api/chat/{id}/stream`, or stop it at `/api/conversations/{id}/stop`.
    """
    body, data = await responses.body_of(request)
    ask = ai_sdk.ask_of(body)
    exchange = await responses.opened(request, services, store, caller, ask, data)
    return await _streamed(request, services, store, exchange)


async def resume_chat_message(
    request: Request, services: ServicesOf, store: StoreOf, caller: CallerOf, chat: Annotated[str, Path(**ID)]
) -> Response:
    """The answer that is being made in a conversation, from its start; 204 when there is none."""
    talk = await conversation_known(store, chat)
    name = None if talk is None else await _in_the_making(services, talk)
    if talk is None or name is None:
        return Response(status_code=204)
    exchange = await Exchanges(services, store, caller).named(name)
    return await _streamed(request, services, store, exchange)


async def _in_the_making(services: Services, talk: Conversation) -> str | None:
    """The exchange whose answer is being made: here, or, by the log, elsewhere."""
    running = services.answers.running(talk)
    known = [one for one in services.recent.values() if running is not None and one.answer is running]
    if known:
        return str(known[-1].id)
    latest: list[Turn] = await talk.history(RECENT)
    for turn in reversed(latest):
        if turn.status == "pending" and turn.metadata.get(INPUT):
            return f"{talk.id}{turn.metadata[INPUT]}"
    return None


async def _streamed(request: Request, services: Services, store: Store, exchange: Exchange) -> Response:
    assert exchange.talk is not None
    assert exchange.input is not None
    memory = await _memory(store, exchange)
    frames = ai_sdk.Frames(exchange.id, exchange.talk.id, memory)
    return responses.streamed(request, services, exchange, frames, responses.data_frame, frames.fail, ai_sdk.HEADERS)


async def _memory(store: Store, exchange: Exchange) -> dict[str, Any] | None:
    """What was recalled for an answer, and how full its prompt is."""
    explanation = await _explanation(exchange)
    if explanation is None:
        return None
    scores = [one for block in explanation["blocks"] if block["kind"] == "recalled" for one in block["scores"]]
    recalled = [shown for one in scores if (shown := await _recalled(store, one)) is not None]
    assert exchange.talk is not None
    return {
        "conversation": exchange.talk.id,
        "tokens": explanation["tokens"],
        "budget": explanation["budget"],
        "recalled": recalled,
        "explanation": f"/api/conversations/{exchange.talk.id}/requests",
    }


async def _explanation(exchange: Exchange) -> Mapping[str, Any] | None:
    if exchange.prompted is not None:
        return exchange.prompted.context.explanation.to_dict()
    assert exchange.talk is not None
    try:
        records = await exchange.talk.requests(1)
    except PermissionDenied:  # a prompt may quote what a participant cannot see
        return None
    return records[-1].explanation if records else None


async def _recalled(store: Store, score: Mapping[str, Any]) -> dict[str, Any] | None:
    try:
        turn = await (await store.get(score["conversation"])).turn(score["turn"])
    except (NotFound, Gone):
        return None
    shown = {"turn": turn.id, "conversation": turn.conversation, "role": turn.role, "actor": turn.actor}
    return {**shown, "created": turn.created, "text": turn.text[:EXCERPT], "score": score["score"]}
