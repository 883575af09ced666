"""The worker: claims jobs from the queue and runs them, after the fact and without holding up writers.

Any number of workers may run, in any number of processes: a job is leased, and a worker that dies loses it when the
lease ends. Models are called between transactions. A job that fails is tried again, with growing delays, and is set
aside with the type of its error after the last try.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import inf
from typing import Any

from palaver.errors import (
    BudgetExceeded,
    ConversationGone,
    ConversationNotFound,
    EngineError,
    EngineUnavailable,
    FilesNotConfigured,
)
from palaver.memory.worker.extraction import Extraction
from palaver.memory.worker.jobs import JOBS, Handler
from palaver.memory.worker.jobs.compact import Compactor
from palaver.memory.worker.jobs.embed import embed, replace_superseded
from palaver.memory.worker.jobs.repair import enqueue_repairs
from palaver.memory.worker.model_calls import CallLimit
from palaver.memory.worker.services import TRIES, JobServices, log
from palaver.model import Fact, Scope
from palaver.ports.jobs import Job

LEASE_SECONDS = 30.0  # renewed three times in it; after a kill, the next worker waits this long for the job
FIRST_DELAY, LAST_DELAY = 1_000_000, 60_000_000  # microseconds: 1, 2, 4, 8 … seconds
FILES = "files"  # the kind of the jobs that read files
BUDGET_SECONDS = 300  # until a job that a budget refused is tried again: the longest delay that engines store
CHECK_SECONDS = 3_600.0
IDLE_SECONDS = 1.0  # between two looks at the queue when nothing wakes the worker


@dataclass(slots=True)
class Worker(JobServices):
    """Runs the jobs in the queue of a database.

    `jobs` are the kinds of jobs that it knows. Others are left for a worker that knows them: during an upgrade, the
    queue may hold jobs of a newer version. So are those that read files, if this worker does not know where files are.
    """

    jobs: Mapping[str, Handler] = field(default_factory=lambda: JOBS)
    check_seconds: float = CHECK_SECONDS  # between two looks for derived rows that are missing
    lease_seconds: float = LEASE_SECONDS

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of jobs that this worker claims."""
        return tuple(kind for kind in self.jobs if kind != FILES or self.files is not None)

    @property
    def _lease(self) -> int:
        return round(self.lease_seconds * 1_000_000)

    async def run(self) -> None:
        """Run jobs until cancelled: at once when the queue signals one, and every second in any case."""
        self.in_background = True
        checked, look_at = False, 0.0
        async with self.engine.watch("*jobs*") as signal:
            while True:
                try:
                    if not checked:
                        await self.replace_superseded()
                        await self._report_files()
                        checked = True
                    await self._run_due()
                    if time.monotonic() >= look_at:
                        look_at = time.monotonic() + self.check_seconds
                        await enqueue_repairs(self)
                except EngineError:
                    pass  # busy or full now; there is a next time
                try:
                    async with asyncio.timeout(IDLE_SECONDS):  # before 3.12, wait_for may swallow a cancellation
                        await signal.wait()
                except TimeoutError:
                    continue

    async def _run_due(self) -> None:
        while await self._is_due():
            await self.throttle.let_writers_go_first()
            if not await self.run_one(give_way=True):
                return
        self.throttle.mark_idle()

    async def _is_due(self) -> bool:
        """Return whether a job is due. Takes no lock, while claiming a job is a write."""
        due = await self.next_due()
        return due is not None and due <= self.clock.now()

    async def next_due(self, tenant: str | None = None) -> datetime | None:
        """Return when the next job is due that this worker knows; None when there is none."""
        return await self.engine.next_job(tenant, self.kinds)

    async def drain(self, tenant: str | None = None) -> None:
        """Run jobs until none is left, and wait for those that other workers have claimed."""
        with self.throttle.caller_waits():
            await self.engine.index_all()
            await self.replace_superseded(tenant)
            await self._report_files()
            while await self.run_one(tenant) or await self._wait_for_next(tenant):
                pass

    async def _report_files(self) -> None:
        """Log that jobs wait for another worker, because this one does not know where files are."""
        if FILES in self.jobs and FILES not in self.kinds and await self.engine.next_job(None, (FILES,)) is not None:
            log.warning("attached files wait for a worker that can read them: %s", FilesNotConfigured())

    async def _wait_for_next(self, tenant: str | None) -> bool:
        """Wait a moment for a job that is delayed or claimed elsewhere. False when none comes soon."""
        due = await self.next_due(tenant)
        wait = inf if due is None else (due - self.clock.now()).total_seconds()
        if wait > max(self.lease_seconds, LAST_DELAY / 1_000_000):
            return False  # a budget is used up
        await asyncio.sleep(min(max(wait, 0.01), 0.25))
        return True

    async def run_one(self, tenant: str | None = None, *, give_way: bool = False) -> bool:
        """Run one job; with `give_way`, let writers go first between its steps. False when there was none."""
        job = await self._claim(tenant)
        if job is None:
            return False
        handler = self.jobs.get(job.kind)
        if handler is None:  # the server began to close while the claim was under way
            await self.engine.release_job(job)
            return False
        renewal = asyncio.create_task(self._keep_lease(job), name="palaver-lease")
        try:
            await handler(self, job, give_way)
        except (ConversationGone, ConversationNotFound):
            await self.engine.finish_job(job)
        except EngineUnavailable:
            raise
        except BudgetExceeded as problem:
            await self._postpone(job, problem)
        except asyncio.CancelledError:  # the store is being closed: the next worker need not wait for the lease
            with suppress(EngineError):  # a full disk must not keep it from closing
                await asyncio.shield(self.engine.release_job(job))
            raise
        except Exception as problem:  # a model or a text may raise anything: the job is retried or set aside
            await self._put_off(job, problem)
        else:
            await self.engine.finish_job(job)
        finally:
            renewal.cancel()
        return True

    async def _claim(self, tenant: str | None) -> Job | None:
        """Claim a job. If this task is cancelled while the claim is under way, the job is released."""
        claim = asyncio.ensure_future(self.engine.claim_job(self._lease, tenant, self.kinds))
        try:
            return await asyncio.shield(claim)
        except asyncio.CancelledError:
            with suppress(EngineError):
                job = await claim
                if job is not None:
                    await self.engine.release_job(job)
            raise

    async def _keep_lease(self, job: Job) -> None:
        """Renew the lease until cancelled, so that no other worker starts the job while a slow model is at work."""
        while True:
            await asyncio.sleep(self.lease_seconds / 3)
            try:
                await self.engine.renew_job(job, self._lease)
            except EngineError:
                pass  # there are two more tries before the lease ends

    async def _put_off(self, job: Job, problem: Exception) -> None:
        """Retry the job later; after the last try, set it aside."""
        delay = min(FIRST_DELAY * 2 ** min(job.attempts - 1, 20), LAST_DELAY)
        kind, is_last = type(problem).__name__, job.attempts >= TRIES
        outcome = "set aside" if is_last else "will be retried"
        log.warning("job %s of conversation %s failed (%s) and %s", job.kind, job.conversation, kind, outcome)
        await self.engine.retry_job(job, delay, kind, dead=is_last)

    async def _postpone(self, job: Job, problem: BudgetExceeded) -> None:
        """Look again in five minutes, or when the period of the budget ends. The attempt is not counted."""
        delay = min(round((problem.retry_after or BUDGET_SECONDS) * 1_000_000), BUDGET_SECONDS * 1_000_000)
        log.warning("job %s of conversation %s waits for a budget: %s", job.kind, job.conversation, problem)
        await self.engine.release_job(job)
        released = replace(job, attempts=job.attempts - 1)
        await self.engine.retry_job(released, delay, type(problem).__name__, dead=False)

    # ---- work that callers wait for

    async def embed(self, job: Job | None = None) -> None:
        """Embed everything that has no vector yet."""
        await embed(self, job)

    async def replace_superseded(self, tenant: str | None = None) -> None:
        """Enqueue what an earlier version of the embedder has embedded."""
        await replace_superseded(self, tenant)

    async def compact(
        self,
        scope: Scope,
        conversation: str,
        keep: int | None = None,
        *,
        force: bool = False,
        through: int | None = None,
        policy: Mapping[str, Any] | None = None,
    ) -> int:
        """Write the summaries that are due now, or all through a position. Returns how many summarise turns."""
        limit = CallLimit(self, scope, conversation, "caller")
        compactor = Compactor(self, scope, conversation, limit, through, policy or {})
        return await compactor.compact(keep, force=force)

    async def extract_facts(
        self, scope: Scope, conversation: str, tokens: int, through: int | None = None
    ) -> list[Fact]:
        """Store the facts of the turns that no summary covers yet, and return the new ones. Reads `tokens` at most."""
        limit = CallLimit(self, scope, conversation, "caller")
        return await Extraction(self, scope, conversation, limit).extract_facts(tokens, through)
