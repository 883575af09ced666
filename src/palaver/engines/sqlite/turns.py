"""Appending, reading and switching turns. Each function is one transaction."""

from __future__ import annotations

from msgspec import structs

from palaver.core.branches import switch as switch_branch
from palaver.core.identity import stamped_seq
from palaver.core.turn_draft import TurnDraft, content_hash, is_same_request, with_stored_key
from palaver.engines.rows import TurnRow, tree_node
from palaver.engines.sqlite import memory_invalidation
from palaver.engines.sqlite.filters import interval_params, json_or_none
from palaver.engines.sqlite.open_conversation import (
    NO_LIMIT,
    OpenConversation,
    open_conversation,
    require_cid,
    turn_row,
)
from palaver.engines.sqlite.queries import Q
from palaver.engines.sqlite.transaction import SqlValue, Tx
from palaver.errors import AppendConflict, IdempotencyConflict, TurnGone, TurnNotFound, TurnSuperseded
from palaver.model import Branch, Scope, Turn
from palaver.ports.queries import AppendBatch, HistoryQuery


def append(tx: Tx, scope: Scope, conversation: str, batch: AppendBatch) -> list[Turn]:
    conv = open_conversation(tx, scope, conversation)
    rows = [_stored_before(conv, draft) for draft in batch.drafts]
    if None in rows:
        check_expected(conv, batch)
        drafts = tuple(with_stored_key(draft, conversation) for draft in batch.drafts)
        rows = _add(conv, structs.replace(batch, drafts=drafts), rows)
        conv.save()
    return [row.turn(conversation) for row in rows if row]


def _stored_before(conv: OpenConversation, draft: TurnDraft) -> TurnRow | None:
    """Return the turn that an earlier try of the same call stored."""
    if draft.idempotency_key is None:
        return None
    row = conv.turn_by_key(draft.idempotency_key)
    if row is None:
        return None
    if row.status == "forgotten":
        raise TurnGone(row.id)
    if not is_same_request(draft, row.draft()):
        raise IdempotencyConflict(row.id)
    return row


def check_expected(conv: OpenConversation, batch: AppendBatch) -> None:
    if batch.expected_seq is not None and batch.expected_seq != conv.next_seq:
        raise AppendConflict(expected=batch.expected_seq, found=conv.next_seq)


def _add(conv: OpenConversation, batch: AppendBatch, rows: list[TurnRow | None]) -> list[TurnRow | None]:
    if batch.replaces is not None:
        return [replace(conv, batch.drafts[0], batch.replaces, batch.discard_after, "complete")]
    for index, draft in enumerate(batch.drafts):
        if rows[index] is None:
            rows[index] = row = conv.insert(draft, conv.tip_position + 1, conv.tip_slot, None, "complete")
            conv.log("append", conv.updated, actor=draft.actor, turn=row.id, content_hash=row.content_hash)
    return rows


def add_pending(conv: OpenConversation, draft: TurnDraft, replaces: str | None, discard_after: bool) -> TurnRow:
    if replaces is not None:
        return replace(conv, draft, replaces, discard_after, "pending")
    row = conv.insert(draft, conv.tip_position + 1, conv.tip_slot, None, "pending")
    conv.log("open", conv.updated, actor=draft.actor, turn=row.id, content_hash=opening_hash(row))
    return row


def opening_hash(row: TurnRow) -> bytes:
    """Hash the fields that a pending turn is opened with. Its text follows in pieces, each with its own hash."""
    return content_hash(row.id, row.draft(), row.created)


def replace(conv: OpenConversation, draft: TurnDraft, id: str, discard_after: bool, status: str) -> TurnRow:
    """Store a new version of a turn at its position; with `discard_after` it also replaces all later turns."""
    old = conv.require_turn(id)
    if not old.active and (old.status != "aborted" or old.superseded_by != old.id):
        raise TurnSuperseded(id, by=old.superseded_by)
    _check_place(conv, old, discard_after)
    new = conv.next_id(draft)
    if discard_after:
        memory_invalidation.drop_summaries_from(conv, old.position)
    else:
        memory_invalidation.invalidate_turn(conv, old)
    for displaced in _displaced(conv, old, discard_after):
        if displaced.status == "pending":
            abort(conv, displaced)
        else:
            conv.deactivate(displaced, by=new)
    if old.status in ("aborted", "pending"):
        conv.tx.run(Q.displace, cid=conv.cid, seq=old.seq, by=new)
    slot = None if discard_after else old.slot or old.id
    row = conv.insert(draft, old.position, old.parent, slot, status)
    conv.find_tip()
    payload: dict[str, object] = {"replaces": id}
    if discard_after:
        payload["discard_after"] = True
    kind, hash = ("append", row.content_hash) if status == "complete" else ("open", opening_hash(row))
    if discard_after:
        memory_invalidation.drop_notes_and_facts_from(conv, old.position)
    conv.log(kind, conv.updated, actor=draft.actor, turn=new, payload=payload, content_hash=hash)
    conv.refresh_preview()
    return row


def _check_place(conv: OpenConversation, old: TurnRow, discard_after: bool) -> None:
    """Raise TurnSuperseded when the position of an aborted turn was taken by another, or is on an inactive branch."""
    if old.active:
        return
    if rival := _displacing_turn(conv, old):
        raise TurnSuperseded(old.id, by=rival)
    if discard_after:
        return
    holder = conv.tx.one(Q.active_at, cid=conv.cid, position=old.position)
    if holder:
        raise TurnSuperseded(old.id, by=holder[0])


