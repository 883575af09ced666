"""Summaries, working memory and facts. Each function is one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from palaver.core.derived_rows import NOTES, fact_key, summary_key
from palaver.core.identity import micros, moment, optional_micros
from palaver.engines.derived_rows import notes_of_people, read_memory, read_rows
from palaver.engines.rows import Row, TurnRow, is_current_message, scope_params
from palaver.engines.sqlite import jobs, memory_invalidation
from palaver.engines.sqlite.derived_rows import BROKEN_PAGES, read_derived
from palaver.engines.sqlite.details import info
from palaver.engines.sqlite.open_conversation import NO_LIMIT, OpenConversation, open_conversation, require_cid
from palaver.engines.sqlite.proof import Proofs
from palaver.engines.sqlite.queries import Q
from palaver.engines.sqlite.summary_gaps import find_gaps
from palaver.engines.sqlite.transaction import SqlValue, Tx
from palaver.memory import working_memory
from palaver.memory.facts_over_time import is_correction
from palaver.model import ConversationInfo, Fact, Scope, Summary, Turn
from palaver.ports.damage import LOST, Damage
from palaver.ports.memory import ContextSnapshot, FactsDraft, MemoryDraft, ReadBudget, SummaryDraft, Unsummarised
from palaver.ports.recall import RecallScope

MAX_TURNS = 10_000  # read for one context, whatever the budget
FACT_COLUMNS = 13  # of a Fact; a statement may return more


def context_snapshot(tx: Tx, scope: Scope, conversation: str, limits: ReadBudget) -> ContextSnapshot:
    """Read the latest turns up to the budget, the current message, and what memory says of the rest."""
    cid = require_cid(tx, scope, conversation)
    revision, position, summarized, _ = _head(tx, cid)
    known = info(tx, cid)
    tail = _tail(tx, cid, conversation, limits, _first_limited(known, limits, position))
    start = tail[0].position if tail else 0
    proofs = Proofs(tx, cid)
    summaries, bad_summaries = _summaries(tx, proofs, Q.shown_summaries, cid=cid, start=start)
    memory, bad_memory = stored_memory(tx, cid, proofs)
    facts, bad_facts = _facts(tx, proofs, Q.recent_facts, cid=cid, limit=limits.facts)
    return ContextSnapshot(
        info=known,
        tail=tuple(tail),
        current=_current(tx, cid, conversation, limits.viewer, tail),
        summaries=summaries,
        working_memory=memory,
        facts=facts,
        revision=revision,
        summarized_position=position,
        summarized_turns=summarized,
        refused=tuple(proofs.refused),
        damage=(*bad_summaries, *bad_memory, *bad_facts, *_find_missing(tx, cid)),
    )


def _find_missing(tx: Tx, cid: int) -> list[Damage]:
    """Compare the counts that are kept with the rows that are there."""
    try:
        memory, facts, summaries = tx.all(Q.missing_memory, cid=cid)[0]
    except BROKEN_PAGES:  # reading the rows has reported it
        return []
    counts = {"working_memory": memory, "facts": facts, "summaries": len(find_gaps(tx, cid)) if summaries else 0}
    return [Damage(table=table, problem=LOST, count=count) for table, count in counts.items() if count > 0]


def _summaries(tx: Tx, proofs: Proofs, sql: str, **values: SqlValue) -> tuple[tuple[Summary, ...], list[Damage]]:
    """Read summaries. Damaged ones are left out and reported, and so are those that the log contradicts."""
    found = read_derived(tx, "summaries", sql, **values)
    summaries, damage = read_rows("summaries", found.rows, read_summary)
    fitting = tuple(one for one in summaries if proofs.fits(summary_key(one.level, one.from_seq)))
    return fitting, [*found.damage, *damage]


def _facts(tx: Tx, proofs: Proofs, sql: str, **values: SqlValue) -> tuple[tuple[Fact, ...], list[Damage]]:
    found = read_derived(tx, "facts", sql, **values)
    facts, damage = read_rows("facts", (row[:FACT_COLUMNS] for row in found.rows), read_fact)
    return tuple(one for one in facts if proofs.fits(fact_key(one.id))), [*found.damage, *damage]


def _stale_summaries(tx: Tx, cid: int) -> tuple[Summary, ...]:
    """Read the places of summaries that are to be written again. Their text is gone, so nothing has to be proved."""
    return read_rows("summaries", read_derived(tx, "summaries", Q.stale_summaries, cid=cid).rows, read_summary)[0]


def stored_memory(tx: Tx, cid: int, proofs: Proofs | None = None) -> tuple[str | None, list[Damage]]:
    """Read the working memory. One that is damaged is reported, and is not there for the reader.

    With `proofs`, one that the log contradicts is not there either: the next that is written replaces it.
    """
    found = read_derived(tx, "working_memory", Q.working_memory, cid=cid)
    if found.damage:
        return None, found.damage
    stored, damage = read_memory(found.rows[0][0] if found.rows else None, is_there=bool(found.rows))
    return (None if stored is not None and proofs is not None and not proofs.fits(NOTES) else stored), damage


def _first_limited(known: ConversationInfo, limits: ReadBudget, summarized: int) -> int:
    """Return the position before which only `limits.summarised` is read. -1 if the whole thread may fit."""
    is_short = not limits.in_characters and known.token_count <= limits.budget
    return -1 if limits.summarised is None or is_short or limits.in_characters else summarized


def _tail(tx: Tx, cid: int, conversation: str, limits: ReadBudget, end: int) -> list[Turn]:
    """Read backwards until the budget is used up, including the first turn that exceeds it.

    Once turns before `end` are reached, which have a summary, no more is read than `limits.summarised`.

    If that one is a tool's result, read on to its call: a round of tool calls can be shortened, but half of one cannot
    be used.
    """
    turns: list[Turn] = []
    left = limits.budget
    for row in tx.each(Q.tail, cid=cid):
        turn = TurnRow(*row)
        if turn.status != "complete":
            continue
        if turn.position < end:
            left, end = min(left, (limits.summarised or 0) - (limits.budget - left)), -1
        turns.append(turn.turn(conversation))
        left -= 1 + (_characters(turn) if limits.in_characters else turn.token_count)
        if (left < 0 and turn.role != "tool") or len(turns) >= MAX_TURNS:
            break
    turns.reverse()
    return turns


def _characters(turn: TurnRow) -> int:
    return len(turn.content or "") + len(turn.tool_calls or "") + len(turn.tool_results or "")


def _current(tx: Tx, cid: int, conversation: str, viewer: str | None, tail: Sequence[Turn]) -> Turn | None:
    for turn in reversed(tail):
        if is_current_message(turn, viewer):
            return turn
    name = Q.newest_user_turn if viewer is None else Q.newest_other_turn
    row = tx.one(name, cid=cid, **({} if viewer is None else {"viewer": viewer}))
    return TurnRow(*row).turn(conversation) if row else None


def _head(tx: Tx, cid: int) -> Row:
    row = tx.one(Q.memory_head, cid=cid)
    assert row is not None
    return row


def read_summary(row: Row) -> Summary:
    id, level, from_seq, through_seq, text, model, token_count, turns, created = row
    return Summary(
        id=id,
        level=level,
        from_seq=from_seq,
        through_seq=through_seq,
        text=text,
        model=model,
        token_count=token_count,
        turns=turns,
        created=moment(created),
    )


def read_fact(row: Row) -> Fact:
    id, subject, predicate, object, source, confidence, valid_from, invalidated_at, invalidated_by, by, *times = row
    created, valid_to, learnt = times
    return Fact(
        id=id,
        subject=subject,
        predicate=predicate,
        object=object,
        source_turn=source,
        confidence=confidence,
        valid_from=moment(valid_from),
        invalidated_at=None if invalidated_at is None else moment(invalidated_at),
        invalidated_by=invalidated_by,
        by=by,
        created=moment(created),
        valid_to=None if valid_to is None else moment(valid_to),
        learnt=None if learnt is None else moment(learnt),
    )


# ---- compaction ----------------------------------------------------------------------------------------------------


def unsummarised(tx: Tx, scope: Scope, conversation: str, tokens: int) -> Unsummarised:
    """Read the turns after the last summary, up to `tokens` and never past a pending turn."""
    cid = require_cid(tx, scope, conversation)
    revision, position, *_ = _head(tx, cid)
    proofs = Proofs(tx, cid)
    turns: list[Turn] = []
    for row in tx.each(Q.span, **{"cid": cid, "from": position, "through": NO_LIMIT}):
        turn = TurnRow(*row)
        if turn.status == "pending" or tokens < 0:
            break
        turns.append(turn.turn(conversation))
        tokens -= turn.token_count
    return Unsummarised(
        info=info(tx, cid),
        revision=revision,
        position=position,
        turns=tuple(turns),
        stale=_stale_summaries(tx, cid),
        working_memory=stored_memory(tx, cid, proofs)[0],
        facts=_facts(tx, proofs, Q.facts, cid=cid, all=0)[0],
    )


def span(tx: Tx, scope: Scope, conversation: str, from_seq: int, through_seq: int) -> list[Turn]:
    cid = require_cid(tx, scope, conversation)
    rows = [TurnRow(*row) for row in tx.all(Q.span, cid=cid, **{"from": from_seq, "through": through_seq})]
    return [row.turn(conversation) for row in rows if row.status == "complete"]


def speakers(
    tx: Tx, scope: Scope, conversation: str, spans: Sequence[tuple[int, int]], retired: bool
) -> list[frozenset[str]]:
    cid = require_cid(tx, scope, conversation)
    params = [{"from": start, "through": end, "retired": int(retired)} for start, end in spans]
    return [frozenset(actor for (actor,) in tx.all(Q.speakers, cid=cid, **one)) for one in params]


def summaries(tx: Tx, scope: Scope, conversation: str, level: int | None) -> list[Summary]:
    cid = require_cid(tx, scope, conversation)
    if level is None:
        return list(_summaries(tx, Proofs(tx, cid), Q.all_summaries, cid=cid)[0])
    return list(_summaries(tx, Proofs(tx, cid), Q.level, cid=cid, level=level, **{"from": 0, "through": NO_LIMIT})[0])


def uncovered(tx: Tx, scope: Scope, conversation: str, level: int) -> list[Summary]:
    cid = require_cid(tx, scope, conversation)
    return list(_summaries(tx, Proofs(tx, cid), Q.uncovered, cid=cid, level=level)[0])


def put_summary(tx: Tx, scope: Scope, conversation: str, draft: SummaryDraft) -> bool:
    """Store a summary. False when the turns that it covers have changed since they were read."""
    conv = open_conversation(tx, scope, conversation)
    revision, position, *_ = _head(tx, conv.cid)
    first_time = draft.level == 0 and draft.from_seq >= position
    if revision != draft.revision or (first_time and draft.from_seq != position):
        return False
    values = {name: getattr(draft, name) for name in draft.__dataclass_fields__ if name != "revision"}
    tx.run(Q.add_summary, cid=conv.cid, created=conv.tick(), **values)
    if first_time:
        tx.run(Q.advance, cid=conv.cid, position=draft.through_seq, turns=draft.turns, tokens=draft.tokens)
    elif draft.level == 0:
        memory_invalidation.recount_summarized(conv)
    conv.changed(summary_key(draft.level, draft.from_seq))
    payload = {"level": draft.level, "from": draft.from_seq, "through": draft.through_seq, "model": draft.model}
    conv.log("summarize", conv.updated, payload=payload)
    conv.save()
    return True


def drop_summary(tx: Tx, scope: Scope, conversation: str, summary: Summary) -> None:
    """Delete a summary that cannot be written again, because its turns are deleted."""
    conv = open_conversation(tx, scope, conversation)
    tx.run(Q.drop_summary, cid=conv.cid, level=summary.level, from_seq=summary.from_seq)
    memory_invalidation.recount_summarized(conv)
    conv.changed(summary_key(summary.level, summary.from_seq))
    conv.save()


# ---- working memory and facts --------------------------------------------------------------------------------------


def put_working_memory(tx: Tx, scope: Scope, conversation: str, draft: MemoryDraft) -> bool:
    """Replace the working memory. False when it, or the turns that were read, changed since."""
    conv = open_conversation(tx, scope, conversation)
    stored, damage = stored_memory(tx, conv.cid, Proofs(tx, conv.cid))
    if stored != draft.before or not _is_unchanged(tx, conv.cid, draft.revision):
        return False
    if damage:
        repair_memory(conv)
        return False
    _save_memory(conv, draft.memory, draft.through_seq)
    if stored is not None:
        tx.run(Q.mark_unscrubbed)  # the notes of before; removed when a note is dropped, and by the next sweep
    return True


def _save_memory(conv: OpenConversation, memory: str, through_seq: int) -> None:
    updated = conv.tick()
    conv.tx.run(Q.save_working_memory, cid=conv.cid, memory=memory, through_seq=through_seq, updated=updated)
    conv.tx.run(Q.mark_memory, cid=conv.cid, has=1)
    conv.changed(NOTES)
    conv.log("remember", conv.updated)
    conv.save()


def repair_memory(conv: OpenConversation) -> None:
    """Keep a damaged working memory aside, and begin a new one; turns are read again.

    Notes of people that can be read go into the new one, unless the log had the hash of the old one: then nobody knows
    which of its notes were changed.
    """
    data = read_derived(conv.tx, "working_memory", Q.memory_bytes, cid=conv.cid).rows
    if data:
        conv.tx.run(Q.set_memory_aside, cid=conv.cid, now=conv.tx.now)
    is_proven = not Proofs(conv.tx, conv.cid).fits(NOTES)
    kept = notes_of_people(data[0][0] if data and not is_proven else b"")
    _save_memory(conv, working_memory.to_json(kept), kept.through_seq)


def _is_unchanged(tx: Tx, cid: int, revision: int | None) -> bool:
    return revision is None or _head(tx, cid)[0] == revision


def facts(tx: Tx, scope: Scope, conversation: str, include_invalidated: bool) -> list[Fact]:
    cid = require_cid(tx, scope, conversation)
    return list(_facts(tx, Proofs(tx, cid), Q.facts, cid=cid, all=int(include_invalidated))[0])


def facts_where(tx: Tx, scope: Scope, where: RecallScope) -> list[Fact]:
    params = {**scope_params(scope), "now": tx.now, "conversation": where.conversation, "owner": where.owner}
    found = read_derived(tx, "facts", Q.facts_where, **params)
    proofs = {cid: Proofs(tx, cid) for cid in {row[-1] for row in found.rows}}
    facts = [(read_rows("facts", [row[:FACT_COLUMNS]], read_fact)[0], proofs[row[-1]]) for row in found.rows]
    return [fact for read, known in facts for fact in read if known.fits(fact_key(fact.id))]


def fact_vectors(tx: Tx, scope: Scope, where: RecallScope, model: str) -> dict[str, bytes]:
    params = {**scope_params(scope), "now": tx.now, "conversation": where.conversation, "owner": where.owner}
    return dict(read_derived(tx, "facts", Q.fact_vectors, model=model, **params).rows)


def put_facts(tx: Tx, scope: Scope, conversation: str, draft: FactsDraft) -> list[Fact] | None:
    """Add facts and mark the ones that they replace. Returns those that are new.

    Returns None and stores nothing when the turns that were read have changed since.
    """
    conv = open_conversation(tx, scope, conversation)
    if not _is_unchanged(tx, conv.cid, draft.revision):
        return None
    at = conv.tick()
    new = [fact for fact in draft.new if _add_fact(conv, fact, at)]
    ids = {fact.id for fact in new}
    replaced = [(old, by) for old, by in draft.replaced if by in ids]
    fitting = conv.fits(*(fact_key(old) for old, _ in replaced))
    for old, by in replaced:
        tx.run(Q.invalidate_fact, cid=conv.cid, id=old, at=at, by=by)
    if new:
        tx.run(Q.count_facts, cid=conv.cid, count=len(new))
        conv.changed(*map(fact_key, ids), *fitting)
        jobs.enqueue_embed_job(tx)
        kind = "correct" if all(is_correction(fact.by) for fact in new) else "extract_facts"
        conv.log(kind, at, payload={"new": len(new), "replaced": len(replaced)})
        conv.save()
    return new


def _add_fact(conv: OpenConversation, fact: Fact, at: int) -> bool:
    rows = conv.tx.all(
        Q.add_fact,
        cid=conv.cid,
        id=fact.id,
        subject=fact.subject,
        predicate=fact.predicate,
        object=fact.object,
        source_turn=fact.source_turn,
        confidence=fact.confidence,
        valid_from=micros(fact.valid_from),
        by=fact.by,
        created=at,
        valid_to=optional_micros(fact.valid_to),
        learnt=optional_micros(fact.learnt),
    )
    return bool(rows)


def drop_fact(tx: Tx, scope: Scope, conversation: str, id: str) -> bool:
    conv = open_conversation(tx, scope, conversation)
    found = bool(tx.all(Q.drop_fact, cid=conv.cid, id=id))
    if found:
        tx.run(Q.count_facts, cid=conv.cid, count=-1)
        memory_invalidation.revalidate_facts(conv, [id])
        conv.log("forget_fact", conv.tick(), payload={"fact": id})
        conv.save()
        tx.run(Q.mark_unscrubbed)
        tx.scrub = True
    return found
