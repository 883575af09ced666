"""Memory follows the thread: what is derived from a turn goes, or is made anew, when the turn changes or goes."""

from __future__ import annotations

from dataclasses import replace

from palaver.core.identity import canonical_json
from palaver.engines.rows import TurnRow
from palaver.engines.sqlite import requests
from palaver.engines.sqlite.open_conversation import Q, Thread
from palaver.memory import working_memory
from palaver.model import MEMORY_LISTS, WorkingMemory


def changed(thread: Thread, turn: TurnRow) -> None:
    """A turn left its place in the view, and another may stand there now."""
    tx, cid = thread.tx, thread.cid
    tx.run(Q.bump, cid=cid)
    if tx.all(Q.spoil, cid=cid, position=turn.position):
        tx.run(Q.add_job, cid=cid, kind="compact", argument=None, now=tx.now)
    _drop_notes(thread, turn.id)
    revive(thread, [row[0] for row in tx.all(Q.drop_facts_of_turn, cid=cid, turn=turn.id)])


def revive(thread: Thread, gone: list[str]) -> None:
    """Facts that were replaced by ones that are gone now hold again."""
    if gone:
        thread.tx.run(Q.revive_facts, cid=thread.cid, gone=canonical_json(gone))


def recount(thread: Thread) -> None:
    """How much of the view is summarised, after something other than one more summary changed it."""
    counts = {"turn_count": thread.turn_count, "token_count": thread.token_count}
    thread.tx.run(Q.recount_summarized, cid=thread.cid, **counts)


def cut(thread: Thread, position: int) -> None:
    """Everything from a position on left the view, or another branch took its place."""
    tx, cid = thread.tx, thread.cid
    tx.run(Q.bump, cid=cid)
    tx.run(Q.drop_summaries_beyond, cid=cid, position=position)
    tx.run(Q.reset_summarized, cid=cid)


def prune(thread: Thread, position: int) -> None:
    """After that: notes and facts whose turn is not in the view any more go, and reading starts again there."""
    tx, cid = thread.tx, thread.cid
    recount(thread)
    revive(thread, [row[0] for row in tx.all(Q.drop_facts_out_of_view, cid=cid, position=position)])
    row = tx.one(Q.working_memory, cid=cid)
    if row is None:
        return
    memory = working_memory.from_json(row[0])
    for turn in {note.turn for name in MEMORY_LISTS for note in getattr(memory, name) if note.turn}:
        if not thread.is_active(turn) and not thread.is_retired(turn):
            memory = working_memory.without_turn(memory, turn)
    _save(thread, replace(memory, through_seq=min(memory.through_seq, position - 1)))


def cut_beyond_tip(thread: Thread) -> None:
    """After turns left the end of the view, their places are taken again by others."""
    row = thread.tx.one(Q.memory_head, cid=thread.cid)
    if row is not None and row[1] > thread.tip_position + 1:
        cut(thread, thread.tip_position + 1)
        prune(thread, thread.tip_position + 1)


def forgotten(thread: Thread, turn: TurnRow) -> None:
    """Nothing that was derived from the turn may stay."""
    tx = thread.tx
    tx.run(Q.unmark, tid=turn.tid)
    tx.run(Q.drop_vectors_of_turn, tid=turn.tid)
    requests.forgotten(tx, thread.cid, turn.id, turn.seq)
    changed(thread, turn)


def emptied(thread: Thread) -> None:
    """All turns went."""
    tx, cid = thread.tx, thread.cid
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


def _drop_notes(thread: Thread, turn: str) -> None:
    row = thread.tx.one(Q.working_memory, cid=thread.cid)
    if row is None or turn not in row[0]:
        return
    _save(thread, working_memory.without_turn(working_memory.from_json(row[0]), turn))


def _save(thread: Thread, memory: WorkingMemory) -> None:
    thread.tx.run(
        Q.save_working_memory,
        cid=thread.cid,
        memory=working_memory.to_json(memory),
        through_seq=memory.through_seq,
        updated=thread.tx.now,
    )
