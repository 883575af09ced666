"""What handlers share: the caller's store, the conversation of the path, answers with ETags and links."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import quote, urlencode

from fastapi import Depends, Header, Path, Request
from pydantic import BaseModel
from starlette.responses import Response

from palaver.conversations.conversation import Conversation
from palaver.conversations.store import Store
from palaver.core.identity import micros, moment
from palaver.errors import AppendConflict, UpdateConflict
from palaver.model import ConversationInfo
from palaver.server.auth import Caller
from palaver.server.components import Services
from palaver.server.errors import Refused
from palaver.server.rest import wire

ID = {"max_length": 512, "min_length": 1}
_ETAG = re.compile(r'(?:W/)?"?([0-9]{1,17})\.([0-9]{1,15})"?')  # weak: by a proxy that compressed the answer


# Coroutines, though they wait for nothing: FastAPI runs plain functions in a thread, which costs more than the verb.


async def services_of(request: Request) -> Services:
    found: Services = request.app.state.services
    return found


async def caller_of(request: Request) -> Caller:
    found: Caller = request.state.caller
    return found


ServicesOf = Annotated[Services, Depends(services_of)]
CallerOf = Annotated[Caller, Depends(caller_of)]


async def scoped_store(services: ServicesOf, caller: CallerOf) -> Store:
    """The database, seen by whoever is asking. Every handler gets it from here."""
    return services.store.scoped(caller.scope)


StoreOf = Annotated[Store, Depends(scoped_store)]


async def conversation_of(store: StoreOf, conversation: Annotated[str, Path(**ID)]) -> Conversation:
    """The conversation that the path names; another tenant's is not found."""
    return await store.get(conversation)


Talk = Annotated[Conversation, Depends(conversation_of)]
TurnId = Annotated[str, Path(**ID, description="The id of a turn.")]
IdempotencyKey = Annotated[str | None, Header(max_length=512, description="The same key stores once.")]
IfMatch = Annotated[
    str | None, Header(max_length=128, description="The ETag that was last seen: refused when the thread has moved on.")
]
IfNoneMatch = Annotated[str | None, Header(max_length=512)]


# ---- answers -------------------------------------------------------------------------------------------------------


class Reply(Response):
    media_type = "application/json"

    def __init__(self, value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(wire.encode(value), status, headers=dict(headers) if headers else None)


def items(values: list[Any]) -> Reply:
    return Reply({"items": values})


def etag(info: ConversationInfo) -> str:
    """Every change moves a conversation's clock. The second part is what If-Match compares when something is added."""
    return f'"{micros(info.updated)}.{info.next_seq}"'


def has_already(tag: str, known: str | None) -> bool:
    """Whether If-None-Match names this ETag."""
    return known is not None and tag in [one.strip().removeprefix("W/") for one in known.split(",")]


def tagged(value: Any, info: ConversationInfo, known: str | None, links: Mapping[str, str | None]) -> Response:
    """200 with an ETag, or 304 when the client has it already."""
    headers = {"ETag": etag(info), "Cache-Control": "private, no-cache"}
    shown = ", ".join(f'<{url}>; rel="{name}"' for name, url in links.items() if url)
    if shown:
        headers["Link"] = shown
    if has_already(headers["ETag"], known):
        return Response(status_code=304, headers=headers)
    return Reply(value, headers=headers)


def expected_by(if_match: str | None, expected_seq: int | None) -> int | None:
    """The next seq that a client expects, said in either way."""
    seen = _seen(if_match)
    return expected_seq if seen is None else seen[1]


def unchanged_since(if_match: str | None) -> datetime | None:
    """When what a client saw was last changed."""
    seen = _seen(if_match)
    return None if seen is None else moment(seen[0])


def _seen(if_match: str | None) -> tuple[int, int] | None:
    """The two numbers of an ETag; of several the latest, since no other can be of today. None when any will do."""
    if if_match is None or if_match.strip() == "*":
        return None
    found = [_ETAG.fullmatch(one.strip()) for one in if_match.split(",")]
    seen = [(int(one[1]), int(one[2])) for one in found if one is not None]
    if not seen:
        raise Refused(412, "If-Match is none of the ETags of this server", field="If-Match")
    return max(seen)


def moved_on(if_match: str | None, conflict: AppendConflict | UpdateConflict) -> Exception:
    """What a conflict is called by one who used If-Match."""
    if if_match is None:
        return conflict
    return Refused(412, str(conflict), expected=conflict.expected, found=conflict.found)


def path_to(request: Request, **changes: Any) -> str:
    """The same path with other parameters: a page link."""
    kept = [(name, one) for name, one in request.query_params.multi_items() if name not in changes]
    added = [(name, one) for name, one in changes.items() if one is not None]
    return f"{quote(request.url.path)}?{urlencode(kept + added)}"


def given(body: BaseModel, *without: str) -> dict[str, Any]:
    """The fields that a client has really sent."""
    return body.model_dump(exclude_unset=True, exclude=set(without))
