"""Moves old events and requests out of the database, into lines that the caller stores."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import datetime

from palaver.audit.archive import event_line, request_line
from palaver.conversations.conversation import Conversation
from palaver.conversations.internals import engine_of
from palaver.conversations.store import Store
from palaver.core.identity import micros
from palaver.core.rights import require_right
from palaver.model import ADMIN, Request, Tip
from palaver.ports.queries import ArchivedRows

PAGE = 100  # requests


async def archive_conversation(
    store: Store, talk: Conversation, before: datetime, keep: Callable[[list[str]], None]
) -> ArchivedRows:
    """Archive what is older than `before`. `keep` stores the lines permanently; only then are their rows deleted."""
    require_right(store.scope, ADMIN)
    moment = micros(before)
    lines: list[str] = []
    tip: Tip | None = None
    async for page in talk.records():
        for record in page:
            if record.kind == "event" and record.row["at"] < moment:
                lines.append(event_line(talk.id, record.row))
                tip = Tip(conversation=talk.id, n=record.row["n"], hash=record.row["hash"].hex())
    if tip is None:
        return ArchivedRows(0, 0)
    async for request in _requests(talk):
        if request.at < before:
            lines.append(request_line(request))
    keep(lines)
    return await engine_of(store).archive_log(store.scope, tip, moment)


async def _requests(talk: Conversation) -> AsyncIterator[Request]:
    """Yield all requests of a conversation, page by page from the newest."""
    page = await talk.requests(PAGE)
    while page:
        for request in page:
            yield request
        page = await talk.requests(PAGE, before=page[0])
