"""Deleting for good. Each function is one transaction; the writer cuts the WAL before it reports success."""

from __future__ import annotations

from itertools import starmap

from palaver.core.identity import digest, key_hash
from palaver.core.turn_draft import decode_calls, decode_results, stub_hash
from palaver.engines.rows import TurnRow, scope_params
from palaver.engines.sqlite import memory_invalidation as memory_invalidation
from palaver.engines.sqlite import requests
from palaver.engines.sqlite.connection import Tx
from palaver.engines.sqlite.open_conversation import OpenConversation, open_conversation
from palaver.engines.sqlite.queries import Q
from palaver.engines.sqlite.text_index import rewrite_separators, unindex, unindex_title
from palaver.model import Scope
from palaver.ports.queries import Deletion

EXPIRE_BATCH = 100
RETIRE_BATCH = 200


def forget_turn(tx: Tx, scope: Scope, conversation: str, turn: str) -> Deletion:
    _drop_generated_title(tx, scope, conversation)
    conv = open_conversation(tx, scope, conversation)
    row = conv.turn(turn)
    if row.status == "forgotten":
        return _forget_retired(conv, row) if not _is_forgotten(conv, row) else Deletion()
    rows = [row, *_results_of(conv, row)]
    for one in rows:
        conv.log("forget", conv.tick(), turn=one.id, content_hash=_forget(conv, one))
    conv.find_tip()
    memory_invalidation.cut_beyond_tip(conv)
    conv.refresh_preview()
    conv.save()
    _scrub_later(tx)
    return Deletion(turns=tuple(one.id for one in rows))


def _drop_generated_title(tx: Tx, scope: Scope, conversation: str) -> None:
    from palaver.engines.sqlite.conversations import (
        drop_generated_title,  # which needs this module to bury what expired
    )

    drop_generated_title(tx, scope, conversation)


def _is_forgotten(conv: OpenConversation, row: TurnRow) -> bool:
    return conv.tx.one(Q.forgotten_by, cid=conv.cid, turn=row.id) is not None


def _forget_retired(conv: OpenConversation, row: TurnRow) -> Deletion:
    """The words of a turn are gone already. Now what was made of them goes too, and the proof."""
    memory_invalidation.changed(conv, row)
    requests.forgotten(conv.tx, conv.cid, row.id, row.seq)
    conv.tx.run(Q.unsalt, tid=row.tid)
    hash = stub_hash(row.id, row.role, row.actor, row.created, row.idempotency_key, row.content_hash)
    conv.log("forget", conv.tick(), turn=row.id, content_hash=hash)
    conv.save()
    _scrub_later(conv.tx)
    return Deletion(turns=(row.id,))


def _results_of(conv: OpenConversation, row: TurnRow) -> list[TurnRow]:
    """The turns that answer the calls of `row`. An id that a later turn calls again belongs to that one from there."""
    open_calls = {call.id for call in decode_calls(row.tool_calls)}
    found: list[TurnRow] = []
    if not open_calls:
        return found
    for other in starmap(TurnRow, conv.tx.all(Q.tool_turns_after, cid=conv.cid, seq=row.seq)):
        open_calls -= {call.id for call in decode_calls(other.tool_calls)}
        if open_calls & {result.id for result in decode_results(other.tool_results)}:
            found.append(other)
    return found


def _forget(conv: OpenConversation, row: TurnRow) -> bytes:
    """Leave a stub: that something was said here, by whom and when, and nothing of what it was. Answers its hash."""
    tx = conv.tx
    unindex(conv, row)
    memory_invalidation.forgotten(conv, row)
    tx.run(Q.doom_turn_blobs, cid=conv.cid, tid=row.tid)
    tx.run(Q.drop_turn_attachments, cid=conv.cid, tid=row.tid)
    tx.run(Q.close_stream, tid=row.tid)
    key = None if row.idempotency_key is None else key_hash(conv.id, row.idempotency_key)
    tx.run(Q.stub, tid=row.tid, idempotency_key=key)
    if row.active:
        conv.turn_count -= 1
        conv.token_count -= row.token_count
    return stub_hash(row.id, row.role, row.actor, row.created, key, row.content_hash)


