"""OpenAI's Conversations and their items."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, cast

from fastapi import Depends, Path, Query, Request
from starlette.responses import Response

from palaver.conversations.arguments import MAX_READ
from palaver.conversations.conversation import Conversation
from palaver.core.turn_draft import referenced_attachments
from palaver.core.turn_options import TurnInput
from palaver.errors import TurnNotFound
from palaver.generation.tool_calls import CLIENT_CALLS
from palaver.model import SYSTEM, Turn
from palaver.server.compat import openai_items, responses
from palaver.server.compat.exchange import CONVERSATION_PREFIX
from palaver.server.compat.request import Said, bad, listed, object_in
from palaver.server.compat.sdk_retries import COUNT, fingerprint, is_retry
from palaver.server.compat.turns import copied, draft_of
from palaver.server.rest.dependencies import CallerOf, Reply, ServicesOf, StoreOf

MOST = 20  # items in one request
ItemId = Annotated[str, Path(min_length=1, max_length=512, description="The id of an item.")]
Limit = Annotated[int, Query(ge=1, le=100)]
Order = Annotated[Literal["asc", "desc"], Query()]
After = Annotated[str | None, Query(max_length=512, description="The id of an item.")]


async def _conversation_of(
    store: StoreOf, conversation: Annotated[str, Path(min_length=1, max_length=512)]
) -> Conversation:
    return await store.get(conversation.removeprefix(CONVERSATION_PREFIX))


Talk = Annotated[Conversation, Depends(_conversation_of)]


@dataclass(frozen=True, slots=True)
class Made:
    """What a request has made; a retry gets the same again."""

    value: dict[str, Any]
    ended: float = field(default_factory=time.monotonic)


# ---- conversations -------------------------------------------------------------------------------------------------


async def create_openai_conversation(
    request: Request, services: ServicesOf, store: StoreOf, caller: CallerOf
) -> Response:
    """A new conversation, with up to 20 items."""
    body, data = await responses.body_of(request)
    said = _said(body.get("items") or [])
    metadata = _metadata(body)

    async def make() -> Made:
        if any(role is not None for role, _ in said):  # refused before the conversation is created
            store.require(SYSTEM)
        talk = await store.conversation(metadata=metadata)
        await _store(talk, said)
        return Made(_shown(talk))

    return await _once(request, services, caller, data, make)


async def get_openai_conversation(talk: Talk) -> Response:
    """What is known of one."""
    return Reply(_shown(talk))


async def update_openai_conversation(request: Request, talk: Talk) -> Response:
    """Other metadata for it."""
    body, _ = await responses.body_of(request)
    await talk.update(metadata=_metadata(body))
    return Reply(_shown(talk))


async def delete_openai_conversation(talk: Talk) -> Response:
    """Delete it for good."""
    status = await responses.forgotten(talk, [None])
    return Reply({"id": f"{CONVERSATION_PREFIX}{talk.id}", "object": "conversation.deleted", "deleted": True}, status)


def _shown(talk: Conversation) -> dict[str, Any]:
    return {
        "id": f"{CONVERSATION_PREFIX}{talk.id}",
        "object": "conversation",
        "created_at": int(talk.info.created.timestamp()),
        "metadata": dict(talk.info.metadata),
    }


def _metadata(body: Mapping[str, Any]) -> dict[str, Any]:
    return dict(object_in("metadata", body.get("metadata")))


# ---- items ---------------------------------------------------------------------------------------------------------


async def create_items(request: Request, services: ServicesOf, caller: CallerOf, talk: Talk) -> Response:
    """Store up to 20 items, in one transaction. No model is asked."""
    body, data = await responses.body_of(request)
    said = _said(body.get("items"))

    async def make() -> Made:
        found = openai_items.of_turns(await _store(talk, said))
        return Made(openai_items.listing(found, len(found)))

    return await _once(request, services, caller, data, make)


async def list_items(talk: Talk, limit: Limit = 20, order: Order = "desc", after: After = None) -> Response:
    """The items of the active view, a page at a time."""
    found = await (_ascending if order == "asc" else _descending)(talk, limit + 1, after)
    return Reply(openai_items.listing(found, limit))


async def get_item(talk: Talk, item: ItemId) -> Response:
    """One item."""
    return Reply((await _found(talk, item))[1])


async def delete_item(talk: Talk, item: ItemId) -> Response:
    """Forget an item for good. A turn that is made of several keeps the others."""
    turn, _ = await _found(talk, item)
    rest = _without(turn, openai_items.named(item)[1])
    if rest is not None:
        content = rest.pop("content")
        named = [one for one in turn.attachments if one.id in referenced_attachments(content)]
        content, files = await copied(talk, content, named)
        await talk.append(turn.role, content, replaces=turn, actor=turn.actor, attachments=files, **rest)
    return Reply(_shown(talk), await responses.forgotten(talk, [turn]))


async def _found(talk: Conversation, id: str) -> tuple[Turn, dict[str, Any]]:
    turn = await talk.turn(openai_items.named(id)[0])
    for one in openai_items.of_turn(turn) if turn.active and turn.status != "forgotten" else ():
        if one["id"] == id:
            return turn, one
    raise TurnNotFound(id)


def _without(turn: Turn, number: int | None) -> dict[str, Any] | None:
    """What remains of a turn without one of its items; None: nothing."""
    if len(openai_items.of_turn(turn)) == 1:
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


async def _ascending(talk: Conversation, most: int, after: str | None) -> list[dict[str, Any]]:
    if after is None:
        return openai_items.of_turns(await _first_turns(talk, most))[:most]
    turn, own = await _own_items(talk, after)
    place = next(n for n, item in enumerate(own, 1) if item["id"] == after)
    return [*own[place:], *openai_items.of_turns(await talk.history(most, after=turn))][:most]


async def _descending(talk: Conversation, most: int, after: str | None) -> list[dict[str, Any]]:
    if after is None:
        return openai_items.of_turns(await talk.history(most))[::-1][:most]
    turn, own = await _own_items(talk, after)
    place = next(n for n, item in enumerate(own) if item["id"] == after)
    return [*openai_items.of_turns(await talk.history(most, before=turn)), *own[:place]][::-1][:most]


async def _own_items(talk: Conversation, id: str) -> tuple[Turn, list[dict[str, Any]]]:
    turn, _ = await _found(talk, id)
    return turn, openai_items.of_turn(turn)


async def _first_turns(talk: Conversation, most: int) -> list[Turn]:
    """The beginning of the active view. The log knows the first turn; where that is no longer there, all are read."""
    for event in await talk.audit(kinds=("append", "open"), limit=1):
        turn = await _turn(talk, event.turn or "")
        if turn is not None and turn.active:
            following: list[Turn] = await talk.history(most, after=turn)
            return [turn, *following]
    found: list[Turn] = await talk.history(MAX_READ)
    return found[:most]


async def _turn(talk: Conversation, id: str) -> Turn | None:
    try:
        return await talk.turn(id)
    except TurnNotFound:
        return None


# ---- storing -------------------------------------------------------------------------------------------------------


def _said(given: Any) -> list[tuple[str | None, Said]]:
    """Items as messages, each with the role of an instruction where it is one."""
    if len(listed("items", given)) > MOST:
        raise bad("items", f"holds {len(given)} items, and {MOST} is the limit")
    said: list[tuple[str | None, Said]] = []
    run: list[Mapping[str, Any]] = []
    for item in [*given, None]:
        role = None if item is None or (item.get("type") or "message") != "message" else item.get("role")
        if item is not None and role not in openai_items.INSTRUCTING:
            run.append(item)
            continue
        said += [(None, one) for one in openai_items.said_of(run, "items")]
        run = []
        if item is not None:
            (text,) = openai_items.instructions_of([item], "items")
            said.append((role, Said(role="user", content=text)))
    return said


async def _store(talk: Conversation, said: list[tuple[str | None, Said]]) -> list[Turn]:
    drafts = []
    for role, one in said:
        draft = await draft_of(talk, one)
        if role is not None:
            draft |= {"role": "system", "metadata": {"role": role}}
        drafts.append(draft)
    return await talk.append_many(cast("list[TurnInput]", drafts))


async def _once(request: Request, services: ServicesOf, caller: CallerOf, data: bytes, make: Any) -> Response:
    """A retry of the SDK stores nothing twice."""
    mark = fingerprint(request.url.path, data)
    key = (caller.scope.tenant, caller.scope.user or "", caller.name, "", mark)
    made, _ = await services.retries.once(key, is_retry(request.headers.get(COUNT)), make)
    return Reply(made.value)
