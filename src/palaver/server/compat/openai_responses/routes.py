"""Routes of OpenAI's Responses: create, stream, retrieve, resume, cancel, delete, list input items."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from typing import Annotated, Any, Literal

from fastapi import Path, Query, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from palaver.core.rights import require_right
from palaver.errors import ModelUnavailable, PalaverError
from palaver.model import WRITE
from palaver.models.tokens import counter_for
from palaver.server.compat import errors as compat_errors
from palaver.server.compat import openai_items, responses
from palaver.server.compat.exchange import Exchange, exchange_metadata, follow_log, input_turns, turns_after
from palaver.server.compat.exchanges import Exchanges
from palaver.server.compat.openai_responses.frames import ResponseFrames, ResumedFrames, build_response
from palaver.server.compat.openai_responses.parse import PREFIX, echo_of, parse_request
from palaver.server.compat.replay import replay_turns
from palaver.server.compat.request import count_tokens
from palaver.server.dependencies import CallerDep, Reply, ServicesDep, StoreDep

STOP_SECONDS = 10.0  # how long a cancellation waits for the answer to end
ResponseId = Annotated[str, Path(min_length=1, max_length=512, description="The id of the response.")]
Order = Annotated[Literal["asc", "desc"], Query(description="`asc`: oldest first. `desc`: newest first.")]
Limit = Annotated[int, Query(ge=1, le=100, description="Maximum number of items.")]
After = Annotated[str | None, Query(max_length=512, description="The id of an item: only items that follow it.")]


async def create_response(request: Request, services: ServicesDep, store: StoreDep, caller: CallerDep) -> Response:
    """Answer in the format of OpenAI's Responses, streamed or as one object.

    `conversation`, `previous_response_id`, `metadata.conversation_id` or `X-Conversation-Id` names the conversation.
    Without any of them, the server creates a conversation, unless `store` is false.
    """
    body, data = await responses.read_body(request)
    ask = parse_request(body)
    if body.get("background") and not ask.stream:
        exchange = await responses.begin_exchange(request, services, store, caller, ask, data)
        if exchange.answer is not None:
            exchange.answer.is_background = True
        return responses.json_reply(exchange, _frames(exchange, echo_of(body)).response())
    exchange = await responses.open_exchange(request, services, store, caller, ask, data)
    frames = _frames(exchange, echo_of(body))
    if not ask.stream:
        return responses.json_reply(exchange, build_response(frames, await responses.collect_events(exchange)))
    return responses.stream_reply(request, services, exchange, frames, responses.encode_named, _error_encoder(frames))


async def get_response(
    request: Request,
    services: ServicesDep,
    store: StoreDep,
    caller: CallerDep,
    response: ResponseId,
    stream: Annotated[bool, Query(description="Send the events of the response, and follow it while it runs.")] = False,
    starting_after: Annotated[
        int | None, Query(ge=0, le=2**31, description="With `stream`: only events after this sequence number.")
    ] = None,
) -> Response:
    """Get a stored response. With `stream`, send its events again and, while it runs, the new ones."""
    exchange = await Exchanges(services, store, caller).find(response.removeprefix(PREFIX))
    frames = _frames(exchange, _stored_echo(exchange))
    if not stream:
        return Reply(await _stored_response(exchange, frames))
    rest = ResumedFrames(frames, -1 if starting_after is None else starting_after, exact=exchange.answer is not None)
    return responses.stream_reply(request, services, exchange, rest, responses.encode_named, _error_encoder(rest))


async def cancel_response(services: ServicesDep, store: StoreDep, caller: CallerDep, response: ResponseId) -> Response:
    """Stop a running answer. The text so far is kept."""
    require_right(store.scope, WRITE)
    exchange = await Exchanges(services, store, caller).find(response.removeprefix(PREFIX))
    talk, _ = exchange.stored()
    found = await _stored_response(exchange, _frames(exchange, _stored_echo(exchange)))
    if found["status"] == "in_progress":  # a finished response must not stop a newer answer of the conversation
        await talk.ask_to_stop()
        await _wait_for_end(exchange)
        found = await _stored_response(exchange, _frames(exchange, _stored_echo(exchange)))
    return Reply(found)


async def _wait_for_end(exchange: Exchange) -> None:
    """Wait until the generating process has stored the end of the answer. Bounded, as that process may be gone."""
    try:
        async with asyncio.timeout(STOP_SECONDS), aclosing(follow_log(*exchange.stored())) as events:
            async for _ in events:
                pass
    except (TimeoutError, ModelUnavailable):
        pass  # return it as it is stored now


async def delete_response(services: ServicesDep, store: StoreDep, caller: CallerDep, response: ResponseId) -> Response:
    """Delete a response and its input. An unnamed conversation is deleted with its last response, if the owner asks."""
    exchange = await Exchanges(services, store, caller).find(response.removeprefix(PREFIX))
    services.recent_exchanges.pop(exchange.id, None)
    status = await responses.forget_exchange(exchange)
    return Reply({"id": response, "object": "response", "deleted": True}, status)


async def list_input_items(
    services: ServicesDep,
    store: StoreDep,
    caller: CallerDep,
    response: ResponseId,
    limit: Limit = 20,
    order: Order = "desc",
    after: After = None,
) -> Response:
    """List the input items of a response."""
    exchange = await Exchanges(services, store, caller).find(response.removeprefix(PREFIX))
    found = openai_items.items_of_turns(await input_turns(exchange))
    if order == "desc":
        found.reverse()
    return Reply(openai_items.list_page(found, limit, after))


async def count_input_tokens(request: Request, store: StoreDep) -> Response:
    """Count the input tokens of a request with Palaver's own counter."""
    body, _ = await responses.read_body(request)
    ask = parse_request({**body, "model": body.get("model") or "offline"})
    tokens = await count_tokens(ask, counter_for(ask.model))
    return Reply({"object": "response.input_tokens", "input_tokens": tokens})


# ---- one response --------------------------------------------------------------------------------------------------


def _frames(exchange: Exchange, echo: Mapping[str, object]) -> ResponseFrames:
    return ResponseFrames(exchange.id, exchange.created, exchange.talk.id if exchange.talk is not None else None, echo)


def _stored_echo(exchange: Exchange) -> Mapping[str, object]:
    echo = exchange_metadata(exchange.stored()[1]).get("response")
    return echo if isinstance(echo, Mapping) else {}


def _error_encoder(frames: ResponseFrames | ResumedFrames) -> Any:
    return lambda body: frames.encode_error(body["error"])


async def _stored_response(exchange: Exchange, frames: ResponseFrames) -> dict[str, object]:
    """Build a response from the log. It has failed if it has no end there and no process is generating it."""
    talk, input = exchange.stored()
    events = replay_turns(input.id, await turns_after(talk, input))
    found = build_response(frames, events)
    is_lost = not events and exchange.never_started
    if exchange.failed or (found["status"] == "in_progress" and is_lost):
        frames.encode_error({"message": _failure_message(exchange)})
        return frames.response()
    return found


def _failure_message(exchange: Exchange) -> str:
    """Return why an answer failed, if this process knows."""
    problem = exchange.answer.problem if exchange.answer is not None else None
    if not isinstance(problem, PalaverError | HTTPException):
        return "The answer failed"
    return str(compat_errors.problem_details(problem)["detail"])
