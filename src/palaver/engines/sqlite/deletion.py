"""Deleting for good. Each function is one transaction; the writer cuts the WAL before it reports success."""

from __future__ import annotations

from itertools import starmap

from palaver.core.identity import digest, key_hash
from palaver.core.turn_draft import decode_calls, decode_results, stub_hash
from palaver.engines.rows import TurnRow, who
from palaver.engines.sqlite import memory_invalidation as memory_invalidation
from palaver.engines.sqlite import requests
from palaver.engines.sqlite.connection import Tx
from palaver.engines.sqlite.open_conversation import Q, Thread, open_thread
from palaver.engines.sqlite.text_index import mend_signposts, unindex, unindex_title
from palaver.model import Scope
from palaver.ports.queries import Deletion

EXPIRE_BATCH = 100
RETIRE_BATCH = 200


def forget_turn(tx: Tx, scope: Scope, conversation: str, turn: str) -> Deletion:
    _drop_made_title(tx, scope, conversation)
    thread = open_thread(tx, scope, conversation)
    row = thread.turn(turn)
    if row.status == "forgotten":
        return _forget_retired(thread, row) if not _is_forgotten(thread, row) else Deletion()
    rows = [row, *_results_of(thread, row)]
    for one in rows:
        thread.log("forget", thread.tick(), turn=one.id, content_hash=_forget(thread, one))
    thread.find_tip()
    memory_invalidation.cut_beyond_tip(thread)
    thread.refresh_preview()
    thread.save()
    _scrub_later(tx)
    return Deletion(turns=tuple(one.id for one in rows))


def _drop_made_title(tx: Tx, scope: Scope, conversation: str) -> None:
    from palaver.engines.sqlite.conversations import drop_made_title  # which needs this module to bury what expired

    drop_made_title(tx, scope, conversation)


def _is_forgotten(thread: Thread, row: TurnRow) -> bool:
    return thread.tx.one(Q.forgotten_by, cid=thread.cid, turn=row.id) is not None


def _forget_retired(thread: Thread, row: TurnRow) -> Deletion:
    """The words of a turn are gone already. Now what was made of them goes too, and the proof."""
    memory_invalidation.changed(thread, row)
    requests.forgotten(thread.tx, thread.cid, row.id, row.seq)
    thread.tx.run(Q.unsalt, tid=row.tid)
    hash = stub_hash(row.id, row.role, row.actor, row.created, row.idempotency_key, row.content_hash)
    thread.log("forget", thread.tick(), turn=row.id, content_hash=hash)
    thread.save()
    _scrub_later(thread.tx)
    return Deletion(turns=(row.id,))


def _results_of(thread: Thread, row: TurnRow) -> list[TurnRow]:
    """The turns that answer the calls of `row`. An id that a later turn calls again belongs to that one from there."""
    open_calls = {call.id for call in decode_calls(row.tool_calls)}
    found: list[TurnRow] = []
    if not open_calls:
        return found
    for other in starmap(TurnRow, thread.tx.all(Q.tool_turns_after, cid=thread.cid, seq=row.seq)):
        open_calls -= {call.id for call in decode_calls(other.tool_calls)}
        if open_calls & {result.id for result in decode_results(other.tool_results)}:
            found.append(other)
    return found


def _forget(thread: Thread, row: TurnRow) -> bytes:
    """Leave a stub: that something was said here, by whom and when, and nothing of what it was. Answers its hash."""
    tx = thread.tx
    unindex(thread, row)
    memory_invalidation.forgotten(thread, row)
    tx.run(Q.doom_turn_blobs, cid=thread.cid, tid=row.tid)
    tx.run(Q.drop_turn_attachments, cid=thread.cid, tid=row.tid)
    tx.run(Q.close_stream, tid=row.tid)
    key = None if row.idempotency_key is None else key_hash(thread.id, row.idempotency_key)
    tx.run(Q.stub, tid=row.tid, idempotency_key=key)
    if row.active:
        thread.turn_count -= 1
        thread.token_count -= row.token_count
    return stub_hash(row.id, row.role, row.actor, row.created, key, row.content_hash)


