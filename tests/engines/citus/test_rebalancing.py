"""Shards move while the application writes: to a node that is added, and for a tenant that gets a shard of its own."""

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
            except palaver.EngineUnavailable:  # a shard changes its node: the application retries, as in any failover
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


async def isolate_and_move(cluster: Cluster, tenant: str) -> tuple[str, int]:
    """Give the tenant a shard of its own and move it to another node. Returns that node."""
    # Without block_writes the split can wait forever while rows change (github.com/citusdata/citus/issues/6790).
    isolate = "isolate_tenant_to_new_shard('palaver.conversations', $1::text, 'CASCADE', 'block_writes')"
    (row,) = await cluster.fetch(f"SELECT {isolate} AS shard", tenant)
    source = await node_of(cluster, tenant)
    target = next(node for node in map(place_of, cluster.nodes) if node != source)
    await cluster.fetch("SELECT citus_move_shard_placement($1, $2, $3, $4, $5)", row["shard"], *source, *target)
    return target


def place_of(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or 5432


async def test_a_tenant_gets_a_shard_and_a_node_of_its_own_while_the_application_writes(small: Cluster) -> None:
    url = await small.create_login()
    done = asyncio.Event()
    writers = [asyncio.create_task(write_until(done, url, tenant)) for tenant in TENANTS]
    async with asyncio.timeout(PATIENCE):
        try:
            target = await isolate_and_move(small, "acme")
        finally:
            done.set()
        counts = await asyncio.gather(*writers)
    assert await node_of(small, "acme") == target
    (row,) = await small.fetch(
        "SELECT count(*) FROM pg_dist_shard WHERE logicalrelid = 'palaver.conversations'::regclass"
        " AND shardid = get_shard_id_for_distribution_column('palaver.conversations', 'acme'::text)"
        " AND shardminvalue = shardmaxvalue"
    )
    assert row["count"] == 1
    for tenant, count in zip(TENANTS, counts, strict=True):
        async with palaver.open(url, tenant=tenant, worker=False) as store:
            talk = await store.conversation("k")
            turns = await talk.history(limit=10_000)
            assert [turn.text for turn in turns] == [f"say {n}" for n in range(count)]
            await talk.verify()