def retire(tx: Tx, scope: Scope, conversation: str, position: int, keep_salt: bool) -> Deletion:
    """Drop the words of turns that are summarised. Their summaries stay, and so does what they were worth.

    The last turn keeps its place in any case: the next one is counted from there.
    """
    conv = open_conversation(tx, scope, conversation)
    position = min(position, conv.tip_position)
    rows = [TurnRow(*row) for row in tx.all(Q.before_position, cid=conv.cid, position=position, limit=RETIRE_BATCH)]
    for row in rows:
        unindex(conv, row)
        tx.run(Q.unmark, tid=row.tid)
        tx.run(Q.drop_vectors_of_turn, tid=row.tid)
        requests.forgotten(tx, conv.cid, row.id, row.seq)
        tx.run(Q.doom_turn_blobs, cid=conv.cid, tid=row.tid)
        tx.run(Q.drop_turn_attachments, cid=conv.cid, tid=row.tid)
        key = row.idempotency_key
        hashed = None if key is None else key_hash(conv.id, key)
        hash = stub_hash(row.id, row.role, row.actor, row.created, hashed, row.content_hash)
        tx.run(Q.retire, tid=row.tid, keep_salt=int(keep_salt), idempotency_key=hashed)
        if row.active:
            conv.turn_count -= 1
            conv.token_count -= row.token_count
        salted = {"salt": True} if keep_salt else None
        conv.log("retire", conv.tick(), turn=row.id, payload=salted, content_hash=hash)
    if rows:
        tx.run(Q.bump, cid=conv.cid)
        memory_invalidation.recount(conv)
        conv.find_tip()
        conv.refresh_preview()
        conv.save()
        _scrub_later(tx)
    return Deletion(turns=tuple(row.id for row in rows))


def forget_older(tx: Tx, scope: Scope, before: int) -> Deletion:
    """Forget turns from before a moment, and what summaries still say of those whose words are gone already.

    Some at a time, so that writers can go in between.
    """
    values = {"before": before, "now": tx.now, "limit": RETIRE_BATCH, **scope_params(scope)}
    gone: list[str] = []
    for conversation, turn in tx.all(Q.older_than, **values):
        gone.extend(forget_turn(tx, scope, conversation, turn).turns)
    for conversation, turn in tx.all(Q.retired_and_older, **values):
        conv = open_conversation(tx, scope, conversation)
        gone.extend(_forget_retired(conv, conv.turn(turn)).turns)
    return Deletion(turns=tuple(gone))


def reset(tx: Tx, scope: Scope, conversation: str) -> Deletion:
    """Forget every turn and keep the conversation."""
    _drop_generated_title(tx, scope, conversation)
    conv = open_conversation(tx, scope, conversation)
    rows = [TurnRow(*row) for row in tx.all(Q.remembered, cid=conv.cid)]
    stubs = [_forget(conv, row) for row in rows]
    memory_invalidation.emptied(conv)
    tx.run(Q.unsalt_all, cid=conv.cid)
    tx.run(Q.doom_blobs, cid=conv.cid)
    tx.run(Q.drop_attachments, cid=conv.cid)
    conv.log("reset", conv.tick(), content_hash=digest(stubs))
    conv.preview = None
    conv.find_tip()
    conv.save()
    _scrub_later(tx)
    return Deletion(turns=tuple(row.id for row in rows))


def forget_conversation(tx: Tx, scope: Scope, conversation: str) -> Deletion:
    bury(open_conversation(tx, scope, conversation), "forget")
    return Deletion(conversations=(conversation,))


def expire(tx: Tx, scope: Scope) -> Deletion:
    """Delete conversations whose time is up; some at a time, so that writers can go in between."""
    ids = [row[0] for row in tx.all(Q.expired, now=tx.now, limit=EXPIRE_BATCH, **scope_params(scope))]
    for id in ids:
        bury(open_expired(tx, scope, id), "expire")
    return Deletion(conversations=tuple(ids))


def open_expired(tx: Tx, scope: Scope, id: str) -> OpenConversation:
    row = tx.one(Q.find_expired, tenant=scope.tenant, id=id)
    assert row is not None
    return OpenConversation(tx, scope, row)


def bury(conv: OpenConversation, kind: str) -> None:
    """Delete everything but the log, and close the log with a tombstone."""
    tx, cid = conv.tx, conv.cid
    for row in starmap(TurnRow, tx.all(Q.remembered, cid=cid)):
        unindex(conv, row)
    details = tx.one(Q.details, cid=cid)
    assert details is not None
    *_, title_pid = details
    if title_pid is not None:
        unindex_title(conv, title_pid, details[6])
    memory_invalidation.emptied(conv)
    for statement in (
        Q.doom_blobs,
        Q.drop_attachments,
        Q.drop_streams,
        Q.drop_turns,
        Q.drop_participants,
    ):
        tx.run(statement, cid=cid)
    tx.run(Q.lower_indexed_tid)
    at = conv.tick()
    conv.log(kind, at)
    conv.turn_count, conv.token_count, conv.preview, conv.ttl = 0, 0, None, None
    conv.save()
    tx.run(Q.bury, cid=cid, at=at)
    _scrub_later(tx)


def _scrub_later(tx: Tx) -> None:
    rewrite_separators(tx)
    tx.run(Q.mark_unscrubbed)
    tx.scrub = True
