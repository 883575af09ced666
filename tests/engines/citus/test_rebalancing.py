"""A node is added and gets its share of the shards while the application writes."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import asyncpg
import pytest

import palaver
from palaver.engines.postgres import citus, migrate
from palaver.engines.postgres.transports import open_connection
from tests.engines.citus.test_cluster import TENANTS, node_of
from tests.support import citus_cluster
from tests.support.citus_cluster import Cluster

PATIENCE = 240

needs_spare = pytest.mark.skipif(
    not os.environ.get(citus_cluster.SPARE),
    reason=f"no spare server: make citus URL=… SPARE=… (or {citus_cluster.SPARE}): not a node yet",
)


@pytest.fixture
async def small() -> AsyncIterator[Cluster]:
    """A distributed database of its own."""
    async with citus_cluster.scratch() as cluster:
        async with open_connection(cluster.url) as connection:
            await migrate.migrate(connection)
            await citus.distribute(connection)
        yield cluster


@pytest.fixture
async def spare(small: Cluster) -> AsyncIterator[tuple[str, int]]:
    """The host and port of a server that can be added to the cluster."""
    url = os.environ[citus_cluster.SPARE]
    await citus_cluster.create(url, small.name)
    parts = urlsplit(url)
    yield parts.hostname or "", parts.port or 5432
    await citus_cluster.drop(url, small.name)


async def write_until(done: asyncio.Event, url: str, tenant: str) -> int:
    """Append to one conversation of a tenant. Returns how many turns were acknowledged."""
    count = 0
    async with palaver.open(url, tenant=tenant, worker=False) as store:
        talk = await store.conversation("k")
        while not done.is_set():
            try:
                await talk.append("user", f"say {count}", idempotency_key=f"{count}")
            except palaver.EngineError:  # a shard changes its node: the application retries, as in any failover
                await asyncio.sleep(0.05)
            else:
                count += 1
    return count


async def add_and_rebalance(cluster: Cluster, host: str, port: int) -> None:
    connection = await asyncpg.connect(cluster.url)
    await connection.execute(f"SELECT citus_add_node('{host}', {port})")
    await connection.execute("SELECT citus_rebalance_start()")
    await connection.execute("SELECT citus_rebalance_wait()")
    await connection.close()


@needs_spare
async def test_a_new_node_is_filled_while_the_application_writes(small: Cluster, spare: tuple[str, int]) -> None:
    url = await small.create_login()
    before = {tenant: await node_of(small, tenant) for tenant in TENANTS}
    done = asyncio.Event()
    writers = [asyncio.create_task(write_until(done, url, tenant)) for tenant in TENANTS]
    async with asyncio.timeout(PATIENCE):
        try:
            await add_and_rebalance(small, *spare)
        finally:
            done.set()
        counts = await asyncio.gather(*writers)
    after = {tenant: await node_of(small, tenant) for tenant in TENANTS}
    assert spare in after.values()
    assert before != after
    for tenant, count in zip(TENANTS, counts, strict=True):
        async with palaver.open(url, tenant=tenant, worker=False) as store:
            talk = await store.conversation("k")
            await talk.append("user", "At last, green tea.")
            turns = await talk.history(limit=10_000)
            assert [turn.text for turn in turns] == [*(f"say {n}" for n in range(count)), "At last, green tea."]
            await talk.verify()
            await store.settle()
            assert (await talk.recall("green tea"))[0].turn.text == "At last, green tea."
    numbers = (
        "SELECT tenant, array_agg(tid ORDER BY seq) = array_agg(tid ORDER BY tid) AS grow FROM palaver.turns GROUP BY 1"
    )
    assert all(row["grow"] for row in await small.fetch(numbers))
