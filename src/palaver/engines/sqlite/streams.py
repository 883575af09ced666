"""Turns that are stored while they are being written. Each function is one transaction."""

from __future__ import annotations

from msgspec import structs

from palaver.core.turn_draft import chunk_hash, content_hash, with_stored_key
from palaver.core.validation import MAX_CONTENT
from palaver.engines.rows import TurnRow
from palaver.engines.sqlite import text_index, turns
from palaver.engines.sqlite.open_conversation import OpenConversation, open_conversation
from palaver.engines.sqlite.queries import Q
from palaver.engines.sqlite.transaction import Tx
from palaver.errors import (
    ConversationGone,
    ConversationNotFound,
    IdempotencyConflict,
    InvalidInput,
    RowUnreadable,
    StreamMoved,
    StreamSealed,
    TooLarge,
    TurnGone,
)
from palaver.model import Scope, Turn
from palaver.ports.queries import AppendBatch, StreamChunk, StreamEnd


def open_stream(tx: Tx, scope: Scope, conversation: str, batch: AppendBatch, lease: int) -> Turn:
    conv = open_conversation(tx, scope, conversation)
    draft = batch.drafts[0]
    before = conv.turn_by_key(draft.idempotency_key) if draft.idempotency_key else None
    if before is not None:
        if before.status == "forgotten":
            raise TurnGone(before.id)
        if (before.role, before.actor) != (draft.role, draft.actor):
            raise IdempotencyConflict(before.id)
        return before.turn(conversation)
    turns.check_expected(conv, batch)
    row = turns.add_pending(conv, with_stored_key(draft, conversation), batch.replaces, batch.discard_after)
    tx.run(Q.open_stream, tid=row.tid, cid=conv.cid, lease_until=tx.now + lease, length=0)
    conv.save()
    return row.turn(conversation)


def chunk(tx: Tx, scope: Scope, conversation: str, turn: str, piece: StreamChunk, lease: int) -> int:
    """Append a piece of text. Returns the number that the next one must have."""
    conv = open_conversation(tx, scope, conversation)
    row = _require_pending_turn(conv, turn)
    expected = _extend(conv, row, piece, tx.now + lease)
    conv.save()
    return expected


def _extend(conv: OpenConversation, row: TurnRow, piece: StreamChunk, lease_until: int) -> int:
    found = conv.tx.one(Q.stream, tid=row.tid)
    assert found is not None  # a pending turn has its row in `streams`
    expected, length = found
    if piece.n > expected:
        raise InvalidInput("n", f"chunk {expected} has not arrived yet, so chunk {piece.n} cannot be stored")
    if piece.n < expected:
        return int(expected)
    if not piece.text:  # nothing to store, but the number is used and the lease is renewed
        conv.tx.run(Q.extend_stream, tid=row.tid, next_chunk=expected + 1, length=length, lease_until=lease_until)
        return int(expected) + 1
    size = len((row.content or "").encode()) + len(piece.text.encode())
    if size > MAX_CONTENT:
        raise TooLarge("content", size=size, limit=MAX_CONTENT, unit="bytes")
    end = length + len(piece.text)
    conv.tx.run(Q.extend_turn, tid=row.tid, text=piece.text)
    conv.tx.run(Q.extend_stream, tid=row.tid, next_chunk=expected + 1, length=end, lease_until=lease_until)
    span, hash = {"from": length, "to": end}, chunk_hash(row.salt, piece.text)
    conv.log("chunk", conv.tick(), actor=row.actor, turn=row.id, payload=span, content_hash=hash)
    row.content = (row.content or "") + piece.text
    return int(expected) + 1


def renew(tx: Tx, scope: Scope, conversation: str, turn: str, lease: int) -> None:
    conv = open_conversation(tx, scope, conversation)
    tx.run(Q.renew_stream, tid=_require_pending_turn(conv, turn).tid, lease_until=tx.now + lease)


def commit(tx: Tx, scope: Scope, conversation: str, turn: str, end: StreamEnd) -> Turn:
    conv = open_conversation(tx, scope, conversation)
    row = conv.require_turn(turn)
    if row.status == "complete" and row.content == end.content:
        return row.turn(conversation)  # an earlier try of this commit succeeded, and its reply was lost
    _require_pending(row)
    if end.tail is not None:
        _extend(conv, row, end.tail, tx.now)
    if row.content != end.content:
        raise StreamMoved(turn)
    _complete(conv, row, end)
    conv.save()
    return conv.turn(turn).turn(conversation)


def _complete(conv: OpenConversation, row: TurnRow, end: StreamEnd) -> None:
    draft = structs.replace(
        row.draft(),
        tool_calls=end.tool_calls,
        sources=end.sources,
        prompt_tokens=end.prompt_tokens,
        completion_tokens=end.completion_tokens,
        token_count=end.token_count,
        model=end.model or row.model,
        adapter=end.adapter or row.adapter,
        finish_reason=end.finish_reason,
        metadata=end.metadata or row.metadata,
    )
    hash = content_hash(row.id, draft, row.created)
    conv.tx.run(
        Q.commit_turn,
        tid=row.tid,
        tool_calls=draft.tool_calls,
        sources=draft.sources,
        prompt_tokens=draft.prompt_tokens,
        completion_tokens=draft.completion_tokens,
        token_count=draft.token_count,
        model=draft.model,
        adapter=draft.adapter,
        finish_reason=draft.finish_reason,
        metadata=draft.metadata,
        content_hash=hash,
    )
    text_index.index_completed_turn(conv, row)
    conv.tx.run(Q.close_stream, tid=row.tid)
    conv.log("commit", conv.tick(), actor=row.actor, turn=row.id, content_hash=hash)
    if row.active:
        conv.token_count += draft.token_count - row.token_count
        if row.role == "user":
            conv.refresh_preview()


def abort(tx: Tx, scope: Scope, conversation: str, turn: str, tail: StreamChunk | None) -> Turn:
    conv = open_conversation(tx, scope, conversation)
    row = conv.require_turn(turn)
    if row.status == "aborted":
        return row.turn(conversation)
    _require_pending(row)
    if tail is not None:
        _extend(conv, row, tail, tx.now)
    _abort(conv, row)
    return conv.turn(turn).turn(conversation)


def _abort(conv: OpenConversation, row: TurnRow) -> None:
    turns.abort(conv, row)
    conv.save()


def abort_expired_streams(tx: Tx) -> int:
    """Abort the streams of all tenants whose lease has ended. Returns how many there were."""
    aborted = 0
    for tid, tenant, conversation in tx.all(Q.expired_streams, now=tx.now):
        scope = Scope(tenant, None, visibility="tenant")
        try:
            conv = open_conversation(tx, scope, conversation)
            row = tx.one(Q.pending_turn, tid=tid)
        except (ConversationNotFound, ConversationGone):
            continue  # expired: `expire` deletes the stream with the conversation
        except RowUnreadable:
            continue  # one damaged row must not stop the others
        assert row is not None
        _abort(conv, TurnRow(*row))
        aborted += 1
    return aborted


def next_lease_end(tx: Tx) -> int | None:
    end: int | None = tx.all(Q.next_lease_end)[0][0]
    return end


def _require_pending_turn(conv: OpenConversation, turn: str) -> TurnRow:
    row = conv.require_turn(turn)
    _require_pending(row)
    return row


def _require_pending(row: TurnRow) -> None:
    if row.status != "pending":
        raise StreamSealed(row.id, row.status)
