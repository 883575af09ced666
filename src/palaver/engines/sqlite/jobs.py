"""The queue of background jobs: what waits, which worker has it, what failed. Each function is one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from palaver.core.identity import canonical_json, from_json
from palaver.engines.sqlite.open_conversation import require_cid
from palaver.engines.sqlite.queries import Q
from palaver.engines.sqlite.transaction import Tx
from palaver.engines.wakeup import JOBS
from palaver.memory.compaction import Compaction
from palaver.model import Scope
from palaver.ports.jobs import Job

# The longest lease and the longest delay, in microseconds. A time further ahead was written before the clock was set
# back, and counts as over.
FARTHEST = 300_000_000


def enqueue_for_new_turns(tx: Tx, cids: Sequence[int]) -> None:
    """Enqueue what is due for these conversations after new turns entered the text index."""
    for cid in cids:
        turns, tokens, settings = tx.all(Q.triggers, cid=cid)[0]
        if Compaction.of(from_json(settings) if settings else {}).is_due(turns, tokens):
            tx.run(Q.add_job, cid=cid, kind="compact", argument=None, now=tx.now)
    if cids:
        enqueue_embed_job(tx)


def enqueue_embed_job(tx: Tx) -> None:
    """Enqueue one job that embeds whatever has no vector in this file. It belongs to no conversation."""
    tx.run(Q.add_job, cid=0, kind="embed", argument=None, now=tx.now)
    tx.touched.add(JOBS)


def add_job(tx: Tx, scope: Scope, conversation: str, kind: str, argument: int | None) -> None:
    tx.run(Q.add_job, cid=require_cid(tx, scope, conversation), kind=kind, argument=argument, now=tx.now)
    tx.touched.add(JOBS)


def due_parameters(tx: Tx, kinds: Sequence[str]) -> dict[str, int | str]:
    """Return the parameters of the predicates `job_due` and `job_known`."""
    return {"now": tx.now, "farthest": tx.now + FARTHEST, "kinds": canonical_json(list(kinds))}


def claim(tx: Tx, lease: int, kinds: Sequence[str]) -> Job | None:
    """Take the job that has waited longest. A worker that dies loses it when the lease ends."""
    rows = tx.all(Q.claim_job, lease_until=tx.now + lease, **due_parameters(tx, kinds))
    if not rows:
        return None
    jid, cid, kind, argument, attempts, asked = rows[0]
    tenant, conversation = "", None  # an embed job is for all of them
    if cid:
        found = tx.one(Q.claimed_conversation, cid=cid)
        if found is None:
            tx.run(Q.drop_job, jid=jid)
            return claim(tx, lease, kinds)
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
    """Remove a finished job, or make it due again if it was enqueued once more since it was claimed."""
    tx.run(Q.finish_job, jid=job.id, attempts=job.attempts, asked=job.asked)
    tx.run(Q.reopen_job, jid=job.id, attempts=job.attempts, now=tx.now)
    tx.touched.add(JOBS)


def release(tx: Tx, job: Job) -> None:
    """Give a job back without counting the attempt."""
    tx.run(Q.release_job, jid=job.id, attempts=job.attempts)


def retry(tx: Tx, job: Job, delay: int, error: str, dead: bool) -> None:
    run_at = tx.now + min(delay, FARTHEST)
    tx.run(Q.retry_job, jid=job.id, attempts=job.attempts, run_at=run_at, error=error, dead=int(dead))


def next_due(tx: Tx, kinds: Sequence[str]) -> int | None:
    """Return when the next job is due; None when there is none."""
    due: int | None = tx.all(Q.next_job, **due_parameters(tx, kinds))[0][0]
    return due
