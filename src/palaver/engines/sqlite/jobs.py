"""The outbox: which memory work is waiting, who has it, what failed. Each function is one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from palaver.core.identity import canonical_json, from_json
from palaver.engines import embedding
from palaver.engines.file_passages import FILE_PARTS
from palaver.engines.migrate import migrations
from palaver.engines.rows import waiting_seconds
from palaver.engines.sqlite.connection import Tx
from palaver.engines.sqlite.open_conversation import find
from palaver.engines.sqlite.queries import Q
from palaver.engines.wakeup import JOBS
from palaver.memory.compaction import Compaction
from palaver.model import Scope
from palaver.ports.jobs import Health, Job
from palaver.ports.recall import Embedded, FactToEmbed, ToEmbed

DROPPED = 1_000  # vectors in one transaction
FARTHEST = 300_000_000  # microseconds: no lease and no delay is longer


def fill(tx: Tx, cids: Sequence[int]) -> None:
    """After new turns entered the text index: what is due for their conversations?"""
    for cid in cids:
        turns, tokens, settings = tx.all(Q.triggers, cid=cid)[0]
        if Compaction.of(from_json(settings) if settings else {}).is_due(turns, tokens):
            tx.run(Q.add_job, cid=cid, kind="compact", argument=None, now=tx.now)
    if cids:
        enqueue_embed_job(tx)


def enqueue_embed_job(tx: Tx) -> None:
    tx.run(Q.add_job, cid=0, kind="embed", argument=None, now=tx.now)
    tx.touched.add(JOBS)


def add_job(tx: Tx, scope: Scope, conversation: str, kind: str, argument: int | None) -> None:
    tx.run(Q.add_job, cid=find(tx, scope, conversation)[0], kind=kind, argument=argument, now=tx.now)
    tx.touched.add(JOBS)


def _when(tx: Tx) -> dict[str, int]:
    return {"now": tx.now, "farthest": tx.now + FARTHEST}


def claim(tx: Tx, lease: int) -> Job | None:
    """Take the job that has waited longest. A worker that dies loses it when the lease ends."""
    rows = tx.all(Q.claim_job, lease_until=tx.now + lease, **_when(tx))
    if not rows:
        return None
    jid, cid, kind, argument, attempts, asked = rows[0]
    tenant, conversation = "", None  # embedding goes through all of them
    if cid:
        found = tx.one(Q.claimed_conversation, cid=cid)
        if found is None:
            tx.run(Q.drop_job, jid=jid)
            return claim(tx, lease)
        tenant, conversation = found
    return Job(
        id=jid,
        kind=kind,
        tenant=tenant,
        conversation=conversation,
        argument=argument,
        attempts=attempts,
        asked=asked,
    )


def renew(tx: Tx, job: Job, lease: int) -> None:
    tx.run(Q.renew_job, jid=job.id, attempts=job.attempts, lease_until=tx.now + lease)


def finish(tx: Tx, job: Job) -> None:
    """Done. What was asked for meanwhile makes it a job again."""
    tx.run(Q.finish_job, jid=job.id, attempts=job.attempts, asked=job.asked)
    tx.run(Q.reopen_job, jid=job.id, attempts=job.attempts, now=tx.now)
    tx.touched.add(JOBS)


def release(tx: Tx, job: Job) -> None:
    tx.run(Q.release_job, jid=job.id, attempts=job.attempts)


def retry(tx: Tx, job: Job, delay: int, error: str, dead: bool) -> None:
    run_at = tx.now + min(delay, FARTHEST)
    tx.run(Q.retry_job, jid=job.id, attempts=job.attempts, run_at=run_at, error=error, dead=int(dead))


def next_due(tx: Tx) -> int | None:
    """When there is something to do again; None when there is nothing."""
    due: int | None = tx.all(Q.next_job, **_when(tx))[0][0]
    return due


def health(tx: Tx) -> Health:
    schema, waiting, put_aside, oldest = tx.all(Q.health, **_when(tx))[0]
    return Health(
        schema=schema,
        schema_known=migrations("palaver.engines.sqlite.migrations")[-1].number,
        waiting=waiting,
        put_aside=put_aside,
        lag=waiting_seconds(oldest, tx.now),
    )


# ---- vectors -------------------------------------------------------------------------------------------------------


def to_embed(tx: Tx, model: str, limit: int) -> list[ToEmbed]:
    """The next passages that a model has not seen."""
    limits = {"limit": limit, "most": embedding.LOOKED_AT, "files": FILE_PARTS}
    return embedding.to_embed(tx.all(Q.to_embed, after=_embedded(tx, model), **limits))


def put_embedded(tx: Tx, model: str, embedded: Embedded) -> None:
    """Store what was made of a batch; nothing when another worker was faster, or the numbers mean other turns now."""
    first, last = embedded.passages[0][0], embedded.passages[-1][0]
    made_from = dict(embedded.passages)
    there = {int(pid): turn for pid, turn in tx.all(Q.passage_turns, first=first, last=last)}
    if first <= _embedded(tx, model) or any(made_from.get(pid, "") != turn for pid, turn in there.items()):
        return
    for pid, tid, part, vector in embedded.vectors:
        if pid in there:
            tx.run(Q.add_vector, tid=tid, part=part, model=model, vector=vector)
    marks = [(tid, standing) for pid, tid, standing in embedded.marks if pid in there]
    for tid, standing in marks:
        tx.run(Q.mark, tid=tid, standing=standing)
    tx.run(Q.bump_marked, tids=canonical_json([tid for tid, _ in marks]))
    tx.run(Q.save_embedded_pid, name=_name(model), pid=last)


def drop_other_vectors(tx: Tx, model: str) -> int:
    """Drop some of the vectors of other embedders, and how far those had come. Answers how many there were."""
    tx.run(Q.forget_other_embedders, name=_name(model))
    return len(tx.all(Q.drop_other_vectors, model=model, limit=DROPPED))


def has_vectors_of(tx: Tx, models: Sequence[str]) -> bool:
    """Whether one of these embedders has been at work here, which `meta` says without a look at the vectors."""
    return any(tx.one(Q.embedded_pid, name=_name(model)) is not None for model in models)


def drop_vectors(tx: Tx, models: Sequence[str]) -> int:
    """Drop some of the vectors of these embedders. Returns how many there were.

    How far they had come is set to 0 first, so that one of them would start again, and forgotten last, so that a crash
    in between does not leave vectors that nobody looks for.
    """
    dropped = len(tx.all(Q.drop_vectors_by, models=canonical_json(list(models)), limit=DROPPED))
    for model in models:
        if dropped:
            tx.run(Q.restart_embedder, name=_name(model))
        else:
            tx.run(Q.forget_embedder, name=_name(model))
    return dropped


def embedding_backlog(tx: Tx, model: str) -> int:
    last = tx.all(Q.last_pid)[0][0]
    return max(0, int(last) - _embedded(tx, model))


def _embedded(tx: Tx, model: str) -> int:
    row = tx.one(Q.embedded_pid, name=_name(model))
    return int(row[0]) if row else 0


def _name(model: str) -> str:
    return f"embedded_pid/{model}"


def facts_to_embed(tx: Tx, model: str, limit: int) -> list[FactToEmbed]:
    return [
        FactToEmbed(tenant=tenant, conversation=conversation, id=id, text=text)
        for tenant, conversation, id, text in tx.all(Q.facts_to_embed, model=model, limit=limit)
    ]


def put_fact_vectors(tx: Tx, model: str, vectors: Sequence[tuple[FactToEmbed, bytes]]) -> None:
    for one, vector in vectors:
        place = {"tenant": one.tenant, "conversation": one.conversation, "id": one.id}
        tx.run(Q.put_fact_vector, model=model, vector=vector, **place)
