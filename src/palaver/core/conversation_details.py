"""The fields of a conversation that only `create` and `update` set, and their hash."""

from __future__ import annotations

from dataclasses import dataclass, fields

from palaver.core.identity import CONVERSATION_TAG, digest


@dataclass(slots=True)
class ConversationDetails:
    """The fields as stored. Their order is that of the hash; in Postgres `details_hash` (core.sql) repeats it."""

    id: str
    owner: str
    key: str | None
    workspace: str | None
    agent: str | None
    model: str | None
    title: str | None
    participants: str
    metadata: str | None
    settings: str | None
    ttl: int | None


DETAIL_FIELDS = tuple(one.name for one in fields(ConversationDetails))


def details_hash(salt: bytes | None, details: ConversationDetails) -> bytes:
    return digest((CONVERSATION_TAG, salt, *(getattr(details, name) for name in DETAIL_FIELDS)))
