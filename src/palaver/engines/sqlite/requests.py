"""What was sent to models. Each function is one transaction."""

from __future__ import annotations

from palaver.core.identity import micros, moment, stamped_seq
from palaver.engines.rows import Row, from_json_or_none, to_json_or_none
from palaver.engines.sqlite.connection import Tx
from palaver.engines.sqlite.open_conversation import find
from palaver.engines.sqlite.queries import Q
from palaver.model import Request, Scope
from palaver.ports.models import CounterBound

DELETIONS = ("forget", "reset", "retire")


def put(tx: Tx, scope: Scope, conversation: str, request: Request, bodies: int | None) -> None:
    """Store it, or add the response to the one that is there. What was forgotten meanwhile does not come back."""
    cid, _, _, next_seq, *_ = find(tx, scope, conversation)
    body = None if _was_cut(tx, scope, cid, request) else to_json_or_none(request.body)
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
    if body is None:
        return
    for _, turn in request.quoted:
        tx.run(Q.add_request_quote, turn=turn, rid=rows[0][0])
    if bodies is not None:
        tx.run(Q.drop_old_bodies, cid=cid, bodies=bodies)


def _was_cut(tx: Tx, scope: Scope, cid: int, request: Request) -> bool:
    """Whether something was deleted since the context was read: here, or where it quotes from."""
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


def listed(tx: Tx, scope: Scope, conversation: str, turn: str | None, before: str | None, limit: int) -> list[Request]:
    cid = find(tx, scope, conversation)[0]
    rows = tx.all(Q.requests, cid=cid, turn=turn, before=before, limit=limit)
    return [_request(conversation, row) for row in reversed(rows)]


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


# ---- deleting ------------------------------------------------------------------------------------------------------


def forgotten(tx: Tx, cid: int, turn: str, seq: int) -> None:
    """A turn is being forgotten: every body that may hold its words, or what was made of them, loses them."""
    tx.run(Q.drop_bodies_after, cid=cid, seq=seq)
    tx.run(Q.drop_bodies_quoting, turn=turn)


def emptied(tx: Tx, cid: int) -> None:
    """All turns are going."""
    tx.run(Q.drop_bodies_quoting_any, cid=cid)
    tx.run(Q.drop_request_quotes, cid=cid)
    tx.run(Q.drop_requests, cid=cid)


# ---- counting ------------------------------------------------------------------------------------------------------


def bound(tx: Tx, scope: Scope, model: str) -> CounterBound | None:
    row = tx.one(Q.counter_bound, tenant=scope.tenant, model=model)
    return None if row is None else CounterBound(model=row[0], ratio=row[1], samples=row[2])


def put_bound(tx: Tx, scope: Scope, bound: CounterBound) -> None:
    tx.run(
        Q.save_counter_bound,
        tenant=scope.tenant,
        model=bound.model,
        ratio=bound.ratio,
        samples=bound.samples,
        now=tx.now,
    )
