"""Routes of stored chat completions: retrieve, list, change the metadata, delete, list the messages of a request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import Path, Query, Request
from starlette.responses import Response

from palaver.conversations.conversation import Conversation
from palaver.conversations.store import Store
from palaver.errors import ModelUnavailable, NotFound, TurnNotFound
from palaver.generation.events import Answered
from palaver.model import Turn
from palaver.server.auth import Caller
from palaver.server.compat import openai_items, responses
from palaver.server.compat.exchange import Exchange, exchange_metadata, input_turns, turns_after
from palaver.server.compat.exchanges import UNNAMED_TTL, Exchanges
from palaver.server.compat.openai_chat.frames import PREFIX, build_completion, encode_call
from palaver.server.compat.references import exchange_id
from palaver.server.compat.replay import replay_turns
from palaver.server.compat.request import invalid, require_object, result_text
from palaver.server.components import Services
from palaver.server.dependencies import CallerDep, Reply, ServicesDep, StoreDep

SHAPE = "openai-chat"
CHANGED = "chat_completions"  # metadata key on the conversation: metadata of completions that was changed later
SCANNED = 500  # unnamed conversations, latest first, that a list looks at
PAGE = 100
FILTER = re.compile(r"metadata\[([^\]]+)\]")
CompletionId = Annotated[str, Path(min_length=1, max_length=512, description="The id of the stored chat completion.")]
Order = Annotated[Literal["asc", "desc"], Query(description="`asc`: oldest first. `desc`: newest first.")]
Limit = Annotated[int, Query(ge=1, le=100, description="Maximum number of items.")]
After = Annotated[str | None, Query(max_length=512, description="The id of an item: only items that follow it.")]


async def get_chat_completion(
    services: ServicesDep, store: StoreDep, caller: CallerDep, completion: CompletionId
) -> Response:
    """Get a stored chat completion."""
    exchange = await _find(services, store, caller, completion)
    return Reply(await _build(exchange))


async def list_chat_completions(
    request: Request,
    services: ServicesDep,
    store: StoreDep,
    caller: CallerDep,
    limit: Limit = 20,
    order: Order = "asc",
    after: After = None,
    model: After = None,
) -> Response:
    """List the chat completions that were stored without a named conversation, from the caller's latest 500 of them.

    `metadata[key]=value` and `model` select among them.
    """
    wanted = {name[1]: value for key, value in request.query_params.items() if (name := FILTER.fullmatch(key))}
    found = []
    for id in await _stored_ids(store):
        completion = await _build_if_complete(await Exchanges(services, store, caller).find(id))
        if completion is not None and _is_wanted(completion, model, wanted):
            found.append(completion)
    found.sort(key=lambda one: (one["created"], one["id"]), reverse=order == "desc")
    return Reply(openai_items.list_page(found, limit, after))


async def update_chat_completion(
    request: Request, services: ServicesDep, store: StoreDep, caller: CallerDep, completion: CompletionId
) -> Response:
    """Replace the metadata of a stored chat completion."""
    body, _ = await responses.read_body(request)
    metadata = require_object("metadata", body.get("metadata"))
    if not all(isinstance(value, str) for value in metadata.values()):
        raise invalid("metadata", "must map names to text")
    exchange = await _find(services, store, caller, completion)
    talk, input = exchange.stored()
    info = await talk.refresh()
    changed = {**require_object(CHANGED, info.metadata.get(CHANGED)), input.id: dict(metadata)}
    await talk.update(metadata={**info.metadata, CHANGED: changed})
    return Reply(await _build(exchange))


async def delete_chat_completion(
    services: ServicesDep, store: StoreDep, caller: CallerDep, completion: CompletionId
) -> Response:
    """Delete a stored chat completion and its request. An unnamed conversation is deleted with its last completion."""
    exchange = await _find(services, store, caller, completion)
    services.recent_exchanges.pop(exchange.id, None)
    status = await responses.forget_exchange(exchange)
    return Reply({"id": completion, "object": "chat.completion.deleted", "deleted": True}, status)


async def list_chat_completion_messages(
    services: ServicesDep,
    store: StoreDep,
    caller: CallerDep,
    completion: CompletionId,
    limit: Limit = 20,
    order: Order = "asc",
    after: After = None,
) -> Response:
    """List the messages of the request of a stored chat completion."""
    exchange = await _find(services, store, caller, completion)
    found = [_message(turn) for turn in await input_turns(exchange)]
    if order == "desc":
        found.reverse()
    return Reply(openai_items.list_page(found, limit, after))


# ---- one completion ------------------------------------------------------------------------------------------------


async def _find(services: Services, store: Store, caller: Caller, completion: str) -> Exchange:
    exchange = await Exchanges(services, store, caller).find(completion.removeprefix(PREFIX))
    if exchange_metadata(exchange.stored()[1]).get("shape") != SHAPE:
        raise TurnNotFound(completion[:100])
    return exchange


async def _build(exchange: Exchange) -> dict[str, object]:
    completion = await _build_if_complete(exchange)
    if completion is None:
        raise ModelUnavailable("the model", "has not finished this answer yet")
    return completion


async def _build_if_complete(exchange: Exchange) -> dict[str, Any] | None:
    """Build a completion from the log. None if its answer is not complete."""
    talk, input = exchange.stored()
    events = replay_turns(input.id, await turns_after(talk, input))
    last = events[-1] if events else None
    if not isinstance(last, Answered):
        return None
    model = exchange_metadata(input).get("model") or last.turn.model or ""
    built = build_completion(f"{PREFIX}{exchange.id}", exchange.created, str(model), events)
    return {**built, "metadata": _metadata(talk, input)}


def _metadata(talk: Conversation, input: Turn) -> Mapping[str, object]:
    changed = talk.info.metadata.get(CHANGED)
    if isinstance(changed, Mapping) and isinstance(changed.get(input.id), Mapping):
        return dict(changed[input.id])
    given = exchange_metadata(input).get("metadata")
    return given if isinstance(given, Mapping) else {}


def _is_wanted(completion: Mapping[str, Any], model: str | None, metadata: Mapping[str, str]) -> bool:
    given = completion["metadata"]
    return model in (None, completion["model"]) and all(given.get(name) == value for name, value in metadata.items())


async def _stored_ids(store: Store) -> list[str]:
    """Return the ids of exchanges of this protocol in the caller's latest unnamed conversations."""
    found: list[str] = []
    cursor: str | None = None
    for _ in range(SCANNED // PAGE):
        page = await store.conversations(owner=store.scope.user or "", limit=PAGE, cursor=cursor)
        for info in page.items:
            if info.key is None and info.ttl == UNNAMED_TTL:
                found += await _ids_of(store, info.id)
        cursor = page.cursor
        if cursor is None:
            break
    return found


async def _ids_of(store: Store, conversation: str) -> list[str]:
    try:
        talk = await store.get(conversation)
        turns: list[Turn] = await talk.history(PAGE, roles=["user", "tool"], include_superseded=True)
    except NotFound:
        return []  # deleted in the meantime
    stored = [turn for turn in turns if turn.status == "complete" and exchange_metadata(turn).get("shape") == SHAPE]
    return [exchange_id(talk.id, turn.id) for turn in stored]


def _message(turn: Turn) -> dict[str, Any]:
    message: dict[str, Any] = {"id": turn.id, "role": turn.role, "content": turn.text}
    if turn.tool_calls:
        message["tool_calls"] = [encode_call(call) for call in turn.tool_calls]
    if turn.tool_results:
        result = turn.tool_results[0]
        message |= {"tool_call_id": result.id, "content": result_text(result.content)}
    return message
