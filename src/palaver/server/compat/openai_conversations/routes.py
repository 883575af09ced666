"""Routes of OpenAI's Conversations and their items."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, cast

from fastapi import Depends, Path, Query, Request
from starlette.responses import Response

from palaver.conversations.arguments import MAX_READ
from palaver.conversations.conversation import Conversation
from palaver.core.rights import actor_of_edit, require_right
from palaver.core.turn_draft import referenced_attachments
from palaver.core.turn_options import TurnInput
from palaver.errors import TurnNotFound
from palaver.generation.tool_calls import CLIENT_CALLS
from palaver.model import SYSTEM, Turn
from palaver.ports.models import JsonObject
from palaver.server.attachment_copies import copy_content
from palaver.server.compat import openai_items, responses
from palaver.server.compat.references import CONVERSATION_PREFIX
from palaver.server.compat.request import ClientMessage, invalid, require_list, require_object
from palaver.server.compat.sdk_retries import COUNT, fingerprint, is_retry
from palaver.server.compat.turns import draft_message
from palaver.server.dependencies import CallerDep, Reply, ServicesDep, StoreDep

MAX_ITEMS = 20  # in one request
ItemId = Annotated[str, Path(min_length=1, max_length=512, description="The id of the item.")]
Limit = Annotated[int, Query(ge=1, le=100, description="Maximum number of items.")]
Order = Annotated[Literal["asc", "desc"], Query(description="`asc`: oldest first. `desc`: newest first.")]
After = Annotated[str | None, Query(max_length=512, description="The id of an item: only items that follow it.")]


async def _get_conversation(
    store: StoreDep,
    conversation: Annotated[str, Path(min_length=1, max_length=512, description="The id of the conversation.")],
) -> Conversation:
    return await store.get(conversation.removeprefix(CONVERSATION_PREFIX))


ConversationDep = Annotated[Conversation, Depends(_get_conversation)]


@dataclass(frozen=True, slots=True)
class StoredReply:
    """The reply to a request that stored something. A retry gets the same reply."""

    value: JsonObject
    ended: float = field(default_factory=time.monotonic)


# ---- conversations -------------------------------------------------------------------------------------------------


async def create_openai_conversation(
    request: Request, services: ServicesDep, store: StoreDep, caller: CallerDep
) -> Response:
    """Create a conversation, with up to 20 items."""
    body, data = await responses.read_body(request)
    said = _parse_items(body.get("items") or [])
    metadata = _metadata(body)

    async def create() -> StoredReply:
        if any(role is not None for role, _ in said):  # refused before the conversation is created
            require_right(store.scope, SYSTEM)
        talk = await store.conversation(metadata=metadata)
        await _store_items(talk, said)
        return StoredReply(_describe(talk))

    return await _run_once(request, services, caller, data, create)


async def get_openai_conversation(talk: ConversationDep) -> Response:
    """Get a conversation."""
    return Reply(_describe(talk))


async def update_openai_conversation(request: Request, talk: ConversationDep) -> Response:
    """Replace the metadata of a conversation."""
    body, _ = await responses.read_body(request)
    if body.get("metadata") is None:  # without this check, a request without a body would clear it
        raise invalid("metadata", "must be an object")
    await talk.update(metadata=_metadata(body))
    return Reply(_describe(talk))


async def delete_openai_conversation(talk: ConversationDep) -> Response:
    """Delete a conversation permanently."""
    status = await responses.forget_turns(talk, [None])
    return Reply({"id": f"{CONVERSATION_PREFIX}{talk.id}", "object": "conversation.deleted", "deleted": True}, status)


def _describe(talk: Conversation) -> JsonObject:
    return {
        "id": f"{CONVERSATION_PREFIX}{talk.id}",
        "object": "conversation",
        "created_at": int(talk.info.created.timestamp()),
        "metadata": dict(talk.info.metadata),
    }


def _metadata(body: Mapping[str, Any]) -> JsonObject:
    return dict(require_object("metadata", body.get("metadata")))


# ---- items ---------------------------------------------------------------------------------------------------------


async def create_items(request: Request, services: ServicesDep, caller: CallerDep, talk: ConversationDep) -> Response:
    """Store up to 20 items in one transaction, without calling a model."""
    body, data = await responses.read_body(request)
    said = _parse_items(body.get("items"))

    async def create() -> StoredReply:
        found = openai_items.items_of_turns(await _store_items(talk, said))
        return StoredReply(openai_items.list_page(found, len(found)))

    return await _run_once(request, services, caller, data, create)


async def list_items(talk: ConversationDep, limit: Limit = 20, order: Order = "desc", after: After = None) -> Response:
    """List the items of the active branch, page by page."""
    found = await (_ascending if order == "asc" else _descending)(talk, limit + 1, after)
    return Reply(openai_items.list_page(found, limit))


async def get_item(talk: ConversationDep, item: ItemId) -> Response:
    """Get an item."""
    return Reply((await _find_item(talk, item))[1])


async def delete_item(store: StoreDep, talk: ConversationDep, item: ItemId) -> Response:
    """Delete an item permanently. A turn with several items keeps the others."""
    turn, _ = await _find_item(talk, item)
    rest = _remaining_fields(turn, openai_items.parse_item_id(item)[1])
    if rest is not None:
        content = rest.pop("content")
        named = [one for one in turn.attachments if one.id in referenced_attachments(content)]
        content, files = await copy_content(talk, content, named)
        actor = actor_of_edit(store.scope, turn)
        await talk.append(turn.role, content, replaces=turn, actor=actor, attachments=files, **rest)
    return Reply(_describe(talk), await responses.forget_turns(talk, [turn]))


async def _find_item(talk: Conversation, id: str) -> tuple[Turn, JsonObject]:
    turn = await talk.turn(openai_items.parse_item_id(id)[0])
    for one in openai_items.items_of_turn(turn) if turn.active and turn.status != "forgotten" else ():
        if one["id"] == id:
            return turn, one
    raise TurnNotFound(id)


def _remaining_fields(turn: Turn, number: int | None) -> JsonObject | None:
    """Return the fields of a turn without one of its items. None: nothing is left."""
    if len(openai_items.items_of_turn(turn)) == 1:
        return None
    kept = range(max(len(turn.tool_calls), len(turn.tool_results)))
    calls = [call for n, call in zip(kept, turn.tool_calls, strict=False) if n != number]
    results = [result for n, result in zip(kept, turn.tool_results, strict=False) if n != number]
    left = {call.id for call in calls}
    theirs = [id for id in turn.metadata.get(CLIENT_CALLS, ()) if id in left]
    content = "" if number is None else turn.content
    metadata = {**turn.metadata, **({CLIENT_CALLS: theirs} if theirs else {})}
    return {"content": content, "tool_calls": calls, "tool_results": results, "metadata": metadata}


# ---- pages ---------------------------------------------------------------------------------------------------------


async def _ascending(talk: Conversation, most: int, after: str | None) -> list[JsonObject]:
    if after is None:
        return openai_items.items_of_turns(await _first_turns(talk, most))[:most]
    turn, own = await _own_items(talk, after)
    place = next(n for n, item in enumerate(own, 1) if item["id"] == after)
    return [*own[place:], *openai_items.items_of_turns(await talk.history(most, after=turn))][:most]


async def _descending(talk: Conversation, most: int, after: str | None) -> list[JsonObject]:
    if after is None:
        return openai_items.items_of_turns(await talk.history(most))[::-1][:most]
    turn, own = await _own_items(talk, after)
    place = next(n for n, item in enumerate(own) if item["id"] == after)
    return [*openai_items.items_of_turns(await talk.history(most, before=turn)), *own[:place]][::-1][:most]


async def _own_items(talk: Conversation, id: str) -> tuple[Turn, list[JsonObject]]:
    turn, _ = await _find_item(talk, id)
    return turn, openai_items.items_of_turn(turn)


async def _first_turns(talk: Conversation, most: int) -> list[Turn]:
    """Return the first turns of the active branch. The log names the first turn; if it is gone, all are read."""
    for event in await talk.audit(kinds=("append", "open"), limit=1):
        turn = await _find_turn(talk, event.turn or "")
        if turn is not None and turn.active:
            following: list[Turn] = await talk.history(most, after=turn)
            return [turn, *following]
    found: list[Turn] = await talk.history(MAX_READ)
    return found[:most]


async def _find_turn(talk: Conversation, id: str) -> Turn | None:
    try:
        return await talk.turn(id)
    except TurnNotFound:
        return None


# ---- storing -------------------------------------------------------------------------------------------------------


def _parse_items(given: Any) -> list[tuple[str | None, ClientMessage]]:
    """Parse items as messages, each with its role if it is an instruction."""
    if len(require_list("items", given)) > MAX_ITEMS:
        raise invalid("items", f"has {len(given)} items; the limit is {MAX_ITEMS}")
    said: list[tuple[str | None, ClientMessage]] = []
    run: list[Mapping[str, Any]] = []
    for item in [*given, None]:
        role = None if item is None or (item.get("type") or "message") != "message" else item.get("role")
        if item is not None and role not in openai_items.INSTRUCTING:
            run.append(item)
            continue
        said += [(None, one) for one in openai_items.parse_items(run, "items")]
        run = []
        if item is not None:
            (text,) = openai_items.collect_instructions([item], "items")
            said.append((role, ClientMessage(role="user", content=text)))
    return said


async def _store_items(talk: Conversation, said: list[tuple[str | None, ClientMessage]]) -> list[Turn]:
    drafts = []
    for role, one in said:
        draft = await draft_message(talk, one)
        if role is not None:
            draft |= {"role": "system", "metadata": {"role": role}}
        drafts.append(draft)
    return await talk.append_many(cast("list[TurnInput]", drafts))


async def _run_once(request: Request, services: ServicesDep, caller: CallerDep, data: bytes, create: Any) -> Response:
    """Run `create`, unless this request is a retry of one that was stored."""
    mark = fingerprint(request.url.path, data)
    key = (caller.scope.tenant, caller.scope.user or "", caller.name, "", mark)
    made, _ = await services.retries.run_once(key, is_retry(request.headers.get(COUNT)), create)
    return Reply(made.value)
