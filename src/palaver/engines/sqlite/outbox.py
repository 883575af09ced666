"""The outbox: which memory work is waiting, who has it, what failed. Each function is one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from palaver.drafts import decode_content, words
from palaver.engines.sqlite.connection import Tx
from palaver.engines.sqlite.thread import Q, find
from palaver.engines.sqlite.watch import JOBS
from palaver.identity import canonical_json, from_json
from palaver.memory.compaction import Compaction
from palaver.model import Scope
from palaver.ports import Embedded, Job, ToEmbed
from palaver.recall.terms import segments

EMBED_PARTS = {"user": 3, "assistant": 2}  # how many passages of a turn are worth a vector


def fill(tx: Tx, cids: Sequence[int]) -> None:
    """After new turns entered the text index: what is due for their conversations?"""
    for cid in cids:
        turns, tokens, settings = tx.all(Q.triggers, cid=cid)[0]
        if Compaction.of(from_json(settings) if settings else {}).is_due(turns, tokens):
            tx.run(Q.add_job, cid=cid, kind="compact", argument=None, now=tx.now)
    if cids:
        tx.run(Q.add_job, cid=0, kind="embed", argument=None, now=tx.now)
        tx.touched.add(JOBS)


def add_job(tx: Tx, scope: Scope, conversation: str, kind: str, argument: int | None) -> None:
    tx.run(Q.add_job, cid=find(tx, scope, conversation)[0], kind=kind, argument=argument, now=tx.now)
    tx.touched.add(JOBS)


def claim(tx: Tx, lease: int) -> Job | None:
    """Take the job that has waited longest. A worker that dies loses it when the lease ends."""
    rows = tx.all(Q.claim_job, now=tx.now, lease_until=tx.now + lease)
    if not rows:
        return None
    jid, cid, kind, argument, attempts = rows[0]
    if cid == 0:
        return Job(id=jid, kind=kind, tenant="", conversation=None, argument=argument, attempts=attempts)
    found = tx.one(Q.claimed_conversation, cid=cid)
    if found is None:
        tx.run(Q.finish_job, jid=jid)
        return claim(tx, lease)
    return Job(id=jid, kind=kind, tenant=found[0], conversation=found[1], argument=argument, attempts=attempts)


def finish(tx: Tx, job: Job) -> None:
    tx.run(Q.finish_job, jid=job.id)


def retry(tx: Tx, job: Job, delay: int, error: str, dead: bool) -> None:
    tx.run(Q.retry_job, jid=job.id, run_at=tx.now + delay, error=error, dead=int(dead))


# ---- vectors -------------------------------------------------------------------------------------------------------


def to_embed(tx: Tx, model: str, limit: int) -> list[ToEmbed]:
    """The next passages that a model has not seen."""
    found = []
    for pid, part, tid, role, is_parts, content, status in tx.all(Q.to_embed, after=_embedded(tx, model), limit=limit):
        text = ""
        if tid is not None and status == "complete":
            pieces = segments(words(decode_content(content, bool(is_parts))))
            text = pieces[part] if part < len(pieces) else ""
        worth = bool(text) and part < EMBED_PARTS.get(role, 0)
        found.append(ToEmbed(pid, tid or 0, part, role or "", text, worth))
    return found


def put_embedded(tx: Tx, model: str, embedded: Embedded) -> None:
    for tid, part, vector in embedded.vectors:
        tx.run(Q.add_vector, tid=tid, part=part, model=model, vector=vector)
    for tid, standing in embedded.marks:
        tx.run(Q.mark, tid=tid, standing=standing)
    tx.run(Q.bump_marked, tids=canonical_json([tid for tid, _ in embedded.marks]))
    tx.run(Q.save_embedded_pid, name=_name(model), pid=embedded.through)


def drop_other_vectors(tx: Tx, model: str) -> int:
    return len(tx.all(Q.drop_other_vectors, model=model, limit=1_000))


def embedding_backlog(tx: Tx, model: str) -> int:
    last = tx.all(Q.last_pid)[0][0]
    return max(0, int(last) - _embedded(tx, model))


def _embedded(tx: Tx, model: str) -> int:
    row = tx.one(Q.embedded_pid, name=_name(model))
    return int(row[0]) if row else 0


def _name(model: str) -> str:
    return f"embedded_pid/{model}"
