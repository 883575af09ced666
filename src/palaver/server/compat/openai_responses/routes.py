"""OpenAI's Responses: create, stream, retrieve, resume, cancel, delete, input items."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing, suppress
from typing import Annotated, Any, Literal

from fastapi import Path, Query, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response

from palaver.errors import ModelUnavailable, PalaverError, PermissionDenied
from palaver.model import Turn
from palaver.models.tokens import counter_for
from palaver.server.compat import errors as compat_errors
from palaver.server.compat import openai_items, responses
from palaver.server.compat.exchange import Exchange, Exchanges, behind, followed, noted_on, seconds_left
from palaver.server.compat.openai_responses import format as openai_responses
from palaver.server.compat.openai_responses.format import PREFIX, Frames, Rest
from palaver.server.compat.replay import INPUT, from_turns
from palaver.server.compat.request import MAX_MESSAGES
from palaver.server.rest.dependencies import CallerOf, Reply, ServicesOf, StoreOf

STOP_SECONDS = 10.0
ResponseId = Annotated[str, Path(min_length=1, max_length=512, description="The id of a response.")]
Order = Annotated[Literal["asc", "desc"], Query()]
Limit = Annotated[int, Query(ge=1, le=100)]
After = Annotated[str | None, Query(max_length=512)]


async def create_response(request: Request, services: ServicesOf, store: StoreOf, caller: CallerOf) -> Response:
    """An answer in the form of OpenAI's Responses, streamed or whole.

    `conversation`, `previous_response_id`, `metadata.conversation_id` or `X-Conversation-Id` say what it belongs to.
    Without any of them it begins a conversation of its own, unless `store` is false.
    """
    body, data = await responses.body_of(request)
    ask = openai_responses.ask_of(body)
    in_background = bool(body.get("background")) and not ask.stream
    exchange = await responses.opened(request, services, store, caller, ask, data, waits=not in_background)
    frames = _frames(exchange, ask.kept["response"])
    if in_background:
        return responses.whole(exchange, frames.response())
    if not ask.stream:
        return responses.whole(exchange, openai_responses.response(frames, await responses.heard(exchange)))
    return responses.streamed(request, services, exchange, frames, responses.named_frame, _failing(frames))


async def get_response(
    request: Request,
    services: ServicesOf,
    store: StoreOf,
    caller: CallerOf,
    response: ResponseId,
    stream: bool = False,
    starting_after: Annotated[int | None, Query(ge=0, le=2**31)] = None,
) -> Response:
    """A stored response; with `stream` its events again, after the one with that number, and then live."""
    exchange = await Exchanges(services, store, caller).named(response.removeprefix(PREFIX))
    frames = _frames(exchange, _echo(exchange))
    if not stream:
        return Reply(await _as_stored(exchange, frames))
    rest = Rest(frames, -1 if starting_after is None else starting_after, exact=exchange.answer is not None)
    return responses.streamed(request, services, exchange, rest, responses.named_frame, _failing(rest))


async def cancel_response(services: ServicesOf, store: StoreOf, caller: CallerOf, response: ResponseId) -> Response:
    """Stop an answer that is being made. What came is kept."""
    exchange = await Exchanges(services, store, caller).named(response.removeprefix(PREFIX))
    assert exchange.talk is not None
    found = await _as_stored(exchange, _frames(exchange, _echo(exchange)))
    if found["status"] == "in_progress":  # else it would stop somebody else's
        await exchange.talk.ask_to_stop()
        await _stopped(exchange)
        found = await _as_stored(exchange, _frames(exchange, _echo(exchange)))
    return Reply(found)


async def _stopped(exchange: Exchange) -> None:
    """Wait until the process that makes the answer has stored its end; not for ever, as that one may be gone."""
    assert exchange.talk is not None
    assert exchange.input is not None
    try:
        async with asyncio.timeout(STOP_SECONDS), aclosing(followed(exchange.talk, exchange.input)) as beats:
            async for _ in beats:
                pass
    except (TimeoutError, ModelUnavailable):
        pass  # it is shown as it is stored now


async def delete_response(services: ServicesOf, store: StoreOf, caller: CallerOf, response: ResponseId) -> Response:
    """Forget an answer and what it was asked with; with the last of them also the conversation that nobody named,
    if the caller owns it."""
    exchange = await Exchanges(services, store, caller).named(response.removeprefix(PREFIX))
    talk, input = exchange.talk, exchange.input
    assert talk is not None
    assert input is not None
    mine = [turn for turn in await behind(talk, input) if turn.metadata.get(INPUT) == input.id]
    services.recent.pop(exchange.id, None)
    status = await responses.forgotten(talk, [*mine, *await _asked_with(exchange)])
    if talk.info.ttl is not None and talk.info.key is None and not await talk.history(1):
        with suppress(PermissionDenied):  # the empty conversation of somebody else expires by itself
            status = max(status, await responses.forgotten(talk, [None]))
    return Reply({"id": response, "object": "response", "deleted": True}, status)


async def list_input_items(
    services: ServicesOf,
    store: StoreOf,
    caller: CallerOf,
    response: ResponseId,
    limit: Limit = 20,
    order: Order = "desc",
    after: After = None,
) -> Response:
    """What a response was asked with."""
    exchange = await Exchanges(services, store, caller).named(response.removeprefix(PREFIX))
    found = openai_items.of_turns(await _asked_with(exchange))
    if order == "desc":
        found.reverse()
    places = [n for n, item in enumerate(found, 1) if item["id"] == after]
    return Reply(openai_items.listing(found[places[0] if places else 0 :], limit))


async def count_input_tokens(request: Request, store: StoreOf) -> Response:
    """How many tokens the input of a request has, by our own count."""
    body, _ = await responses.body_of(request)
    ask = openai_responses.ask_of({**body, "model": body.get("model") or "offline"})
    return Reply({"object": "response.input_tokens", "input_tokens": responses.counted(ask, counter_for(ask.model))})


# ---- one response --------------------------------------------------------------------------------------------------


def _frames(exchange: Exchange, echo: Mapping[str, Any]) -> Frames:
    return Frames(exchange.id, exchange.created, exchange.talk.id if exchange.talk is not None else None, echo)


def _echo(exchange: Exchange) -> Mapping[str, Any]:
    assert exchange.input is not None
    echo = noted_on(exchange.input).get("response")
    return echo if isinstance(echo, Mapping) else {}


def _failing(frames: Frames | Rest) -> Any:
    return lambda body: frames.fail(body["error"])


async def _as_stored(exchange: Exchange, frames: Frames) -> dict[str, Any]:
    """As far as it is in the log. One that nobody makes any more, and that has no end there, has failed."""
    assert exchange.talk is not None
    assert exchange.input is not None
    beats = from_turns(exchange.input.id, await behind(exchange.talk, exchange.input))
    found = openai_responses.response(frames, beats)
    never_began = exchange.answer is None and not beats and seconds_left(exchange.input) <= 0
    if exchange.failed or (found["status"] == "in_progress" and never_began):
        frames.fail({"message": _why(exchange)})
        return frames.response()
    return found


def _why(exchange: Exchange) -> str:
    """What an answer failed with, where this process knows it."""
    problem = exchange.answer.problem if exchange.answer is not None else None
    if not isinstance(problem, PalaverError | HTTPException):
        return "The answer failed"
    return str(compat_errors.details_of(problem)["detail"])


async def _asked_with(exchange: Exchange) -> list[Turn]:
    """The turns that came with a request."""
    assert exchange.talk is not None
    assert exchange.input is not None
    own = noted_on(exchange.input).get("own")
    if not isinstance(own, int) or not 1 < own <= MAX_MESSAGES:
        return [exchange.input]
    # They came right before it, and may be of a branch that is not the active one.
    before: list[Turn] = await exchange.talk.history(own - 1, before=exchange.input, include_superseded=True)
    return [*(turn for turn in before if turn.seq > exchange.input.seq - own), exchange.input]
