"""Conversations as resources: their URIs and contents."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
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
        "At most `limit` turns before the turn with the id `before`; `older` of a page leads to the next.",
    ),
    "palaver://conversations/{id}/turns/{turn}": ("turn", "One turn, complete."),
}
MIME = "application/json"
LIMIT, MAX_LIMIT = 50, 200  # turns of a page
PAGE_TOKENS = 50_000  # as counted when the turns were stored; a page has at least one turn
LISTED = 50  # conversations of a page
SUGGESTIONS = 20
_ADDRESS = re.compile(rf"{BASE}([0-9A-Za-z]{{1,64}})(?:/turns/([0-9A-Za-z]{{1,64}}))?(?:\?(.{{0,500}}))?")


@dataclass(frozen=True, slots=True)
class ResourceAddress:
    """The target of a URI: a conversation, one of its pages, or a turn."""

    conversation: str
    turn: str | None = None
    before: str | None = None
    limit: int = LIMIT

    @classmethod
    def parse(cls, uri: str) -> ResourceAddress | None:
        """Parse a URI. None if it is not one of the templates."""
        match = _ADDRESS.fullmatch(uri)
        if match is None:
            return None
        query = {name: values[-1] for name, values in parse_qs(match[3] or "").items()}
        limit = query.get("limit", str(LIMIT))
        if query.keys() - {"before", "limit"} or not re.fullmatch(r"\d{1,4}", limit):
            return None
        return cls(match[1], match[2], query.get("before"), min(max(1, int(limit)), MAX_LIMIT))


def address_of(info: ConversationInfo) -> str:
    return BASE + info.id


async def read(store: Store, uri: str, page_tokens: int = PAGE_TOKENS) -> dict[str, object] | None:
    """Read a resource as JSON. None if the URI is not one of the templates."""
    address = ResourceAddress.parse(uri)
    if address is None:
        return None
    talk = await store.get(address.conversation)
    if address.turn is not None:
        return wire.turn(await talk.turn(address.turn))
    return await _page(talk, address, page_tokens)


async def _page(talk: Conversation, address: ResourceAddress, tokens: int) -> dict[str, object]:
    turns: list[Turn] = await talk.history(address.limit + 1, before=address.before)
    shown = _within_token_limit(turns[-address.limit :], tokens)
    older = urlencode({"before": shown[0].id, "limit": address.limit}) if len(shown) < len(turns) else None
    info = talk.info
    return {
        "conversation": {
            "id": info.id, "key": info.key, "title": info.title, "owner": info.owner, "turns": info.turn_count,
            "summarized_through": info.summarized_through,
            "created": info.created, "updated": info.updated,
        },
        "messages": [message_of_turn(turn) for turn in shown],
        "older": None if older is None else f"{BASE}{talk.id}?{older}",
    }  # fmt: skip


def _within_token_limit(turns: list[Turn], limit: int) -> list[Turn]:
    """Return the latest turns that fit a page."""
    tokens, first = 0, len(turns)
    while first and (tokens := tokens + turns[first - 1].token_count) <= limit:
        first -= 1
    return turns[min(first, len(turns) - 1) :] if turns else []


def message_of_turn(turn: Turn) -> dict[str, object]:
    """Convert a turn to a message; tool calls and results as text."""
    said = schemas.passage_of(turn, turn_text(turn))
    return {"role": said.role, "content": said.text, "actor": said.who, "id": said.turn, "created": turn.created}


async def complete_name(store: Store, argument: str, start: str) -> tuple[list[str], bool]:
    """Suggest names of conversations, or ids, that start with `start`. Also returns whether there are more."""
    page = await store.conversations(limit=1_000)
    names = [one.id if argument == "id" else one.key or one.id for one in page.items]
    fitting = [name for name in dict.fromkeys(names) if name.lower().startswith(start.lower())]
    return fitting[:SUGGESTIONS], len(fitting) > SUGGESTIONS or page.cursor is not None


def unknown_uri_error() -> InvalidInput:
    """Return the error for an unknown URI. The URI is not repeated: it may contain anything."""
    return InvalidInput("uri", f"must be one of {', '.join(TEMPLATES)}")
