"""Anthropic's Messages."""

from __future__ import annotations

from dataclasses import replace

from fastapi import Request
from starlette.responses import Response

from palaver.models.tokens import counter_for
from palaver.server.compat import responses
from palaver.server.compat.anthropic import format as anthropic
from palaver.server.compat.exchange import conversation_known
from palaver.server.rest.dependencies import CallerOf, Reply, ServicesOf, StoreOf

PREFIX = "msg_"


async def create_message(request: Request, services: ServicesOf, store: StoreOf, caller: CallerOf) -> Response:
    """An answer in the form of Anthropic's Messages, streamed or whole.

    With `X-Conversation-Id`, or `metadata.conversation_id`, it has memory: only the new message is needed, and a whole
    history is recognised by content. Without, it is passed on, and nothing is stored.
    """
    body, data = await responses.body_of(request)
    ask = anthropic.ask_of(body)
    exchange = await responses.opened(request, services, store, caller, ask, data)
    frames = anthropic.Frames(PREFIX + exchange.id, ask.model)
    if not ask.stream:
        return responses.whole(exchange, anthropic.message(frames, await responses.heard(exchange)))
    return responses.streamed(
        request, services, exchange, frames, responses.named_frame, lambda error: [{**error, "type": "error"}]
    )


async def count_message_tokens(request: Request, store: StoreOf) -> Response:
    """How many tokens a prompt would have, by our own count; in a conversation, with what memory adds to it."""
    body, _ = await responses.body_of(request)
    ask = anthropic.ask_of(body)
    count = counter_for(ask.model)
    name = ask.conversation or request.headers.get(responses.CONVERSATION)
    talk = await conversation_known(store, name) if name else None
    if talk is None:
        return Reply({"input_tokens": responses.counted(ask, count)})
    budget = store.parts.generation.settings.token_budget or BUDGET
    context = await talk.build_context(
        budget, message=ask.said[-1].text or None, instructions=ask.instructions, model=ask.model
    )
    beside = replace(ask, instructions=None, said=(replace(ask.said[-1], content=tuple(ask.said[-1].files)),))
    return Reply({"input_tokens": context.tokens + responses.counted(beside, count)})


BUDGET = 32_000  # tokens of a context, where nobody says
