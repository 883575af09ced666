"""Memory follows the thread: what is derived from a turn goes, or is made anew, when the turn changes or goes."""

from __future__ import annotations

from dataclasses import replace

from palaver.core.identity import canonical_json
from palaver.engines.rows import TurnRow
from palaver.engines.sqlite import requests
from palaver.engines.sqlite.open_conversation import OpenConversation
from palaver.engines.sqlite.queries import Q
from palaver.memory import working_memory
from palaver.model import MEMORY_LISTS, WorkingMemory


def changed(conv: OpenConversation, turn: TurnRow) -> None:
    """A turn left its place in the view, and another may stand there now."""
    tx, cid = conv.tx, conv.cid
    tx.run(Q.bump, cid=cid)
    if tx.all(Q.spoil, cid=cid, position=turn.position):
        tx.run(Q.add_job, cid=cid, kind="compact", argument=None, now=tx.now)
    _drop_notes(conv, turn.id)
    revive(conv, [row[0] for row in tx.all(Q.drop_facts_of_turn, cid=cid, turn=turn.id)])


def revive(conv: OpenConversation, gone: list[str]) -> None:
    """Facts that were replaced by ones that are gone now hold again."""
    if gone:
        conv.tx.run(Q.revive_facts, cid=conv.cid, gone=canonical_json(gone))


def recount(conv: OpenConversation) -> None:
    """How much of the view is summarised, after something other than one more summary changed it."""
    counts = {"turn_count": conv.turn_count, "token_count": conv.token_count}
    conv.tx.run(Q.recount_summarized, cid=conv.cid, **counts)


def cut(conv: OpenConversation, position: int) -> None:
    """Everything from a position on left the view, or another branch took its place."""
    tx, cid = conv.tx, conv.cid
    tx.run(Q.bump, cid=cid)
    tx.run(Q.drop_summaries_beyond, cid=cid, position=position)
    tx.run(Q.reset_summarized, cid=cid)


def prune(conv: OpenConversation, position: int) -> None:
    """After that: notes and facts whose turn is not in the view any more go, and reading starts again there."""
    tx, cid = conv.tx, conv.cid
    recount(conv)
    revive(conv, [row[0] for row in tx.all(Q.drop_facts_out_of_view, cid=cid, position=position)])
    row = tx.one(Q.working_memory, cid=cid)
    if row is None:
        return
    memory = working_memory.from_json(row[0])
    for turn in {note.turn for name in MEMORY_LISTS for note in getattr(memory, name) if note.turn}:
        if not conv.is_active(turn) and not conv.is_retired(turn):
            memory = working_memory.without_turn(memory, turn)
    _save(conv, replace(memory, through_seq=min(memory.through_seq, position - 1)))


def cut_beyond_tip(conv: OpenConversation) -> None:
    """After turns left the end of the view, their places are taken again by others."""
    row = conv.tx.one(Q.memory_head, cid=conv.cid)
    if row is not None and row[1] > conv.tip_position + 1:
        cut(conv, conv.tip_position + 1)
        prune(conv, conv.tip_position + 1)


def forgotten(conv: OpenConversation, turn: TurnRow) -> None:
    """Nothing that was derived from the turn may stay."""
    tx = conv.tx
    tx.run(Q.unmark, tid=turn.tid)
    tx.run(Q.drop_vectors_of_turn, tid=turn.tid)
    requests.forgotten(tx, conv.cid, turn.id, turn.seq)
    changed(conv, turn)


def emptied(conv: OpenConversation) -> None:
    """All turns went."""
    tx, cid = conv.tx, conv.cid
    tx.run(Q.bump, cid=cid)
    requests.emptied(tx, cid)
    for statement in (
        Q.forget_summaries,
        Q.drop_working_memory,
        Q.drop_facts,
        Q.drop_marks,
        Q.drop_vectors,
        Q.drop_jobs,
        Q.restart_memory,
    ):
        tx.run(statement, cid=cid)


def _drop_notes(conv: OpenConversation, turn: str) -> None:
    row = conv.tx.one(Q.working_memory, cid=conv.cid)
    if row is None or turn not in row[0]:
        return
    _save(conv, working_memory.without_turn(working_memory.from_json(row[0]), turn))


def _save(conv: OpenConversation, memory: WorkingMemory) -> None:
    conv.tx.run(
        Q.save_working_memory,
        cid=conv.cid,
        memory=working_memory.to_json(memory),
        through_seq=memory.through_seq,
        updated=conv.tx.now,
    )
