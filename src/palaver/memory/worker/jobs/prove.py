"""The job `prove`: logs the hashes of derived rows from a version that did not."""

from __future__ import annotations

from palaver.memory.worker.services import JobServices
from palaver.model import Scope
from palaver.ports.jobs import Job

BATCH = 50  # rows in one transaction, so that other writers can go in between


async def run(services: JobServices, job: Job, give_way: bool) -> None:
    """Bring all derived rows of a conversation into its log, as they are now."""
    assert job.conversation is not None
    scope = Scope.of(job.tenant, None)
    while await services.engine.prove_rows(scope, job.conversation, BATCH):
        if give_way:
            await services.throttle.let_writers_go_first()
