"""From rows to values."""

from __future__ import annotations

from typing import Any

import msgspec

from palaver.core.branches import Node
from palaver.core.identity import moment
from palaver.core.turn_draft import TurnDraft, decode_attachments, decode_calls, decode_content, decode_results
from palaver.errors import RowUnreadable
from palaver.model import ConversationInfo, Event, Scope, TokenUsage, Turn

Row = tuple[Any, ...]
# What the making of a value raises when its row was damaged: not JSON, or JSON of another form, or no such time.
DAMAGED = (ValueError, TypeError, AttributeError, LookupError, OverflowError)
_names = msgspec.json.Decoder(tuple[str, ...]).decode
_mapping = msgspec.json.Decoder(dict[str, Any]).decode
_mappings = msgspec.json.Decoder(tuple[dict[str, Any], ...]).decode


def scope_params(scope: Scope) -> dict[str, Any]:
    """The parameters of the predicate `allowed`."""
    return {"tenant": scope.tenant, "user": scope.user, "sight": scope.sight, "workspace": scope.workspace}


def waiting_seconds(oldest: int | None, now: int) -> float:
    """For how many seconds the oldest job has waited; one from before the clock was set back, for none."""
    return 0.0 if oldest is None else max(0.0, (now - oldest) / 1_000_000)


def conversation_info(row: Row) -> ConversationInfo:
    (id, tenant, owner, key, workspace, agent, model, title, preview, participants, metadata, settings, *rest) = row
    turn_count, token_count, next_seq, last_event, ttl, expires_at, created, updated = rest
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
    """A row of `turns`, in the order of `turn_columns`."""

    tid: int
    id: str
    seq: int
    position: int
    parent: str | None
    slot: str | None
    active: int
    superseded_by: str | None
    status: str
    role: Any
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
        """What was handed in, as far as it is stored."""
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
        """By place, in the order of the fields: half the time of names, and a context is made of hundreds."""
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
                usage(self.prompt_tokens, self.completion_tokens),
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
    """What `verify` calls it."""
    return f"turn {id} (seq {seq})"


def event_name(n: object) -> str:
    return f"event {n}"


def usage(prompt: int | None, completion: int | None) -> TokenUsage | None:
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
