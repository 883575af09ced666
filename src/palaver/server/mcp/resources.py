"""Conversations as resources: their addresses, and what is read there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlencode

from palaver.context.render import turn_text
from palaver.conversations.conversation import Conversation
from palaver.conversations.store import Store
from palaver.errors import InvalidInput
from palaver.model import ConversationInfo, Turn
from palaver.server import wire
from palaver.server.mcp import schemas

BASE = "palaver://conversations/"
TEMPLATES: Mapping[str, tuple[str, str]] = {
    "palaver://conversations/{id}": ("conversation", "The latest turns of a conversation, as messages, oldest first."),
    "palaver://conversations/{id}{?before,limit}": (
        "conversation-page",
        "Turns before the one with the id `before`, at most `limit`; `older` of a page leads to the next.",
    ),
    "palaver://conversations/{id}/turns/{turn}": ("turn", "One turn, whole."),
}
MIME = "application/json"
LIMIT, MOST = 50, 200  # turns of a page
TOKENS = 50_000  # of a page, as they were counted when they were stored; one turn is always there
LISTED = 50  # conversations of a page
COMPLETED = 20  # names that are suggested
_ADDRESS = re.compile(rf"{BASE}([0-9A-Za-z]{{1,64}})(?:/turns/([0-9A-Za-z]{{1,64}}))?(?:\?(.{{0,500}}))?")


@dataclass(frozen=True, slots=True)
class Address:
    """What a URI names: a conversation, one of its pages, or a turn."""

    conversation: str
    turn: str | None = None
    before: str | None = None
    limit: int = LIMIT

    @classmethod
    def parse(cls, uri: str) -> Address | None:
        """None when it is none of ours."""
        match = _ADDRESS.fullmatch(uri)
        if match is None:
            return None
        query = {name: values[-1] for name, values in parse_qs(match[3] or "").items()}
        limit = query.get("limit", str(LIMIT))
        if query.keys() - {"before", "limit"} or not re.fullmatch(r"\d{1,4}", limit):
            return None
        return cls(match[1], match[2], query.get("before"), min(max(1, int(limit)), MOST))


def address_of(info: ConversationInfo) -> str:
    return BASE + info.id


async def read(store: Store, uri: str) -> dict[str, Any] | None:
    """What is there, as JSON. None when the URI is none of ours; raises what the verbs raise."""
    address = Address.parse(uri)
    if address is None:
        return None
    talk = await store.get(address.conversation)
    if address.turn is not None:
        return wire.turn(await talk.turn(address.turn))
    return await _page(talk, address)


async def _page(talk: Conversation, address: Address) -> dict[str, Any]:
    turns: list[Turn] = await talk.history(address.limit + 1, before=address.before)
    shown = _within_token_limit(turns[-address.limit :])
    older = urlencode({"before": shown[0].id, "limit": address.limit}) if len(shown) < len(turns) else None
    info = talk.info
    return {
        "conversation": {
            "id": info.id, "key": info.key, "title": info.title, "owner": info.owner, "turns": info.turn_count,
            "created": info.created, "updated": info.updated,
        },
        "messages": [message_of_turn(turn) for turn in shown],
        "older": None if older is None else f"{BASE}{talk.id}?{older}",
    }  # fmt: skip


def _within_token_limit(turns: list[Turn]) -> list[Turn]:
    """The latest of them, as far as a page goes."""
    tokens, first = 0, len(turns)
    while first and (tokens := tokens + turns[first - 1].token_count) <= TOKENS:
        first -= 1
    return turns[min(first, len(turns) - 1) :] if turns else []


def message_of_turn(turn: Turn) -> dict[str, Any]:
    """A turn as a message: whose, when, and what was said; calls of tools and their results as text."""
    said = schemas.passage_of(turn, turn_text(turn))
    return {"role": said.role, "content": said.text, "actor": said.who, "id": said.turn, "created": turn.created}


async def complete_name(store: Store, argument: str, start: str) -> tuple[list[str], bool]:
    """Conversations whose name (or id, where an id is asked for) begins like this; and whether there are more."""
    page = await store.conversations(limit=1_000)
    names = [one.id if argument == "id" else one.key or one.id for one in page.items]
    fitting = [name for name in dict.fromkeys(names) if name.lower().startswith(start.lower())]
    return fitting[:COMPLETED], len(fitting) > COMPLETED or page.cursor is not None


def unknown_uri_error(uri: str) -> InvalidInput:
    """It is not repeated: somebody may have typed anything."""
    return InvalidInput("uri", f"must be one of {', '.join(TEMPLATES)}")