def retire(tx: Tx, scope: Scope, conversation: str, position: int, keep_salt: bool) -> Deletion:
    """Drop the words of turns that are summarised. Their summaries stay, and so does what they were worth.

    The last turn keeps its place in any case: the next one is counted from there.
    """
    thread = open_thread(tx, scope, conversation)
    position = min(position, thread.tip_position)
    rows = [TurnRow(*row) for row in tx.all(Q.before_position, cid=thread.cid, position=position, limit=RETIRE_BATCH)]
    for row in rows:
        unindex(thread, row)
        tx.run(Q.unmark, tid=row.tid)
        tx.run(Q.drop_vectors_of_turn, tid=row.tid)
        requests.forgotten(tx, thread.cid, row.id, row.seq)
        tx.run(Q.doom_turn_blobs, cid=thread.cid, tid=row.tid)
        tx.run(Q.drop_turn_attachments, cid=thread.cid, tid=row.tid)
        key = row.idempotency_key
        hashed = None if key is None else key_hash(thread.id, key)
        hash = stub_hash(row.id, row.role, row.actor, row.created, hashed, row.content_hash)
        tx.run(Q.retire, tid=row.tid, keep_salt=int(keep_salt), idempotency_key=hashed)
        if row.active:
            thread.turn_count -= 1
            thread.token_count -= row.token_count
        salted = {"salt": True} if keep_salt else None
        thread.log("retire", thread.tick(), turn=row.id, payload=salted, content_hash=hash)
    if rows:
        tx.run(Q.bump, cid=thread.cid)
        memory_invalidation.recount(thread)
        thread.find_tip()
        thread.refresh_preview()
        thread.save()
        _scrub_later(tx)
    return Deletion(turns=tuple(row.id for row in rows))


def forget_older(tx: Tx, scope: Scope, before: int) -> Deletion:
    """Forget turns from before a moment, and what summaries still say of those whose words are gone already.

    Some at a time, so that writers can go in between.
    """
    values = {"before": before, "now": tx.now, "limit": RETIRE_BATCH, **who(scope)}
    gone: list[str] = []
    for conversation, turn in tx.all(Q.older_than, **values):
        gone.extend(forget_turn(tx, scope, conversation, turn).turns)
    for conversation, turn in tx.all(Q.retired_and_older, **values):
        thread = open_thread(tx, scope, conversation)
        gone.extend(_forget_retired(thread, thread.turn(turn)).turns)
    return Deletion(turns=tuple(gone))


def reset(tx: Tx, scope: Scope, conversation: str) -> Deletion:
    """Forget every turn and keep the conversation."""
    _drop_made_title(tx, scope, conversation)
    thread = open_thread(tx, scope, conversation)
    rows = [TurnRow(*row) for row in tx.all(Q.remembered, cid=thread.cid)]
    stubs = [_forget(thread, row) for row in rows]
    memory_invalidation.emptied(thread)
    tx.run(Q.unsalt_all, cid=thread.cid)
    tx.run(Q.doom_blobs, cid=thread.cid)
    tx.run(Q.drop_attachments, cid=thread.cid)
    thread.log("reset", thread.tick(), content_hash=digest(stubs))
    thread.preview = None
    thread.find_tip()
    thread.save()
    _scrub_later(tx)
    return Deletion(turns=tuple(row.id for row in rows))


def forget_conversation(tx: Tx, scope: Scope, conversation: str) -> Deletion:
    bury(open_thread(tx, scope, conversation), "forget")
    return Deletion(conversations=(conversation,))


def expire(tx: Tx, scope: Scope) -> Deletion:
    """Delete conversations whose time is up; some at a time, so that writers can go in between."""
    ids = [row[0] for row in tx.all(Q.expired, now=tx.now, limit=EXPIRE_BATCH, **who(scope))]
    for id in ids:
        bury(expired_thread(tx, scope, id), "expire")
    return Deletion(conversations=tuple(ids))


def expired_thread(tx: Tx, scope: Scope, id: str) -> Thread:
    row = tx.one(Q.find_expired, tenant=scope.tenant, id=id)
    assert row is not None
    return Thread(tx, scope, row)


def bury(thread: Thread, kind: str) -> None:
    """Delete everything but the log, and close the log with a tombstone."""
    tx, cid = thread.tx, thread.cid
    for row in starmap(TurnRow, tx.all(Q.remembered, cid=cid)):
        unindex(thread, row)
    details = tx.one(Q.details, cid=cid)
    assert details is not None
    *_, title_pid = details
    if title_pid is not None:
        unindex_title(thread, title_pid, details[6])
    memory_invalidation.emptied(thread)
    for statement in (
        Q.doom_blobs,
        Q.drop_attachments,
        Q.drop_streams,
        Q.drop_turns,
        Q.drop_participants,
    ):
        tx.run(statement, cid=cid)
    tx.run(Q.lower_indexed_tid)
    at = thread.tick()
    thread.log(kind, at)
    thread.turn_count, thread.token_count, thread.preview, thread.ttl = 0, 0, None, None
    thread.save()
    tx.run(Q.bury, cid=cid, at=at)
    _scrub_later(tx)


def _scrub_later(tx: Tx) -> None:
    mend_signposts(tx)
    tx.run(Q.mark_unscrubbed)
    tx.scrub = True
