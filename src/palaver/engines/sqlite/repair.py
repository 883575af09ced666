"""Damage of derived data: finding it, and making room for what the worker writes again. Each function is a transaction.

Rows are checked one conversation at a time: against counts that every write keeps (`fact_count`, `vector_count`,
`has_memory`, `passage_count`), and against the log. Pages are checked table by table (see `table_repair`). Notes that a
person wrote, which no turn holds, are kept in `set_aside`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from palaver.core.derived_rows import NOTES, fact_key, kind_of, summary_key
from palaver.core.identity import new_id
from palaver.engines.derived_rows import is_vector, read_rows
from palaver.engines.sqlite import jobs, memory_invalidation, proof, table_repair, text_index
from palaver.engines.sqlite.derived_rows import BROKEN_PAGES, read_derived
from palaver.engines.sqlite.memory import read_fact, read_summary, repair_memory, stored_memory
from palaver.engines.sqlite.open_conversation import OpenConversation, open_conversation
from palaver.engines.sqlite.queries import Q
from palaver.engines.sqlite.summary_gaps import SummaryGap, find_gaps
from palaver.engines.sqlite.transaction import Tx
from palaver.engines.wakeup import JOBS
from palaver.memory.compaction import SPAN_TURNS
from palaver.model import Scope
from palaver.ports.damage import CHANGED, LOST, UNREADABLE, Damage, Problem

WHOLE = 0  # the number of jobs that are for the whole file
REPAIRED = (UNREADABLE, CHANGED)  # problems of single rows


# ---- finding -------------------------------------------------------------------------------------------------------


def find_everywhere(tx: Tx) -> list[Damage]:
    """Compare what is there with the counts. Reads no text, so that it can be done regularly."""
    found = find_in_index(tx)
    for cid, tenant, id in tx.all(Q.damaged_conversations):
        found += [_placed(one, tenant, id) for one in _find_missing(tx, cid)]
    return found


def find_thoroughly(tx: Tx) -> list[Damage]:
    """Check every page of the derived tables and every row of memory, too."""
    broken = table_repair.find_broken(tx.db)
    if broken:  # rows of such a table are not known before it is repaired
        return broken
    found = find_in_index(tx)
    for cid, tenant, id in all_conversations(tx):
        found += [_placed(one, tenant, id) for one in find(tx, cid)]
    return found


def all_conversations(tx: Tx) -> list[tuple[int, str, str]]:
    """List the conversations of all tenants: number, tenant and id."""
    return [(cid, tenant, id) for cid, tenant, id in tx.all(Q.all_conversations)]


def find(tx: Tx, cid: int) -> list[Damage]:
    """Find the damage in the memory of one conversation."""
    return [*_find_bad(tx, cid, proof.mismatched(tx, cid)), *_find_missing(tx, cid)]


def find_in_index(tx: Tx) -> list[Damage]:
    """Compare the text index with the passages that should be in it."""
    if text_index.is_rebuilding(tx):
        return []
    try:
        expected, of_turns, passages, entries = tx.all(Q.index_size)[0]
    except BROKEN_PAGES:
        return [Damage(table=table_repair.INDEX, problem=UNREADABLE)]
    found = []
    if of_turns != expected:
        found.append(Damage(table="passages", problem=LOST, count=abs(expected - of_turns)))
    if entries != passages:
        found.append(Damage(table=table_repair.INDEX, problem=LOST, count=abs(passages - entries)))
    lost = len(tx.all(Q.files_without_words))
    return [*found, *([Damage(table="file_passages", problem=LOST, count=lost)] if lost else [])]


def set_aside(tx: Tx) -> list[Damage]:
    """Return which damaged rows are kept for people to look at."""
    return [
        Damage(table=source, problem=UNREADABLE, count=count, tenant=tenant, conversation=id, kept=count)
        for tenant, id, source, count in tx.all(Q.count_set_aside)
    ]


def _placed(damage: Damage, tenant: str, conversation: str) -> Damage:
    fields = {name: getattr(damage, name) for name in ("table", "problem", "count", "ids", "kept")}
    return Damage(**fields, tenant=tenant, conversation=conversation)


def _find_missing(tx: Tx, cid: int) -> list[Damage]:
    has_memory, memory, fact_count, facts, vector_count, vectors, _ = tx.all(Q.expected, cid=cid)[0]
    counts = (
        ("summaries", len(find_gaps(tx, cid))),
        ("working_memory", has_memory - memory),
        ("facts", fact_count - facts),
        ("embeddings", vector_count - vectors),
    )
    return [Damage(table=table, problem=LOST, count=count) for table, count in counts if count > 0]


def _find_bad(tx: Tx, cid: int, changed: Sequence[str]) -> list[Damage]:
    """Find rows that cannot be read, and those that the log contradicts.

    Requests are left to `verify`: they cannot be rebuilt.
    """
    files = [key for key in changed if kind_of(key) == "file"]
    bad: dict[str, list[Problem]] = {
        "summaries": list(_bad_summaries(tx, cid, changed).values()),
        "working_memory": _bad_memory(tx, cid, changed),
        "facts": list(_bad_facts(tx, cid, changed).values()),
        "embeddings": [UNREADABLE] * len(_bad_vectors(tx, cid)),
        "file_passages": [CHANGED] * len(files),
    }
    counts = ((table, problem, problems.count(problem)) for table, problems in bad.items() for problem in REPAIRED)
    return [Damage(table=table, problem=problem, count=count) for table, problem, count in counts if count]


def _bad_summaries(tx: Tx, cid: int, changed: Sequence[str]) -> dict[int, Problem]:
    """Return the numbers of summaries that cannot be read, overlap another one, or were changed."""
    rows = read_derived(tx, "summaries", Q.numbered_summaries, cid=cid).rows
    good = {row[-1] for row in rows if read_rows("summaries", [row[:-1]], read_summary)[0]}
    bad: dict[int, Problem] = {}
    ends: dict[int, int] = {}
    for sid, level, start, end, stale in tx.all(Q.summary_places, cid=cid):
        if not (stale or sid in good) or not 0 <= ends.get(level, 0) <= start < end:
            bad[sid] = UNREADABLE
            continue
        ends[level] = end
        if summary_key(level, start) in changed:
            bad[sid] = CHANGED
    return bad


def _bad_memory(tx: Tx, cid: int, changed: Sequence[str]) -> list[Problem]:
    damage = stored_memory(tx, cid)[1]
    return [one.problem for one in damage] or ([CHANGED] if NOTES in changed else [])


def _bad_facts(tx: Tx, cid: int, changed: Sequence[str]) -> dict[int, Problem]:
    rows = read_derived(tx, "facts", Q.numbered_facts, cid=cid).rows
    good = {row[-1]: fact_key(row[0]) for row in rows if read_rows("facts", [row[:-1]], read_fact)[0]}
    bad: dict[int, Problem] = {fid: UNREADABLE for (fid,) in tx.all(Q.fact_numbers, cid=cid) if fid not in good}
    return bad | {fid: CHANGED for fid, key in good.items() if key in changed}


def _bad_vectors(tx: Tx, cid: int) -> list[int]:
    """Return the numbers of vectors that are zero, infinite or of another length than most of their embedder."""
    rows = tx.all(Q.all_vectors, cid=cid)
    lengths: dict[str, Counter[int]] = {}
    for _, model, vector in rows:
        lengths.setdefault(model, Counter())[len(vector)] += 1
    usual = {model: found.most_common(1)[0][0] for model, found in lengths.items()}
    return [eid for eid, model, vector in rows if len(vector) != usual[model] or not is_vector(vector)]


# ---- repairing -----------------------------------------------------------------------------------------------------


def repair(tx: Tx, scope: Scope, conversation: str) -> list[Damage]:
    """Remove what is damaged in the memory of a conversation, so that the worker writes it again.

    Returns what was found. Summaries become stale; working memory keeps the notes of people that can be read.
    """
    conv = open_conversation(tx, scope, conversation)
    before = proof.contradicting(tx, conv.cid)
    found = [*_find_bad(tx, conv.cid, list(before)), *_find_missing(tx, conv.cid)]
    if not found:
        return []
    for table in dict.fromkeys(damage.table for damage in found):
        REPAIRS[table](conv, list(before))
    tx.run(Q.bump, cid=conv.cid)
    conv.changed(*proof.repaired(tx, conv.cid, before))
    conv.save()
    return [_placed(one, scope.tenant, conversation) for one in found]


def _repair_summaries(conv: OpenConversation, changed: Sequence[str]) -> None:
    tx, cid = conv.tx, conv.cid
    bad = _bad_summaries(tx, cid, changed)
    known = {key for (key,) in tx.all(Q.proof_keys, cid=cid)}
    is_covered = proof.is_covered(tx, cid)
    ends: dict[int, int] = {}
    for sid, level, start, end, _ in tx.all(Q.summary_places, cid=cid):
        is_inserted = is_covered and summary_key(level, start) not in known
        if is_inserted or not 0 <= ends.get(level, 0) <= start < end:
            tx.run(Q.drop_damaged_summary, sid=sid)
            continue
        ends[level] = end
        if sid in bad:
            tx.run(Q.spoil_damaged, sid=sid, id=new_id(), now=tx.now)
    for gap in find_gaps(tx, cid):
        _fill(conv, gap)
    memory_invalidation.recount_summarized(conv)


def _fill(conv: OpenConversation, gap: SummaryGap) -> None:
    """Add stale summaries in place of lost ones. At the end of the thread, turns are as before their first summary."""
    tx, cid = conv.tx, conv.cid
    if not gap.level and gap.end == tx.all(Q.expected, cid=cid)[0][-1]:
        memory_invalidation.drop_summaries_from(conv, gap.start)
        return
    step = gap.end - gap.start if gap.level else SPAN_TURNS
    for start in range(gap.start, gap.end, step):
        place = {"level": gap.level, "from": start, "through": min(start + step, gap.end)}
        tx.run(Q.add_stale_summary, cid=cid, id=new_id(), now=tx.now, **place)


def _repair_memory(conv: OpenConversation, changed: Sequence[str]) -> None:
    repair_memory(conv)


def _repair_facts(conv: OpenConversation, changed: Sequence[str]) -> None:
    for fid in _bad_facts(conv.tx, conv.cid, changed):
        conv.tx.run(Q.set_fact_aside, fid=fid, now=conv.tx.now)
        conv.tx.run(Q.drop_damaged_fact, fid=fid)
    conv.tx.run(Q.save_fact_count, cid=conv.cid)


def _repair_vectors(conv: OpenConversation, changed: Sequence[str]) -> None:
    for eid in _bad_vectors(conv.tx, conv.cid):
        conv.tx.run(Q.drop_vector, eid=eid)
    conv.tx.run(Q.save_vector_count, cid=conv.cid)
    conv.tx.run(Q.restart_embedders_at, cid=conv.cid)
    jobs.enqueue_embed_job(conv.tx)


def _extract_files_again(conv: OpenConversation, changed: Sequence[str]) -> None:
    """Rebuild the text index: that extracts the text of all files again."""
    text_index.rebuild_damaged(conv.tx)


REPAIRS: Mapping[str, Callable[[OpenConversation, Sequence[str]], None]] = {
    "summaries": _repair_summaries,
    "working_memory": _repair_memory,
    "facts": _repair_facts,
    "embeddings": _repair_vectors,
    "file_passages": _extract_files_again,
}


def repair_index(tx: Tx) -> list[Damage]:
    """Empty a text index that does not fit the turns, to be filled again in batches. Returns the damage."""
    found = find_in_index(tx)
    if found:
        text_index.rebuild_damaged(tx)
    tx.run(Q.mark_index_sound)
    return found


def enqueue(tx: Tx, damage: Sequence[Damage]) -> None:
    """Enqueue the repair of what was found, for the file or for single conversations."""
    for tenant, conversation in dict.fromkeys((one.tenant, one.conversation) for one in damage):
        row = (WHOLE,) if conversation is None else tx.one(Q.number_of, tenant=tenant, id=conversation)
        if row is not None:
            tx.run(Q.add_job, cid=row[0], kind="repair", argument=None, now=tx.now)
    tx.touched.add(JOBS)
