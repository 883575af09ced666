"""Routes of conversations: create, find, list, search, update, delete."""

from __future__ import annotations

from datetime import UTC, tzinfo
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from fastapi import Query, Request
from starlette.responses import Response

from palaver.conversations.internals import clock_of
from palaver.core.filters import read_where
from palaver.core.pagination import group_by_date
from palaver.errors import InvalidInput, UpdateConflict
from palaver.memory.settings import describe_misplaced, misplaced
from palaver.server import wire
from palaver.server.dependencies import (
    ConversationDep,
    IfMatch,
    IfNoneMatch,
    Reply,
    StoreDep,
    conflict_error,
    last_update_seen,
    page_path,
    reply_matches,
    reply_with_etag,
    sent_fields,
)
from palaver.server.rest import schemas

Limit = Annotated[int, Query(ge=1, le=1_000, description="Maximum number of items.")]
Filter = Annotated[str | None, Query(max_length=512, min_length=1)]


async def create_conversation(store: StoreDep, body: schemas.NewConversation) -> Response:
    """Create a conversation. If `key` exists, return the conversation with that key.

    In that case, `settings` must equal the stored ones. A `Warning` header names metadata that looks like a setting.
    """
    fields = sent_fields(body)
    talk = await store.conversation(fields.pop("key", None), owner=fields.pop("owner", None), **fields)
    status = 201 if talk.info.last_event <= 1 else 200
    headers = {"Location": f"/api/conversations/{talk.id}", **_metadata_warning(body)}
    return Reply(wire.conversation(talk.info), status, headers)


def _metadata_warning(body: schemas.ConversationFields) -> dict[str, str]:
    """Return a Warning header for metadata that looks like a setting, which it is not."""
    name = misplaced(body.metadata or {})
    return {} if name is None else {"Warning": f'299 - "{describe_misplaced(name)}"'}


async def list_conversations(
    request: Request,
    store: StoreDep,
    owner: Annotated[Filter, Query(description="Only conversations of this owner.")] = None,
    workspace: Annotated[Filter, Query(description="Only conversations in this workspace.")] = None,
    agent: Annotated[Filter, Query(description="Only conversations with this agent.")] = None,
    kind: Annotated[
        Literal["talk", "state", "items", "all"], Query(description="Kind of the conversations. `talk`: chats.")
    ] = "talk",
    limit: Limit = 50,
    cursor: Annotated[str | None, Query(max_length=512, description="The `cursor` of the previous page.")] = None,
    where: schemas.WhereText = None,
    group: Annotated[Literal["date"] | None, Query(description="`date` also groups the items by date.")] = None,
    timezone: Annotated[str, Query(max_length=64, description="Time zone of the groups: an IANA name.")] = "UTC",
) -> Response:
    """List the conversations that the caller can see, most recently used first."""
    page = await store.conversations(
        owner=owner,
        workspace=workspace,
        agent=agent,
        kind=None if kind == "all" else kind,
        limit=limit,
        cursor=cursor,
        where=read_where(where),
    )
    groups = None
    if group is not None:
        grouped = group_by_date(page.items, clock_of(store).now(), _zone(timezone))
        groups = [{"name": name, "conversations": [one.id for one in members]} for name, members in grouped]
    next_page = None if page.cursor is None else page_path(request, cursor=page.cursor)
    body = {
        "items": [wire.conversation(info) for info in page.items],
        "groups": groups,
        "cursor": page.cursor,
        "next": next_page,
        "empty": wire.plain(page.empty),
    }
    return Reply(body, headers={"Link": f'<{next_page}>; rel="next"'} if next_page else None)


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise InvalidInput("timezone", "is not a name in the IANA time zone database") from None


async def find_conversation(
    store: StoreDep,
    key: Annotated[str, Query(max_length=512, min_length=1, description="The key of the conversation.")],
    owner: Annotated[Filter, Query(description="The owner of the conversation. Default: the caller.")] = None,
) -> Response:
    """Find a conversation by key, without creating one."""
    return Reply(wire.conversation((await store.find(key, owner=owner)).info))


async def search_conversations(
    store: StoreDep,
    q: Annotated[str, Query(max_length=1_000, description="The words to search for. The last one may be a prefix.")],
    limit: Annotated[int, Query(ge=1, le=100, description="Maximum number of conversations.")] = 20,
    where: schemas.WhereText = None,
) -> Response:
    """Find conversations that contain these words in the title or in turns. `where` sets conditions on the turns."""
    return await reply_matches(await store.search(q, limit=limit, where=read_where(where)), wire.found)


async def get_conversation(talk: ConversationDep, if_none_match: IfNoneMatch = None) -> Response:
    """Get a conversation without its turns."""
    return reply_with_etag(wire.conversation(talk.info), talk.info, if_none_match, {})


async def update_conversation(
    talk: ConversationDep, body: schemas.ChangedConversation, if_match: IfMatch = None
) -> Response:
    """Change title, workspace, agent, model, participants, metadata, settings or ttl. Fields that are not sent stay."""
    try:
        info = await talk.update(expected_updated=last_update_seen(if_match), **sent_fields(body))
    except UpdateConflict as conflict:
        raise conflict_error(if_match, conflict) from None
    answer = reply_with_etag(wire.conversation(info), info, None, {})
    answer.headers.update(_metadata_warning(body))
    return answer


async def delete_conversation(talk: ConversationDep) -> Response:
    """Delete a conversation permanently, with its files. Its log, which has no content, is kept."""
    await talk.forget()
    return Response(status_code=204)


async def reset_conversation(talk: ConversationDep) -> Response:
    """Delete every turn permanently, and keep the conversation."""
    await talk.reset()
    return Reply(wire.conversation(await talk.refresh()))
