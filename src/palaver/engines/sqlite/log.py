"""The log of conversations: reading events, logging announcements, seals. Each function is one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from palaver.core.derived_rows import COVERED, PROOF, ROWS
from palaver.core.identity import canonical_json, micros, moment
from palaver.engines.rows import Row, event_from_row, scope_params
from palaver.engines.sqlite import proof
from palaver.engines.sqlite.open_conversation import OpenConversation, open_conversation, require_cid
from palaver.engines.sqlite.queries import Q
from palaver.engines.sqlite.transaction import Tx
from palaver.errors import ConversationNotFound, InvalidInput
from palaver.model import Event, LogSeal, Scope, Tip
from palaver.ports.engine import ANNOUNCED
from palaver.ports.queries import ArchivedRows, EventQuery


def events(tx: Tx, scope: Scope, conversation: str, query: EventQuery) -> list[Event]:
    """Read the log of a conversation, which remains after the conversation is deleted."""
    found = tx.one(Q.find_any, id=conversation, **scope_params(scope))
    if found is None:
        raise ConversationNotFound(conversation)
    rows = tx.all(
        Q.events,
        cid=found[0],
        after=query.after,
        turn=query.turn,
        since=query.since,
        until=query.until,
        kinds=None if query.kinds is None else canonical_json(query.kinds),
        actors=None if query.actors is None else canonical_json(query.actors),
        limit=query.limit,
    )
    return [event_from_row(row, conversation) for row in rows]


def announce(tx: Tx, scope: Scope, conversation: str, kind: str, turn: str | None) -> int:
    """Log an event for readers that follow the log. Returns its number."""
    if kind not in ANNOUNCED:
        raise InvalidInput("kind", f"must be one of {', '.join(ANNOUNCED)}")
    conv = open_conversation(tx, scope, conversation)
    if turn is not None:
        conv.require_turn(turn)
    conv.log(kind, conv.tick(), turn=turn)
    conv.save()
    return int(conv.next_n) - 1


def archive_log(tx: Tx, scope: Scope, tip: Tip, requests_before: int) -> ArchivedRows:
    """Delete the events through `tip`, and the requests before a time. The caller has stored them elsewhere.

    It is logged at the time of the last event before: archiving does not make a conversation a recent one.
    """
    conv = open_conversation(tx, scope, tip.conversation)
    hash = bytes.fromhex(tip.hash)
    if tx.one(Q.event_with_hash, cid=conv.cid, n=tip.n, hash=hash) is None:
        raise InvalidInput("through", "is not the number of the event with this hash")
    counts = tx.all(Q.count_to_archive, cid=conv.cid, n=tip.n, before=requests_before)[0]
    requests = [id for (id,) in tx.all(Q.requests_before, cid=conv.cid, before=requests_before)]
    tx.run(Q.archive_quotes, cid=conv.cid, before=requests_before)
    tx.run(Q.archive_requests, cid=conv.cid, before=requests_before)
    if gone := proof.prove(tx, conv.cid, conv.next_n, proof.keys_of_requests(requests)):
        conv.log("prove", conv.updated, payload={ROWS: gone})
    covered = _carry_proofs(conv, tip.n)
    tx.run(Q.archive_events, cid=conv.cid, n=tip.n)
    conv.updated += 1
    if covered:
        tx.run(Q.save_proof, cid=conv.cid, key=COVERED, n=conv.next_n, salt=b"")
    conv.log("archive", conv.updated, payload={"through": tip.n, "hash": tip.hash, **covered})
    conv.save()
    return ArchivedRows(*counts)


def _carry_proofs(conv: OpenConversation, through: int) -> dict[str, int]:
    """Log again what the events to be archived say of rows that exist. Returns whether the log knows every row."""
    tx = conv.tx
    for rows in list(proof.restate(tx, conv.cid, through)):
        for key in rows:
            tx.run(Q.move_proof, cid=conv.cid, key=key, n=conv.next_n)
        conv.log("prove", conv.updated, payload={ROWS: rows})
    return {PROOF: 1} if proof.is_covered(tx, conv.cid) else {}


def prove_rows(tx: Tx, scope: Scope, conversation: str, limit: int) -> bool:
    """Bring rows from before proofs into the log, up to a number. True when there are more."""
    conv = open_conversation(tx, scope, conversation)
    if proof.is_covered(tx, conv.cid):
        return False
    keys = [key for (key,) in tx.all(Q.unproven_keys, cid=conv.cid, limit=limit)]
    rows = proof.prove(tx, conv.cid, conv.next_n, keys)
    covered = {} if len(keys) == limit else {PROOF: 1}
    if covered:
        tx.run(Q.save_proof, cid=conv.cid, key=COVERED, n=conv.next_n, salt=b"")
    conv.log("prove", conv.updated, payload={ROWS: rows, **covered})
    conv.save()
    return not covered


def mismatched_rows(tx: Tx, scope: Scope, conversation: str) -> list[str]:
    return proof.mismatched(tx, require_cid(tx, scope, conversation))


def tenants(tx: Tx) -> list[str]:
    return [row[0] for row in tx.all(Q.tenants)]


# ---- seals ---------------------------------------------------------------------------------------------------------


def tips(tx: Tx, scope: Scope, after: str, limit: int) -> list[Tip]:
    return [_tip(row) for row in tx.all(Q.tips, after=after, limit=limit, **scope_params(scope))]


def unsealed(tx: Tx, tenant: str, limit: int) -> list[Tip]:
    return [_tip(row) for row in tx.all(Q.unsealed, tenant=tenant, limit=limit)]


def _tip(row: Row) -> Tip:
    return Tip(conversation=row[0], n=row[1], hash=row[2].hex())


def put_seals(tx: Tx, tenant: str, seals: Sequence[LogSeal]) -> None:
    for one in seals:
        tx.run(
            Q.put_seal,
            tenant=tenant,
            conversation=one.tip.conversation,
            n=one.tip.n,
            tip=bytes.fromhex(one.tip.hash),
            seal=bytes.fromhex(one.seal),
            at=micros(one.at),
        )


def seals(tx: Tx, scope: Scope, conversation: str) -> list[LogSeal]:
    rows = tx.all(Q.seals, tenant=scope.tenant, conversation=conversation)
    return [
        LogSeal(tip=Tip(conversation=conversation, n=n, hash=tip.hex()), at=moment(at), seal=seal.hex())
        for n, tip, seal, at in rows
    ]