def _displacing_turn(conv: OpenConversation, old: TurnRow) -> str | None:
    """Return the active turn that made the branch of `old` inactive. None while the active path leads to `old`."""
    slot = old.parent
    while slot is not None:
        first = turn_row(conv.tx, conv.cid, slot)  # a slot has the id of its first version
        rows = conv.tx.all(Q.slot_nodes, cid=conv.cid, position=first.position, slot=slot)
        if any(tree_node(row).active for row in rows):
            return None
        if holder := conv.tx.one(Q.active_at, cid=conv.cid, position=first.position):
            return str(holder[0])
        slot = first.parent
    return None


def _displaced(conv: OpenConversation, old: TurnRow, discard_after: bool) -> list[TurnRow]:
    if discard_after:
        return [TurnRow(*row) for row in conv.tx.all(Q.active_from, cid=conv.cid, position=old.position)]
    return [old] if old.active else []


def abort(conv: OpenConversation, row: TurnRow) -> None:
    """End a pending turn as aborted. Its text stays for the record, outside the active branch."""
    hash = content_hash(row.id, row.draft(), row.created)
    conv.tx.run(Q.abort_turn, tid=row.tid, content_hash=hash)
    conv.tx.run(Q.close_stream, tid=row.tid)
    conv.log("abort", conv.tick(), actor=row.actor, turn=row.id, content_hash=hash)
    if row.active:
        conv.turn_count -= 1
        conv.token_count -= row.token_count
        conv.find_tip()


# ---- reading -------------------------------------------------------------------------------------------------------


def history(tx: Tx, scope: Scope, conversation: str, query: HistoryQuery) -> list[Turn]:
    cid = require_cid(tx, scope, conversation)
    which = int(query.include_superseded)  # a cursor is a position in the view, or a seq among all turns
    values: dict[str, SqlValue] = {
        "cid": cid,
        "before": NO_LIMIT if query.before is None else _cursor(tx, cid, query.before)[which],
        "after": -1 if query.after is None else _cursor(tx, cid, query.after)[which],
        "since": query.since,
        "until": query.until,
        "roles": json_or_none(query.roles),
        "actors": json_or_none(query.participants),
        "limit": query.limit,
    }
    # With only `after`, the turns that follow it; otherwise the latest.
    forwards = query.after is not None and query.before is None
    name = ("history_all" if query.include_superseded else "history_active") + ("_forwards" if forwards else "")
    sql = getattr(Q, name)
    if query.metadata:
        sql = sql.replace("FROM turns t", f"FROM ({Q.turns_with}) f CROSS JOIN turns t ON t.tid = f.tid", 1)
        values |= interval_params(query.metadata)
    rows = tx.all(sql, **values)
    if not forwards:
        rows.reverse()
    return [TurnRow(*row).turn(conversation) for row in rows]


def _cursor(tx: Tx, cid: int, id: str) -> tuple[int, int]:
    row = tx.one(Q.cursor, cid=cid, id=id, seq=stamped_seq(id))
    if row is None:
        raise TurnNotFound(id)
    return row[0], row[1]


def turn(tx: Tx, scope: Scope, conversation: str, id: str) -> Turn:
    found = turn_row(tx, require_cid(tx, scope, conversation), id)
    if found.status == "forgotten":
        raise TurnGone(id)
    return found.turn(conversation)


# ---- branches ------------------------------------------------------------------------------------------------------


def branches(tx: Tx, scope: Scope, conversation: str, id: str | None) -> list[Branch]:
    cid = require_cid(tx, scope, conversation)
    if id is not None:
        here = turn_row(tx, cid, id)
        places = [(here.position, here.parent)]
    else:
        places = [(row[0], row[1]) for row in tx.all(Q.branch_places, cid=cid)]
    found = [Branch(position, _versions(tx, cid, conversation, position, parent)) for position, parent in places]
    return [one for one in found if one.turns]


def _versions(tx: Tx, cid: int, conversation: str, position: int, parent: str | None) -> tuple[Turn, ...]:
    rows = tx.all(Q.versions, cid=cid, position=position, parent=parent)
    return tuple(TurnRow(*row).turn(conversation) for row in rows)


def switch(tx: Tx, scope: Scope, conversation: str, id: str) -> None:
    conv = open_conversation(tx, scope, conversation)
    target = conv.require_turn(id)
    if target.active:
        return
    if target.status == "aborted":
        raise TurnSuperseded(id, by=None)
    divergence = _divergence(conv, target)
    memory_invalidation.drop_summaries_from(conv, divergence)
    nodes = [tree_node(row) for row in tx.all(Q.nodes_from, cid=conv.cid, position=divergence)]
    change = switch_branch(nodes, next(one for one in nodes if one.id == id))
    for one in change.off:
        conv.deactivate(one, by=change.by)
    for one in change.on:
        conv.activate(one)
    for one, by in change.displaced:
        tx.run(Q.displace, cid=conv.cid, seq=one.seq, by=by)
    conv.find_tip()
    memory_invalidation.drop_notes_and_facts_from(conv, divergence)
    conv.log("switch", conv.tick(), turn=id)
    conv.refresh_preview()
    conv.save()


def _divergence(conv: OpenConversation, target: TurnRow) -> int:
    """Return the lowest position that the switch may change: where the path to `target` leaves the active one."""
    position, slot = target.position, target.parent
    while slot is not None:
        first = turn_row(conv.tx, conv.cid, slot)  # a slot has the id of its first version
        rows = conv.tx.all(Q.slot_nodes, cid=conv.cid, position=first.position, slot=slot)
        if any(tree_node(row).active for row in rows):
            break
        position, slot = first.position, first.parent
    return position
