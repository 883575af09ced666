"""The rows that an audit reads, by column. A damaged or imported row may hold anything else, which the checks find."""

from __future__ import annotations

from typing import TypedDict

from palaver.errors import VerificationFailed


class RecordedConversation(TypedDict, total=False):
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
    preview: str | None
    turn_count: int
    token_count: int
    next_seq: int
    next_n: int
    tip_position: int
    tip_slot: str | None
    tip_hash: bytes
    salt: bytes | None
    content_hash: bytes
    created: int
    updated: int
    minute: int
    expires_at: int | None
    members: str  # the rows of participants; an export does not have them


class RecordedEvent(TypedDict):
    n: int
    kind: str
    turn: str
    actor: str
    at: int
    payload: str | None
    content_hash: bytes
    hash: bytes


# The payloads of all kinds of events that a replay reads.
EventPayload = TypedDict(
    "EventPayload",
    {
        "replaces": str,
        "discard_after": bool,
        "branch": dict[str, str | None],  # the parent and the slot of a turn that replication added outside the view
        "origin": str,  # the id that such a turn had in the other store
        "from": int,
        "to": int,
        "salt": bool,
        "through": int,
        "hash": str,
        "events": list[tuple[int, str]],  # of `erase`: numbers of events, and digests of their tombstones
        "stubs": list[tuple[str, str, str]],  # of `erase`: turns, and the hashes of their stubs before and after it
        "rows": dict[str, str | None],
        "proof": int,
    },
    total=False,
)


class RecordedTurn(TypedDict):
    id: str
    seq: int
    position: int
    parent: str | None
    slot: str | None
    active: int
    superseded_by: str | None
    status: str
    role: str
    actor: str
    is_parts: int
    content: str | None
    tool_calls: str | None
    tool_results: str | None
    attachments: str | None
    sources: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    token_count: int
    model: str | None
    adapter: str | None
    finish_reason: str | None
    metadata: str | None
    idempotency_key: str | None
    salt: bytes | None
    content_hash: bytes | None
    created: int


class RecordedAttachment(TypedDict):
    id: str
    turn: str | None
    filename: str
    media_type: str
    bytes: int
    sha256: str


def require(fits: bool, conversation: str, row: str, problem: str) -> None:
    """Raise `VerificationFailed` for a row that does not fit."""
    if not fits:
        raise VerificationFailed(conversation, row, problem)
