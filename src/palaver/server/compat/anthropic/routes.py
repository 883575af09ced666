"""Routes of Anthropic's Messages."""

from __future__ import annotations

from dataclasses import replace

from fastapi import Request
from starlette.responses import Response

from palaver.conversations.internals import generation_of
from palaver.models.tokens import counter_for
from palaver.server.compat import responses
from palaver.server.compat.anthropic.frames import MessageFrames, build_message
from palaver.server.compat.anthropic.parse import parse_request
from palaver.server.compat.context_edits import report_cleared
from palaver.server.compat.exchange import Exchange
from palaver.server.compat.references import find_conversation_named
from palaver.server.compat.request import ClientRequest, count_tokens
from palaver.server.dependencies import CallerDep, Reply, ServicesDep, StoreDep

PREFIX = "msg_"
BUDGET = 32_000  # tokens of a context, if none is configured


async def create_message(request: Request, services: ServicesDep, store: StoreDep, caller: CallerDep) -> Response:
    """Answer in the format of Anthropic's Messages, streamed or as one object.

    With `X-Conversation-Id`, or `metadata.conversation_id`, the conversation is stored: send only the new message,
    or the whole history, in which the server recognises the stored turns. Without a conversation, the request is
    passed to the model, and nothing is stored.
    """
    body, data = await responses.read_body(request)
    ask = parse_request(body)
    exchange = await responses.open_exchange(request, services, store, caller, ask, data)
    frames = _frames(exchange, ask)
    if not ask.stream:
        return responses.json_reply(exchange, build_message(frames, await responses.collect_events(exchange)))
    return responses.stream_reply(
        request, services, exchange, frames, responses.encode_named, lambda error: [{**error, "type": "error"}]
    )


def _frames(exchange: Exchange, ask: ClientRequest) -> MessageFrames:
    applied = [*map(dict, ask.edits.applied), *report_cleared(exchange.cleared)] if ask.edits.is_reported else None
    is_paused = exchange.compaction is not None and ask.edits.pause
    return MessageFrames(PREFIX + exchange.id, ask.model, exchange.compaction, is_paused, applied)


async def count_message_tokens(request: Request, store: StoreDep) -> Response:
    """Count the tokens of a prompt with Palaver's counter. In a conversation, the context that it adds is included."""
    body, _ = await responses.read_body(request)
    ask = parse_request(body)
    count = counter_for(ask.model)
    name = ask.conversation or request.headers.get(responses.CONVERSATION)
    talk = await find_conversation_named(store, name) if name else None
    if talk is None:
        return Reply({"input_tokens": await count_tokens(ask, count)})
    otherwise = {"token_budget": BUDGET}
    options = generation_of(store).context_options(talk.info, ask.context, otherwise=otherwise)
    context = await talk.build_context(
        **options, message=ask.said[-1].text or None, instructions=ask.instructions, model=ask.model
    )
    beyond = replace(ask, instructions=None, said=(replace(ask.said[-1], content=tuple(ask.said[-1].files)),))
    return Reply({"input_tokens": context.tokens + await count_tokens(beyond, count)})
