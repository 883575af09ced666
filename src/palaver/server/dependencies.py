"""Shared by handlers: the caller's store, the conversation of the path, replies with ETags and links."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Annotated, Any, TypeVar
from urllib.parse import quote, urlencode

from fastapi import Depends, Header, Path, Request
from pydantic import BaseModel
from starlette.responses import Response

from palaver.conversations.conversation import Conversation
from palaver.conversations.store import Store
from palaver.core.concurrency import run_in_strides
from palaver.core.identity import micros, moment
from palaver.core.strides import size_of
from palaver.errors import AppendConflict, UpdateConflict
from palaver.model import ConversationInfo, Results
from palaver.server import wire
from palaver.server.auth import Caller
from palaver.server.components import Services
from palaver.server.errors import Refusal

T = TypeVar("T")
ID = {"max_length": 512, "min_length": 1}
_ETAG = re.compile(r'(?:W/)?"?([0-9]{1,17})\.([0-9]{1,15})"?')  # weak if a proxy compressed the response


# Coroutines, though they wait for nothing: FastAPI runs plain functions in a thread, which costs more than the work.


async def get_services(request: Request) -> Services:
    found: Services = request.app.state.services
    return found


async def get_caller(request: Request) -> Caller:
    found: Caller = request.state.caller
    return found


ServicesDep = Annotated[Services, Depends(get_services)]
CallerDep = Annotated[Caller, Depends(get_caller)]


async def get_scoped_store(services: ServicesDep, caller: CallerDep) -> Store:
    """Return the store in the scope of the caller. Every handler gets its store here."""
    return services.store.scoped(caller.scope)


StoreDep = Annotated[Store, Depends(get_scoped_store)]


async def get_conversation(
    store: StoreDep, conversation: Annotated[str, Path(**ID, description="The id of the conversation.")]
) -> Conversation:
    """Return the conversation of the path. One that the caller may not see is not found."""
    return await store.get(conversation)


ConversationDep = Annotated[Conversation, Depends(get_conversation)]
TurnId = Annotated[str, Path(**ID, description="The id of the turn.")]
IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=512,
        description="A key of your choice. A repeated request with the same key stores nothing new.",
    ),
]
IfMatch = Annotated[
    str | None,
    Header(
        max_length=128,
        description="The latest ETag that the client has. If the conversation has "
        "changed since, the request fails with 412.",
    ),
]
IfNoneMatch = Annotated[
    str | None, Header(max_length=512, description="ETags that the client has. If one is current, the response is 304.")
]


# ---- replies -------------------------------------------------------------------------------------------------------


class Reply(Response):
    media_type = "application/json"

    def __init__(self, value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(wire.encode(value), status, headers=dict(headers) if headers else None)


def reply_items(values: list[Any]) -> Reply:
    return Reply({"items": values})


def reply_results(found: Results[T], render: Callable[[T], Any]) -> Reply:
    """Reply with results, and with the reason if there are none."""
    return Reply({"items": [render(one) for one in found], "empty": wire.plain(found.empty)})


async def reply_matches(found: Results[T], render: Callable[[T], Any]) -> Reply:
    """Reply with results of a search. Their texts are searched for the places of the words: in strides if large."""
    return await run_in_strides(partial(reply_results, found, render), size_of(list(found)))


def etag(info: ConversationInfo) -> str:
    """Return the ETag of a conversation: its update time, and the next seq, which If-Match compares on an append."""
    return f'"{micros(info.updated)}.{info.next_seq}"'


def matches_etag(tag: str, known: str | None) -> bool:
    """True if If-None-Match contains this ETag."""
    return known is not None and tag in [one.strip().removeprefix("W/") for one in known.split(",")]


def reply_with_etag(value: Any, info: ConversationInfo, known: str | None, links: Mapping[str, str | None]) -> Response:
    """Reply 200 with an ETag, or 304 if the client has this version."""
    headers = {"ETag": etag(info), "Cache-Control": "private, no-cache"}
    shown = ", ".join(f'<{url}>; rel="{name}"' for name, url in links.items() if url)
    if shown:
        headers["Link"] = shown
    if matches_etag(headers["ETag"], known):
        return Response(status_code=304, headers=headers)
    return Reply(value, headers=headers)


def resolve_expected_seq(if_match: str | None, expected_seq: int | None) -> int | None:
    """Return the next seq that a client expects, from If-Match or from the body."""
    seen = _parse_if_match(if_match)
    return expected_seq if seen is None else seen[1]


def last_update_seen(if_match: str | None) -> datetime | None:
    """Return the update time of the version that a client saw."""
    seen = _parse_if_match(if_match)
    return None if seen is None else moment(seen[0])


def _parse_if_match(if_match: str | None) -> tuple[int, int] | None:
    """Parse the two numbers of an ETag; of several, the latest. None for `*`."""
    if if_match is None or if_match.strip() == "*":
        return None
    found = [_ETAG.fullmatch(one.strip()) for one in if_match.split(",")]
    seen = [(int(one[1]), int(one[2])) for one in found if one is not None]
    if not seen:
        raise Refusal(412, "If-Match does not contain an ETag of this server", field="If-Match")
    return max(seen)


def conflict_error(if_match: str | None, conflict: AppendConflict | UpdateConflict) -> Exception:
    """Return the conflict as 412 for a client that sent If-Match, unchanged for others."""
    if if_match is None:
        return conflict
    return Refusal(412, str(conflict), expected=conflict.expected, found=conflict.found)


def page_path(request: Request, **changes: Any) -> str:
    """Return the path of the request with other parameters, as a link to a page."""
    kept = [(name, one) for name, one in request.query_params.multi_items() if name not in changes]
    added = [(name, one) for name, one in changes.items() if one is not None]
    return f"{quote(request.url.path)}?{urlencode(kept + added)}"


def sent_fields(body: BaseModel, *without: str) -> dict[str, Any]:
    """Return the fields that a client sent."""
    return body.model_dump(exclude_unset=True, exclude=set(without))
