"""The log of conversations: reading events, logging announcements, seals. Each function is one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from palaver.core.identity import canonical_json, micros, moment
from palaver.engines.rows import Row, event_from_row, scope_params
from palaver.engines.sqlite.open_conversation import open_conversation
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
    tx.run(Q.archive_events, cid=conv.cid, n=tip.n)
    tx.run(Q.archive_quotes, cid=conv.cid, before=requests_before)
    tx.run(Q.archive_requests, cid=conv.cid, before=requests_before)
    conv.updated += 1
    conv.log("archive", conv.updated, payload={"through": tip.n, "hash": tip.hash})
    conv.save()
    return ArchivedRows(*counts)


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
