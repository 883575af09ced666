"""From rows to values, and back: what both engines share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from palaver.core.branches import Node
from palaver.core.identity import canonical_json, from_json, moment
from palaver.core.rights import names_from_rights, rights_from_names
from palaver.core.turn_draft import TurnDraft, decode_attachments, decode_calls, decode_content, decode_results
from palaver.errors import RowUnreadable
from palaver.model import ConversationInfo, Event, ItemSource, MemoryItem, Role, Scope, TokenUsage, Turn

Row = tuple[Any, ...]
# Raised while a value is made from a damaged row: not JSON, JSON of another shape, or a time out of range.
DAMAGED = (ValueError, TypeError, AttributeError, LookupError, OverflowError)
_names = msgspec.json.Decoder(tuple[str, ...]).decode
_mapping = msgspec.json.Decoder(dict[str, Any]).decode
_mappings = msgspec.json.Decoder(tuple[dict[str, Any], ...]).decode


def scope_params(scope: Scope) -> dict[str, str | None]:
    """Return the parameters of the predicate `allowed`."""
    return {"tenant": scope.tenant, "user": scope.user, "sight": scope.visibility, "workspace": scope.workspace}


def scope_to_json(scope: Scope) -> str:
    """Encode a scope without its tenant, which is the row's."""
    return canonical_json(
        {
            "user": scope.user,
            "rights": names_from_rights(scope.rights),
            "sight": scope.visibility,
            "workspace": scope.workspace,
        }
    )


def scope_from_json(tenant: str, text: str) -> Scope:
    fields = from_json(text)
    return Scope(tenant, fields["user"], rights_from_names(fields["rights"]), fields["sight"], fields["workspace"])


def to_json_or_none(value: Mapping[str, object] | None) -> str | None:
    return None if value is None else canonical_json(value)


def from_json_or_none(text: str | None) -> Any:
    return None if text is None else from_json(text)


def waiting_seconds(oldest: int | None, now: int) -> float:
    """Return how long the oldest job has waited; 0 for one created before the clock was set back."""
    return 0.0 if oldest is None else max(0.0, (now - oldest) / 1_000_000)


def is_current_message(turn: Turn, viewer: str | None) -> bool:
    """True for a turn that a context can be for: a user's, or for one agent of several, what another one said."""
    if viewer is None:
        return turn.role == "user"
    return turn.role in ("user", "assistant") and turn.actor != viewer and not turn.tool_calls


def conversation_info(row: Row) -> ConversationInfo:
    (id, tenant, owner, key, workspace, agent, model, title, preview, participants, metadata, settings, *rest) = row
    turn_count, token_count, summarized_through, next_seq, last_event, ttl, expires_at, created, updated = rest
    try:
        return ConversationInfo(
            id=id,
            tenant=tenant,
            owner=owner,
            key=key,
            workspace=workspace,
            agent=agent,
            model=model,
            title=title,
            preview=preview,
            participants=_names(participants),
            metadata=_mapping(metadata) if metadata else {},
            settings=_mapping(settings) if settings else {},
            turn_count=turn_count,
            token_count=token_count,
            summarized_through=summarized_through,
            next_seq=next_seq,
            last_event=last_event,
            ttl=None if ttl is None else ttl / 1_000_000,
            expires_at=None if expires_at is None else moment(expires_at),
            created=moment(created),
            updated=moment(updated),
        )
    except DAMAGED:
        raise RowUnreadable("conversation", id) from None


class TurnRow(msgspec.Struct):
    """A row of `turns`.

    SQLite's statements are made from this list. Three places repeat its order, and tests compare them with it: the
    constructor calls in `turn` below and in `OpenConversation.insert`, and Postgres' function `turn_json` (memory.sql).
    """

    tid: int
    id: str
    seq: int
    position: int
    parent: str | None
    slot: str | None
    active: int
    superseded_by: str | None
    status: str
    role: Role
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

    def draft(self) -> TurnDraft:
        """Return the draft that this row was stored from."""
        return TurnDraft(
            id=self.id,
            role=self.role,
            actor=self.actor,
            content=self.content or "",
            is_parts=bool(self.is_parts),
            tool_calls=self.tool_calls,
            tool_results=self.tool_results,
            attachments=self.attachments,
            sources=self.sources,
            prompt_tokens=self.prompt_tokens,
            completion_tokens=self.completion_tokens,
            token_count=self.token_count,
            model=self.model,
            adapter=self.adapter,
            finish_reason=self.finish_reason,
            metadata=self.metadata,
            idempotency_key=self.idempotency_key,
            created=self.created,
            salt=self.salt or b"",
        )

    def turn(self, conversation: str) -> Turn:
        # Positional arguments take half the time of keywords, and a context is made from hundreds of turns.
        try:
            return Turn(
                self.id,
                conversation,
                self.seq,
                self.position,
                self.role,
                self.actor,
                decode_content(self.content or "", True) if self.is_parts else self.content or "",
                moment(self.created),
                self.status,  # type: ignore[arg-type]
                decode_calls(self.tool_calls) if self.tool_calls else (),
                decode_results(self.tool_results) if self.tool_results else (),
                decode_attachments(self.attachments, self.id) if self.attachments else (),
                _mappings(self.sources) if self.sources else (),
                token_usage(self.prompt_tokens, self.completion_tokens),
                self.token_count,
                self.model,
                self.adapter,
                self.finish_reason,
                _mapping(self.metadata) if self.metadata else {},
                self.idempotency_key,
                self.parent,
                self.slot or self.id,
                self.active == 1,
                self.superseded_by,
                self.content_hash.hex() if self.content_hash else None,
            )
        except DAMAGED:
            raise RowUnreadable(turn_name(self.id, self.seq), conversation) from None


def turn_name(id: object, seq: object) -> str:
    """Return the name of a turn in reports of `verify`."""
    return f"turn {id} (seq {seq})"


def event_name(n: object) -> str:
    return f"event {n}"


def token_usage(prompt: int | None, completion: int | None) -> TokenUsage | None:
    return None if prompt is None and completion is None else TokenUsage(prompt, completion)


def tree_node(row: Row) -> Node:
    id, seq, position, parent, slot, active, superseded_by, status = row
    return Node(id, seq, position, parent, slot, bool(active), superseded_by, status)


def event_from_row(row: Row, conversation: str) -> Event:
    n, kind, turn, actor, at, payload, content_hash, hash = row
    try:
        return Event(
            n=n,
            conversation=conversation,
            kind=kind,
            actor=actor,
            at=moment(at),
            turn=turn,
            payload=_mapping(payload) if payload else {},
            content_hash=content_hash.hex() if content_hash else None,
            hash=hash.hex(),
        )
    except DAMAGED:
        raise RowUnreadable(event_name(n), conversation or None) from None


ITEM_FIELDS = (
    "id", "kind", "subject", "predicate", "object", "confidence", "valid_from", "valid_to", "learnt_at", "ended_at",
    "ended_by", "origin", "status", "said_by", "by", "created",
)  # fmt: skip
ITEM_TIMES = ("valid_from", "valid_to", "learnt_at", "ended_at", "created")


def read_item(values: Sequence[Any], sources: Iterable[ItemSource]) -> MemoryItem:
    """Read an item of a subject's memory from its values, in the order of `ITEM_FIELDS`."""
    known = dict(zip(ITEM_FIELDS, values, strict=True))
    times = {name: None if known[name] is None else moment(known[name]) for name in ITEM_TIMES}
    return MemoryItem(**{**known, **times}, sources=tuple(sources))
