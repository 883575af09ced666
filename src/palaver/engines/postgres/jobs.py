"""The queue of background jobs on Postgres. Each method is one transaction inside one tenant.

A login that is a member of `palaver_worker` can list the tenants that have jobs, and works for all of them. Any other
login works for the tenant that the store was opened for.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime

from palaver.core.identity import moment
from palaver.engines.postgres.rpc import EnginePart, application_scope
from palaver.engines.postgres.transports import as_json
from palaver.errors import DatabaseReadOnly
from palaver.model import Scope
from palaver.ports.jobs import JOB_KINDS, Job

TENANTS = 20  # how many a worker tries before it concludes that there is no job to claim


class PostgresJobs(EnginePart):
    def quiet_seconds(self) -> float:
        return time.monotonic() - self.last_append

    async def add_job(self, scope: Scope, conversation: str, kind: str, argument: int | None) -> None:
        try:
            await self.write("add_job", scope, conversation=conversation, kind=kind, argument=argument)
        except DatabaseReadOnly:
            pass  # a hot standby: a read there enqueues nothing

    async def claim_job(self, lease: int, tenant: str | None = None, kinds: Sequence[str] = JOB_KINDS) -> Job | None:
        if not self.may_work:
            return None
        for one in await self._tenants_with_jobs(kinds) if tenant is None else [tenant]:
            rows = await self.write("claim_job", application_scope(one), lease=lease, kinds=list(kinds))
            if rows:
                return Job(tenant=one, **dict(rows[0]))
        return None

    async def _tenants_with_jobs(self, kinds: Sequence[str]) -> list[str]:
        """List tenants that may have a job, those that have waited longest first."""
        rows = await self.call_for_all_tenants("tenants_waiting", most=TENANTS, kinds=list(kinds))
        return [self.home] if rows is None else [row["tenant"] for row in rows]

    async def next_job(self, tenant: str | None = None, kinds: Sequence[str] = JOB_KINDS) -> datetime | None:
        if not self.may_work:
            return None  # there may be jobs, but none for this caller
        rows = await self.call_for_all_tenants("next_job_anywhere", kinds=list(kinds)) if tenant is None else None
        if rows is None:  # from the primary, where jobs are claimed: a replica is behind it
            rows = await self.write("next_job", self.home_scope(tenant), kinds=list(kinds))
        return None if rows[0]["due"] is None else moment(rows[0]["due"])

    async def renew_job(self, job: Job, lease: int) -> None:
        await self.write("renew_job", application_scope(job.tenant), job=as_json(job), lease=lease)

    async def finish_job(self, job: Job) -> None:
        await self.write("finish_job", application_scope(job.tenant), job=as_json(job))

    async def release_job(self, job: Job) -> None:
        await self.write("release_job", application_scope(job.tenant), job=as_json(job))

    async def retry_job(self, job: Job, delay: int, error: str, dead: bool) -> None:
        args = {"delay": delay, "error": error, "dead": dead}
        await self.write("retry_job", application_scope(job.tenant), job=as_json(job), **args)
