"""Several workers for several tenants: each job is done, by exactly one of them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta

import palaver
from palaver import Scope
from palaver.conversations.internals import engine_of, worker_of
from palaver.engines.postgres.transports import open_connection
from palaver.memory.worker.loop import LEASE_SECONDS
from palaver.testing import FakeClock
from tests.support import postgres_server

# A worker that claims its job, prints that, and never finishes.
STUCK = """
import asyncio, sys, palaver

class Stuck:
    name = "stuck"
    async def summarize(self, turns, budget):
        print("asked", flush=True)
        await asyncio.Event().wait()
    merge = summarize

async def main():
    async with palaver.open(sys.argv[1], embedder=None, summarizer=Stuck()):
        await asyncio.Event().wait()

asyncio.run(main())
"""


async def say(store: palaver.Store, key: str, turns: int = 60) -> palaver.Conversation:
    talk = await store.conversation(key)
    await talk.append_many({"role": "user", "content": f"Turn {n} of {key}."} for n in range(turns))
    return talk


async def test_the_job_of_a_killed_worker_is_taken_over(postgres_url: str) -> None:
    async with palaver.open(postgres_url, embedder=None, worker=False) as store:
        talk = await say(store, "left behind")
    worker = await asyncio.create_subprocess_exec(
        sys.executable, "-c", STUCK, postgres_url, stdout=asyncio.subprocess.PIPE
    )
    assert worker.stdout is not None
    async with asyncio.timeout(60):
        assert await worker.stdout.readline() == b"asked\n"
    os.kill(worker.pid, signal.SIGKILL)
    await worker.wait()

    async with palaver.open(postgres_url, embedder=None, worker=False) as store:
        while job := await engine_of(store).claim_job(1):  # every job that can be claimed is another one
            assert job.kind == "embed"
            await worker_of(store).embed(job)
            await engine_of(store).finish_job(job)
    later = FakeClock(datetime.now(UTC) + timedelta(seconds=LEASE_SECONDS + 1))
    async with palaver.open(postgres_url, embedder=None, worker=False, clock=later) as store:
        talk = await store.get(talk.id)
        assert await talk.summaries() == []
        await store.settle()
        assert await talk.summaries()
        await talk.verify()


async def test_many_workers_do_every_job_once_for_every_tenant(postgres_url: str) -> None:
    tenants = ["acme", "bolt", "core"]
    async with AsyncExitStack() as stack:
        workers = [
            await stack.enter_async_context(palaver.open(postgres_url, tenant="nobody", embedder=None, worker=False))
            for _ in range(4)
        ]
        stores = [workers[0].scoped(Scope.of(tenant, None)) for tenant in tenants]
        talks = [await say(store, f"talk {n}") for store in stores for n in range(4)]
        await asyncio.gather(*(worker_of(one).drain() for one in workers))
        for talk in talks:
            spans = [event.payload["from"] for event in await talk.audit(kinds=["summarize"])]
            assert spans
            assert len(spans) == len(set(spans)), "two workers wrote the same summary"
            await talk.verify()
        assert await engine_of(workers[0]).next_job() is None


async def test_a_job_that_waits_is_not_written_again(postgres_url: str, postgres_database: str) -> None:
    """Each turn of a long conversation makes it due. Only a job that a worker holds has to be marked."""
    jobs = "SELECT ctid::text, created FROM palaver.jobs ORDER BY kind"
    async with palaver.open(postgres_url, embedder=None, worker=False) as store:
        talk = await say(store, "long")
        async with open_connection(postgres_database) as admin:
            before = await admin.fetch(jobs)
            await talk.append("user", "One more.")
            assert await admin.fetch(jobs) == before
            claimed = {job.kind: job for _ in range(2) if (job := await engine_of(store).claim_job(60_000_000))}
            await talk.append("user", "And one more.")
            asked = await admin.fetchval("SELECT created FROM palaver.jobs WHERE kind = 'compact'")
            assert asked > claimed["compact"].asked


async def test_settle_waits_for_its_own_tenant_and_for_no_other(postgres_url: str) -> None:
    async with palaver.open(postgres_url, tenant="acme", embedder=None, worker=False) as store:
        other = store.scoped(Scope.of("bolt", None))
        mine, theirs = await say(store, "mine"), await say(other, "theirs")
        await store.settle()
        assert await mine.summaries()
        assert await theirs.summaries() == []
        await other.settle()
        assert await theirs.summaries()


async def test_a_login_that_is_no_worker_works_for_its_own_tenant(postgres_database: str) -> None:
    await postgres_server.execute(
        postgres_database,
        "CREATE ROLE palaver_plain LOGIN PASSWORD 'plain'",
        "GRANT palaver_app TO palaver_plain",
    )
    try:
        name = postgres_database.rpartition("/")[2]
        url = postgres_server.at(postgres_database, name, "palaver_plain", "plain")
        async with palaver.open(url, tenant="acme", embedder=None, worker=False) as store:
            other = store.scoped(Scope.of("bolt", None))
            mine, theirs = await say(store, "mine"), await say(other, "theirs")
            await worker_of(store).drain()
            assert await mine.summaries()
            assert await theirs.summaries() == []
            assert (await engine_of(store).health()).waiting == 0, "in its own tenant"
        async with palaver.open(postgres_server.as_application(postgres_database), worker=False) as store:
            assert (await engine_of(store).health()).waiting > 0, "in all tenants"
    finally:
        await postgres_server.execute(postgres_database, "DROP ROLE palaver_plain")
