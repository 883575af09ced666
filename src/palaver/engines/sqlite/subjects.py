"""Memory of subjects: items and their sources. Each function is one transaction.

An item is proved by the log of the subject's conversation, like every derived row. It is deleted with the last turn
that says it, even if another user deletes the turn (memory_invalidation.unlearn).
"""

from __future__ import annotations

from collections.abc import Sequence

from palaver.core.derived_rows import item_key, source_key
from palaver.core.identity import canonical_json, micros, moment, optional_micros, stamped_seq
from palaver.engines.rows import read_item, scope_params
from palaver.engines.sqlite.open_conversation import OpenConversation, open_conversation, require_cid
from palaver.engines.sqlite.proof import Proofs
from palaver.engines.sqlite.queries import Q
from palaver.engines.sqlite.transaction import Tx
from palaver.model import ItemSource, MemoryItem, Scope
from palaver.ports.subjects import ALL_ITEMS, ItemQuery, ItemsDraft, ItemWords


def items(tx: Tx, scope: Scope, conversation: str, query: ItemQuery) -> list[MemoryItem]:
    """Read items, newest first. Those that the log contradicts are left out, and so are such sources."""
    cid = require_cid(tx, scope, conversation)
    values = {"cid": cid, "status": query.status, "ended": int(query.include_ended), "limit": query.limit}
    if query.ids is not None:
        rows = tx.all(Q.items_with_ids, ids=canonical_json(list(query.ids)), **values)
    elif query.kind is not None:
        rows = tx.all(Q.items_of_kind, kind=query.kind, **values)
    else:
        rows = tx.all(Q.items, **values)
    proofs = Proofs(tx, cid)
    fitting = [row for row in rows if proofs.fits(item_key(row[0]))]
    sources = _sources(tx, scope, cid, [row[0] for row in fitting], proofs)
    return [read_item(row, sources.get(row[0], ())) for row in fitting]


def _sources(tx: Tx, scope: Scope, cid: int, ids: list[str], proofs: Proofs) -> dict[str, list[ItemSource]]:
    found: dict[str, list[ItemSource]] = {}
    values = {"ids": canonical_json(ids), "now": tx.now, **scope_params(scope)}
    for item, conversation, turn, said, title in tx.all(Q.sources_of, cid=cid, **values):
        if proofs.fits(source_key(item, turn)):
            source = ItemSource(conversation=conversation, turn=turn, said=moment(said), title=title)
            found.setdefault(item, []).append(source)
    return found


def item_words(tx: Tx, scope: Scope, conversation: str) -> list[ItemWords]:
    cid = require_cid(tx, scope, conversation)
    return [ItemWords(*row) for row in tx.all(Q.item_words, cid=cid, limit=ALL_ITEMS)]


def put_items(tx: Tx, scope: Scope, conversation: str, draft: ItemsDraft) -> list[str] | None:
    """Store the changes, and return the ids of the new items. None when the memory has changed since it was read."""
    conv = open_conversation(tx, scope, conversation)
    if draft.after is not None and conv.next_n - 1 != draft.after:
        return None
    at = conv.tick()
    added = [item.id for item in draft.new if _add(conv, item, at)]
    sourced = sum(_add_source(conv, item, source) for item, source in draft.sources if _is_there(conv, item))
    ended = [one for one in draft.ended if one.by is None or one.by in added or _is_there(conv, one.by)]
    fitting = set(conv.fits(*(item_key(id) for id in (*(one.id for one in ended), *draft.approved))))
    changed = [one.id for one in ended if tx.all(Q.end_item, cid=conv.cid, id=one.id, at=micros(one.at), by=one.by)]
    changed += [id for id in draft.approved if tx.all(Q.approve_item, cid=conv.cid, id=id)]
    conv.changed(*(item_key(id) for id in changed if item_key(id) in fitting))
    if added or sourced or changed:
        conv.log(draft.event, at, payload={"new": len(added), "changed": len(changed)})
        conv.save()
    return added


def _is_there(conv: OpenConversation, item: str) -> bool:
    return conv.tx.one(Q.has_item, cid=conv.cid, id=item) is not None


def _add(conv: OpenConversation, item: MemoryItem, at: int) -> bool:
    live = [source for source in item.sources if _is_said(conv, source)]
    if item.sources and not live:
        return False
    conv.tx.run(
        Q.add_item,
        cid=conv.cid,
        id=item.id,
        kind=item.kind,
        subject=item.subject,
        predicate=item.predicate,
        object=item.object,
        confidence=item.confidence,
        valid_from=optional_micros(item.valid_from),
        valid_to=optional_micros(item.valid_to),
        learnt=micros(item.learnt_at),
        origin=item.origin,
        status=item.status,
        said_by=item.said_by,
        by=item.by,
        created=at,
    )
    conv.changed(item_key(item.id))
    for source in live:
        _add_source(conv, item.id, source)
    return True


def _is_said(conv: OpenConversation, source: ItemSource) -> bool:
    values = {"conversation": source.conversation, "turn": source.turn, "seq": stamped_seq(source.turn)}
    return conv.tx.one(Q.is_said, tenant=conv.scope.tenant, **values) is not None


def _add_source(conv: OpenConversation, item: str, source: ItemSource) -> bool:
    said, place = micros(source.said), {"conversation": source.conversation, "turn": source.turn}
    if not _is_said(conv, source) or not conv.tx.all(Q.add_source, cid=conv.cid, item=item, said=said, **place):
        return False
    conv.changed(source_key(item, source.turn))
    return True


def drop_items(tx: Tx, scope: Scope, conversation: str, ids: Sequence[str]) -> list[str]:
    """Delete items. Those that they had ended hold again. Returns the ids of those that were there."""
    conv = open_conversation(tx, scope, conversation)
    dropped = [id for id in ids if tx.all(Q.drop_item, cid=conv.cid, id=id)]
    for id in dropped:
        turns = [turn for (turn,) in tx.all(Q.drop_sources, cid=conv.cid, item=id)]
        conv.changed(item_key(id), *(source_key(id, turn) for turn in turns))
    if dropped:
        conv.log("drop_item", conv.tick(), payload={"items": len(dropped)})
        conv.save()
        tx.run(Q.mark_unscrubbed)
        tx.scrub = True
    return dropped


def items_of_author(tx: Tx, scope: Scope, conversation: str, author: str) -> list[str]:
    """Find the items that a person wrote, or said about the subject."""
    cid = require_cid(tx, scope, conversation)
    return [id for (id,) in tx.all(Q.items_of_author, cid=cid, author=author)]
