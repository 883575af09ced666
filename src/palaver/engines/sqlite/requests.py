"""Recorded requests to models, and bounds of their token counts. Each function is one transaction."""

from __future__ import annotations

from palaver.core.derived_rows import request_keys
from palaver.core.identity import micros, moment, stamped_seq
from palaver.engines.rows import Row, from_json_or_none, to_json_or_none
from palaver.engines.sqlite import proof
from palaver.engines.sqlite.open_conversation import open_conversation, require_cid
from palaver.engines.sqlite.queries import Q
from palaver.engines.sqlite.transaction import Tx
from palaver.model import Request, Scope
from palaver.ports.memory import CallCount
from palaver.ports.models import CounterBound

BODIES_AT_ONCE = 5  # each may be as long as a context
DELETIONS = ("forget", "reset", "retire")  # kinds of events


def put(tx: Tx, scope: Scope, conversation: str, request: Request, bodies: int | None) -> None:
    """Store a request, or add the response to the stored one. A body that quotes deleted turns is not stored."""
    conv = open_conversation(tx, scope, conversation)
    cid, next_seq = conv.cid, conv.next_seq
    body = None if _quotes_deleted(tx, scope, cid, request) else to_json_or_none(request.body)
    record, sent = request_keys(request.id)
    is_stored = proof.values_of(tx, cid, record) is not None
    is_changed = is_stored and not conv.fits(record)
    rows = tx.all(
        Q.add_request,
        cid=cid,
        id=request.id,
        turn=request.turn,
        purpose=request.purpose,
        at=micros(request.at),
        model=request.model,
        adapter=request.adapter,
        next_seq=next_seq,
        body=body,
        explanation=to_json_or_none(request.explanation),
        response=to_json_or_none(request.response),
    )
    if not is_changed:
        conv.changed(record)
    if body is not None:
        if not is_stored:
            conv.changed(sent)
        for _, turn in request.quoted:
            tx.run(Q.add_request_quote, turn=turn, rid=rows[0][0])
        if bodies is not None:
            tx.run(Q.drop_old_bodies, cid=cid, bodies=bodies)
    conv.save()


def _quotes_deleted(tx: Tx, scope: Scope, cid: int, request: Request) -> bool:
    """True if something was deleted since the context was read: in this conversation, or in one that it quotes."""
    if request.body is None:
        return True
    since = micros(request.at)
    for kind, at in tx.db.execute(Q.latest_events, {"cid": cid}):
        if at < since:
            break
        if kind in DELETIONS:
            return True
    return any(
        tx.one(Q.quotable, tenant=scope.tenant, conversation=conversation, turn=turn, seq=stamped_seq(turn)) is None
        for conversation, turn in request.quoted
    )


def requests(
    tx: Tx, scope: Scope, conversation: str, turn: str | None, before: str | None, limit: int
) -> list[Request]:
    cid = require_cid(tx, scope, conversation)
    rows = tx.all(Q.requests, cid=cid, turn=turn, before=before, limit=limit)
    return [_request(conversation, row) for row in reversed(rows)]


def count_calls(tx: Tx, scope: Scope, conversation: str, since: int) -> CallCount:
    """Count the calls of background work since a time."""
    cid = require_cid(tx, scope, conversation)
    calls = 0
    for purpose, at in tx.db.execute(Q.latest_requests, {"cid": cid}):
        if at < since:
            break
        calls += purpose != "generate"
    return CallCount(calls=calls, in_use=tx.one(Q.in_use, cid=cid) is not None)


def _request(conversation: str, row: Row) -> Request:
    id, turn, purpose, at, model, adapter, body, explanation, response = row
    return Request(
        id=id,
        conversation=conversation,
        turn=turn,
        purpose=purpose,
        at=moment(at),
        model=model,
        adapter=adapter,
        body=from_json_or_none(body),
        explanation=from_json_or_none(explanation),
        response=from_json_or_none(response),
    )


# ---- deletion ------------------------------------------------------------------------------------------------------


def drop_bodies_after(tx: Tx, cid: int, seq: int) -> None:
    """Delete every body of a conversation that may quote a turn, or a summary, note or fact derived from it."""
    tx.run(Q.drop_bodies_after, cid=cid, seq=seq)


def drop_some_bodies(tx: Tx, cid: int, seq: int) -> bool:
    """Delete a few of those bodies. False when none are left."""
    return bool(tx.all(Q.drop_some_bodies, cid=cid, seq=seq, limit=BODIES_AT_ONCE))


def drop_bodies_quoting(tx: Tx, turn: str) -> None:
    """Delete the bodies of requests in other conversations that quote a turn."""
    tx.run(Q.drop_bodies_quoting, turn=turn)


def drop_requests(tx: Tx, cid: int) -> None:
    """Delete all requests of a conversation, and the bodies elsewhere that quote its turns."""
    tx.run(Q.drop_bodies_quoting_any, cid=cid)
    tx.run(Q.drop_request_quotes, cid=cid)
    tx.run(Q.drop_requests, cid=cid)


# ---- token counts --------------------------------------------------------------------------------------------------


def counter_bound(tx: Tx, scope: Scope, model: str) -> CounterBound | None:
    row = tx.one(Q.counter_bound, tenant=scope.tenant, model=model)
    return None if row is None else CounterBound(model=row[0], ratio=row[1], samples=row[2])


def put_counter_bound(tx: Tx, scope: Scope, bound: CounterBound) -> None:
    tx.run(
        Q.save_counter_bound,
        tenant=scope.tenant,
        model=bound.model,
        ratio=bound.ratio,
        samples=bound.samples,
        now=tx.now,
    )
