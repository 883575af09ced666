"""Taking over a copy of a conversation from another store. One transaction.

A turn that is the same in both keeps its row, and with it its place in the text index and its vectors. Every other row
is replaced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from palaver.audit.derived import keys_of
from palaver.core.derived_rows import source_key
from palaver.engines.rows import TurnRow
from palaver.engines.sqlite import memory_invalidation, requests
from palaver.engines.sqlite.deletion import request_scrub
from palaver.engines.sqlite.embeddings import drop_vectors_of_turn
from palaver.engines.sqlite.export_rows import portable, restore_details, restore_rows, update_row
from palaver.engines.sqlite.open_conversation import OpenConversation
from palaver.engines.sqlite.queries import Q
from palaver.engines.sqlite.text_index import unindex, unindex_title
from palaver.engines.sqlite.transaction import Tx
from palaver.errors import ConversationGone
from palaver.model import Scope
from palaver.ports.queries import Adoption, Record

# Deleted before a whole copy takes their place; turns, events and the row of the conversation are handled one by one.
REPLACED = (
    Q.forget_summaries,
    Q.drop_working_memory,
    Q.drop_facts,
    Q.drop_set_aside,
    Q.drop_items,
    Q.drop_item_sources,
    Q.drop_request_quotes,
    Q.drop_requests,
    Q.drop_all_proofs,
    Q.doom_blobs,
    Q.drop_attachments,
    Q.drop_places,
    Q.drop_events,
    Q.forget_counts,
)


def adopt(tx: Tx, scope: Scope, adoption: Adoption) -> bool:
    """Store a copy in place of a conversation. False when its log is no longer the expected one."""
    known = tx.one(Q.known, tenant=scope.tenant, id=adoption.expected.conversation)
    if known is None or known[2]:
        raise ConversationGone(adoption.expected.conversation)
    if (known[0] - 1, known[1].hex()) != (adoption.expected.n, adoption.expected.hash):
        return False
    found = tx.one(Q.find_expired, tenant=scope.tenant, id=adoption.expected.conversation)
    assert found is not None
    conv = OpenConversation(tx, scope, found)
    turns = _clear(conv, adoption) if adoption.whole else _drop_derived(conv, adoption)
    _store(conv, adoption, turns)
    request_scrub(tx)
    return True


def _store(conv: OpenConversation, adoption: Adoption, turns: dict[str, int]) -> None:
    tx, row = conv.tx, portable(adoption.records[0].row)
    _replace_title(conv)
    tx.run(Q.drop_participants, cid=conv.cid)
    update_row(tx, "conversations", {**row, "cid": conv.cid, "tenant": conv.scope.tenant})
    old, conv.id = conv.id, row["id"]
    conv.turn_count, conv.token_count = row["turn_count"], row["token_count"]
    tx.touched.add(conv.id)
    restore_details(conv, row)
    restore_rows(conv, [one for one in adoption.records[1:] if one.row.get("id") not in turns], turns)
    tx.run(Q.keep_blobs, cid=conv.cid)
    tx.run(Q.drop_false_seals, tenant=conv.scope.tenant, old=old, new=conv.id, cid=conv.cid)
    tx.run(Q.bump, cid=conv.cid)
    conv.changed_rows.clear()  # the log of the copy has them
    _move_sources(conv, adoption.moved)


def _replace_title(conv: OpenConversation) -> None:
    details = conv.tx.one(Q.details, cid=conv.cid)
    assert details is not None
    if (pid := details[-1]) is not None:
        unindex_title(conv, pid, details[6])
        conv.tx.run(Q.save_title_pid, cid=conv.cid, title_pid=None)


# ---- a whole copy --------------------------------------------------------------------------------------------------


def _clear(conv: OpenConversation, adoption: Adoption) -> dict[str, int]:
    """Delete everything that the copy replaces. Returns the numbers of the turns that stay, by id."""
    tx = conv.tx
    copies = {one.row["seq"]: one.row for one in adoption.records if one.kind == "turn"}
    rows = [TurnRow(*row) for row in tx.all(Q.all_turns, cid=conv.cid)]
    kept = [row for row in rows if _is_same(row, copies.get(row.seq))]
    for row in rows:
        if not _is_same(row, copies.get(row.seq)):
            _delete_turn(conv, row, adoption.moved)
    tx.run(Q.lower_indexed_tid)
    for statement in REPLACED:
        tx.run(statement, cid=conv.cid)
    tx.run(Q.hide_all_turns, cid=conv.cid)
    for row in kept:
        copy = copies[row.seq]
        place = {name: copy[name] for name in ("position", "parent", "slot", "active", "superseded_by")}
        tx.run(Q.place_turn, cid=conv.cid, seq=row.seq, **place)
        if row.active and not copy["active"]:
            memory_invalidation.unlearn(tx, Q.unlearn_turn, turn=row.id)
    return {row.id: row.tid for row in kept}


def _is_same(row: TurnRow, copy: Mapping[str, Any] | None) -> bool:
    """Return whether a stored turn is the one of the copy. One with files is stored again, together with them."""
    if copy is None or row.attachments or row.status == "pending":
        return False
    names = ("id", "status", "actor", "idempotency_key", "content_hash", "salt")
    return all(getattr(row, name) == copy[name] for name in names)


def _delete_turn(conv: OpenConversation, row: TurnRow, moved: Mapping[str, str]) -> None:
    tx = conv.tx
    if row.status != "forgotten":
        unindex(conv, [row])
    tx.run(Q.unmark, tid=row.tid)
    drop_vectors_of_turn(tx, row.tid)
    requests.drop_bodies_quoting(tx, row.id)
    if row.id not in moved:
        memory_invalidation.unlearn(tx, Q.unlearn_turn, turn=row.id)
    tx.run(Q.close_stream, tid=row.tid)
    tx.run(Q.doom_turn_blobs, cid=conv.cid, tid=row.tid)
    tx.run(Q.drop_turn_attachments, cid=conv.cid, tid=row.tid)
    tx.run(Q.drop_turn, tid=row.tid)


def _move_sources(conv: OpenConversation, moved: Mapping[str, str]) -> None:
    """Have the memory of subjects name the turns by their new ids; a turn outside the view is dropped."""
    tx = conv.tx
    for old, new in moved.items():
        if conv.is_active(new):
            for cid, item in tx.all(Q.move_sources, old=old, new=new, conversation=conv.id):
                found = tx.one(Q.memory_of, cid=cid)
                assert found is not None
                memory = OpenConversation(tx, conv.scope, found)
                memory.changed(source_key(item, old), source_key(item, new))
                memory.save()
        memory_invalidation.unlearn(tx, Q.unlearn_turn, turn=old)


# ---- a copy that continues what is stored ----------------------------------------------------------------------------


def _drop_derived(conv: OpenConversation, adoption: Adoption) -> dict[str, int]:
    """Delete the derived rows that the copy replaces or no longer has, and files that come with it again.

    All turns of the copy are new.
    """
    for one in adoption.records:
        if one.kind == "attachment":
            conv.tx.run(Q.drop_file, cid=conv.cid, id=one.row["id"])
    keys = {*adoption.dropped, *_keys(adoption.records)}
    for key in sorted(keys):
        _drop_row(conv, key)
        conv.tx.run(Q.drop_proof, cid=conv.cid, key=key)
    if any(key.startswith("summary/") for key in keys):
        conv.tx.run(Q.reset_summarized, cid=conv.cid)
    return {}


def _keys(records: Sequence[Record]) -> list[str]:
    return [key for one in records for key, _, _ in keys_of(one.kind, one.row)]


def _drop_row(conv: OpenConversation, key: str) -> None:
    tx, cid = conv.tx, conv.cid
    kind, _, id = key.partition("/")
    if kind == "summary":
        level, _, start = id.partition("/")
        tx.run(Q.drop_summary_row, cid=cid, level=int(level), from_seq=int(start))
    elif kind == "notes":
        tx.run(Q.drop_working_memory, cid=cid)
        tx.run(Q.mark_memory, cid=cid, has=0)
    elif kind == "fact":
        tx.run(Q.count_facts, cid=cid, count=-len(tx.all(Q.drop_fact_row, cid=cid, id=id)))
    elif kind == "request":
        tx.run(Q.drop_request_row, cid=cid, id=id)
    elif kind == "item":
        tx.run(Q.drop_item, cid=cid, id=id)
    elif kind == "source":
        item, _, turn = id.partition("/")
        tx.run(Q.drop_source, cid=cid, item=item, turn=turn)
