"""Keeping memory in step with the turns: what is derived from a turn is deleted, or marked for rewriting, when the turn
changes or is deleted."""

from __future__ import annotations

from dataclasses import replace

from palaver.core.derived_rows import NOTES, fact_key, item_key, source_key, summary_key
from palaver.core.identity import canonical_json
from palaver.engines.derived_rows import read_memory
from palaver.engines.rows import TurnRow
from palaver.engines.sqlite.derived_rows import read_derived
from palaver.engines.sqlite.open_conversation import OpenConversation
from palaver.engines.sqlite.queries import Q
from palaver.engines.sqlite.transaction import SqlValue, Tx
from palaver.memory import working_memory
from palaver.model import MEMORY_LISTS, WorkingMemory


def invalidate_turn(conv: OpenConversation, turn: TurnRow) -> None:
    """Invalidate what memory says of a turn that left the active branch, or was replaced in it."""
    tx, cid = conv.tx, conv.cid
    tx.run(Q.bump, cid=cid)
    if spoiled := tx.all(Q.spoil, cid=cid, position=turn.position):
        conv.changed(*(summary_key(level, start) for level, start in spoiled))
        tx.run(Q.add_job, cid=cid, kind="compact", argument=None, now=tx.now)
    _drop_notes(conv, turn.id)
    _revalidate_after(conv, [row[0] for row in tx.all(Q.drop_facts_of_turn, cid=cid, turn=turn.id)])
    unlearn(tx, Q.unlearn_turn, turn=turn.id)


def unlearn(tx: Tx, sources: str, **values: SqlValue) -> None:
    """Delete sources of items in the memory of subjects, and the items that no turn supports any more.

    Their logs are left as they are: they hold no words, and say nothing of rows that may vanish.
    """
    for cid, item, turn in tx.all(sources, **values):
        tx.run(Q.drop_proof, cid=cid, key=source_key(item, turn))
        if tx.all(Q.drop_unsaid_item, cid=cid, item=item):
            tx.run(Q.drop_proof, cid=cid, key=item_key(item))


def _revalidate_after(conv: OpenConversation, deleted: list[str]) -> None:
    """Count deleted facts, and make those valid again that they had replaced."""
    if deleted:
        conv.tx.run(Q.count_facts, cid=conv.cid, count=-len(deleted))
        revalidate_facts(conv, deleted)


def revalidate_facts(conv: OpenConversation, deleted: list[str]) -> None:
    """Make facts valid again that were replaced by facts which are deleted now."""
    if deleted:
        gone = canonical_json(deleted)
        replaced = conv.fits(*(fact_key(id) for (id,) in conv.tx.all(Q.replaced_facts, cid=conv.cid, gone=gone)))
        conv.tx.run(Q.revive_facts, cid=conv.cid, gone=gone)
        conv.changed(*map(fact_key, deleted), *replaced)


def recount_summarized(conv: OpenConversation) -> None:
    """Count again how much of the view is summarised, after anything but the next summary changed it."""
    counts = {"turn_count": conv.turn_count, "token_count": conv.token_count}
    conv.tx.run(Q.recount_summarized, cid=conv.cid, **counts)


def drop_summaries_from(conv: OpenConversation, position: int) -> None:
    """Delete the summaries of everything from a position on, which left the view or belongs to another branch now."""
    tx, cid = conv.tx, conv.cid
    tx.run(Q.bump, cid=cid)
    dropped = tx.all(Q.drop_summaries_beyond, cid=cid, position=position)
    conv.changed(*(summary_key(level, start) for level, start in dropped))
    tx.run(Q.reset_summarized, cid=cid)


def drop_notes_and_facts_from(conv: OpenConversation, position: int) -> None:
    """Delete notes and facts whose turn is no longer in the view, and read turns again from this position on.

    Comes after the turns of the new view are in place.
    """
    tx, cid = conv.tx, conv.cid
    recount_summarized(conv)
    _revalidate_after(conv, [row[0] for row in tx.all(Q.drop_facts_out_of_view, cid=cid, position=position)])
    unlearn(tx, Q.unlearn_out_of_view, cid=cid, position=position)
    stored = _readable_notes(conv)
    if stored is None:
        return
    memory = working_memory.from_json(stored)
    for turn in {note.turn for name in MEMORY_LISTS for note in getattr(memory, name) if note.turn}:
        if not conv.is_active(turn) and not conv.is_retired(turn):
            memory = working_memory.without_turn(memory, turn)
    _save(conv, replace(memory, through_seq=min(memory.through_seq, position - 1)))


def drop_memory_beyond_tip(conv: OpenConversation) -> None:
    """Delete what memory says of positions after the last turn: new turns will take those positions."""
    row = conv.tx.one(Q.memory_head, cid=conv.cid)
    if row is not None and row[1] > conv.tip_position + 1:
        drop_summaries_from(conv, conv.tip_position + 1)
        drop_notes_and_facts_from(conv, conv.tip_position + 1)


def drop_all(conv: OpenConversation) -> None:
    """Delete everything that memory derived from a conversation."""
    unlearn(conv.tx, Q.unlearn_conversation, conversation=conv.id)
    for statement in (
        Q.bump,
        Q.forget_summaries,
        Q.drop_working_memory,
        Q.drop_facts,
        Q.drop_marks,
        Q.drop_vectors,
        Q.drop_jobs,
        Q.drop_set_aside,
        Q.drop_items,
        Q.drop_item_sources,
        Q.drop_proofs,
        Q.restart_memory,
    ):
        conv.tx.run(statement, cid=conv.cid)
    conv.changed_rows.clear()


def _drop_notes(conv: OpenConversation, turn: str) -> None:
    stored = _readable_notes(conv)
    if stored is None or turn not in stored:
        return
    _save(conv, working_memory.without_turn(working_memory.from_json(stored), turn))


def _readable_notes(conv: OpenConversation) -> str | None:
    """Return the notes as they are stored. Damaged ones are deleted: nobody can tell which turns they quote."""
    found = read_derived(conv.tx, "working_memory", Q.working_memory, cid=conv.cid)
    stored, damage = read_memory(found.rows[0][0] if found.rows else None, is_there=bool(found.rows))
    if found.damage or damage:
        conv.tx.run(Q.drop_working_memory, cid=conv.cid)
        conv.changed(NOTES)
        conv.tx.run(Q.add_job, cid=conv.cid, kind="repair", argument=None, now=conv.tx.now)
    return stored


def _save(conv: OpenConversation, memory: WorkingMemory) -> None:
    fitting = conv.fits(NOTES)
    conv.tx.run(
        Q.save_working_memory,
        cid=conv.cid,
        memory=working_memory.to_json(memory),
        through_seq=memory.through_seq,
        updated=conv.tx.now,
    )
    conv.changed(*fitting)
