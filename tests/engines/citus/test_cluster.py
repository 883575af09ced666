"""A distributed database: where rows are, how calls travel, and what is refused."""

from __future__ import annotations

import asyncio
import os
from contextlib import aclosing
from typing import Any

import asyncpg
import pytest
from typer.testing import CliRunner

import palaver
from palaver import Event
from palaver.cli import app
from palaver.model import Scope
from tests.engines.citus.conftest import run
from tests.support import citus_cluster, postgres_server
from tests.support.citus_cluster import Cluster

TENANTS = ("acme", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta")
PATIENCE = 30
APPLICATION = '{"tenant": "acme", "sight": "tenant", "rights": "read,write,admin,system"}'

# Every function of palaver_node with the tenant first, and a NULL of its type for each other argument.
CALLS = """
SELECT p.proname AS name, format('SELECT * FROM palaver_node.%I(%L, %s)', p.proname, 'acme', (
  SELECT string_agg('NULL::' || format_type(a.type, NULL), ', ' ORDER BY a.n)
  FROM unnest(p.proargtypes::oid[]) WITH ORDINALITY AS a (type, n) WHERE a.n > 1)) AS sql
FROM pg_proc p WHERE p.pronamespace = 'palaver_node'::regnamespace AND p.proargnames[1] = 'home'
"""


async def node_of(cluster: Cluster, tenant: str) -> tuple[str, int]:
    """The node that holds the rows of a tenant."""
    sql = """
      SELECT nodename, nodeport FROM citus_shards
      WHERE shardid = get_shard_id_for_distribution_column('palaver.conversations', $1::text)
    """
    (row,) = await cluster.fetch(sql, tenant)
    return row["nodename"], row["nodeport"]


# ---- where rows are ------------------------------------------------------------------------------------------------


async def test_every_table_is_distributed_by_tenant_beside_its_conversation(cluster: Cluster) -> None:
    tables = await cluster.fetch("SELECT 'palaver.' || tablename AS name FROM pg_tables WHERE schemaname = 'palaver'")
    placed = await cluster.fetch("SELECT table_name::text, distribution_column, colocation_id FROM citus_tables")
    assert {row["table_name"] for row in placed} == {row["name"] for row in tables}
    assert {row["distribution_column"] for row in placed} == {"tenant"}
    assert len({row["colocation_id"] for row in placed}) == 1


async def test_foreign_keys_and_row_level_security_are_on_the_nodes(cluster: Cluster) -> None:
    keys = (
        "SELECT count(*) FROM pg_constraint WHERE contype = 'f' AND conrelid::regclass::text ~ '^palaver.turns_[0-9]+$'"
    )
    policies = """
      SELECT count(*) FROM pg_class c WHERE c.relname ~ '^(turns|conversations|api_keys)_[0-9]+$'
        AND NOT (c.relrowsecurity AND c.relforcerowsecurity
          AND EXISTS (SELECT 1 FROM pg_policy p WHERE p.polrelid = c.oid))
    """
    for node in cluster.nodes:
        connection = await asyncpg.connect(node)
        assert await connection.fetchval(keys) > 0
        assert await connection.fetchval(policies) == 0
        await connection.close()


async def test_tenants_live_on_different_nodes_and_do_not_mix(cluster: Cluster, citus_url: str) -> None:
    for tenant in TENANTS:
        async with palaver.open(citus_url, tenant=tenant, worker=False) as store:
            await (await store.conversation("tea")).append("user", f"Tea for {tenant}, please.")
    for tenant in TENANTS:
        async with palaver.open(citus_url, tenant=tenant, worker=False) as store:
            (found,) = (await store.conversations()).items
            assert found.preview == f"Tea for {tenant}, please."
            (hit,) = await store.search("tea")
            assert hit.conversation.id == found.id
    assert len({await node_of(cluster, tenant) for tenant in TENANTS}) == len(cluster.nodes)


# ---- how calls travel ----------------------------------------------------------------------------------------------


async def test_every_function_is_routed_to_one_shard(cluster: Cluster) -> None:
    """EXPLAIN shows one task, on the tenant's node. Citus refuses statements inside that would leave the shard."""
    host, port = await node_of(cluster, "acme")
    connection = await asyncpg.connect(cluster.url)
    calls = await connection.fetch(CALLS)
    routed = {row["name"] for row in calls}
    for call in calls:
        plan = "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN {call['sql']}"))
        assert "Task Count: 1" in plan, call["name"]
        assert f"host={host} port={port}" in plan, call["name"]
    everything = await connection.fetch(
        "SELECT DISTINCT proname FROM pg_proc WHERE pronamespace = 'palaver_api'::regnamespace"
    )
    await connection.close()
    everywhere = {"any_key", "next_job_anywhere", "tenants", "tenants_waiting", "waiting"}
    only_calls_others = {"signed_in", "reading"}
    assert routed == {row["proname"] for row in everything} - everywhere - only_calls_others


async def test_a_call_is_one_transaction_on_one_node(cluster: Cluster, citus_url: str) -> None:
    """Begin, call and commit: three messages to the node, however many statements the function has."""
    async with palaver.open(citus_url, tenant="acme", worker=False) as store:
        talk = await store.conversation("k")
        await talk.append("user", "Tea, please.")
    connection = await asyncpg.connect(citus_url)
    sent: list[str] = []
    connection.add_log_listener(lambda _, message: sent.append(message.message))
    await connection.execute("SET citus.log_remote_commands = on")
    for sql, args in (
        ("SELECT * FROM palaver_api.history($1, $2, 10)", (APPLICATION, talk.id)),
        ("SELECT * FROM palaver_api.reading($1, $2, 4000, false, 50)", (APPLICATION, talk.id)),
        ("SELECT * FROM palaver_api.search($1, 'tea', 10, 3, 10)", (APPLICATION,)),
    ):
        sent.clear()
        await connection.fetch(sql, *args)
        commands = [message.split()[1] for message in sent if message.startswith("issuing")]
        assert commands == ["BEGIN", "SELECT", "COMMIT"], sql
    await connection.close()


async def test_one_store_appends_for_many_tenants_at_once(cluster: Cluster, citus_url: str) -> None:
    async with palaver.open(citus_url, tenant="acme", worker=False) as store:
        talks = [await store.scoped(Scope.of(tenant, None)).conversation("k") for tenant in TENANTS]
        await asyncio.gather(*(talk.append("user", f"say {n}") for n in range(20) for talk in talks))
        for talk in talks:
            assert sorted(turn.text for turn in await talk.history()) == sorted(f"say {n}" for n in range(20))
            await talk.verify()


async def test_a_stream_is_followed_live_from_another_process(cluster: Cluster, citus_url: str) -> None:
    async with (
        palaver.open(citus_url, tenant="beta", worker=False) as writer,
        palaver.open(citus_url, tenant="beta", worker=False) as reader,
    ):
        talk = await writer.conversation("k")
        seen: list[Event] = []

        async def follow() -> None:
            async with aclosing((await reader.conversation("k")).subscribe()) as events:
                async for event in events:
                    seen.append(event)
                    if event.kind == "commit":
                        return

        following = asyncio.create_task(follow())
        async with talk.stream("assistant") as turn:
            for piece in ("Green ", "tea ", "is ready."):
                await turn.write(piece)
        async with asyncio.timeout(PATIENCE):
            await following
        assert [event.n for event in seen] == list(range(1, len(seen) + 1))
        (stored,) = await talk.history()
        assert stored.text == "Green tea is ready."


async def test_one_worker_serves_all_tenants(cluster: Cluster, citus_url: str) -> None:
    for tenant in TENANTS:
        async with palaver.open(citus_url, tenant=tenant, worker=False) as store:
            await (await store.conversation("k")).append("user", "I always drink green tea.")
    jobs = "SELECT count(*) FROM palaver.jobs"
    assert (await cluster.fetch(jobs))[0][0] == len(TENANTS)
    await asyncio.to_thread(run, "worker", "--once", "--db", citus_url)
    assert (await cluster.fetch(jobs))[0][0] == 0


# ---- what is refused -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", ["turns", "passages", "summaries", "requests", "counter_bounds"])
async def test_a_table_is_not_empty_but_closed_without_a_tenant(cluster: Cluster, citus_url: str, table: str) -> None:
    async with palaver.open(citus_url, tenant="acme", worker=False) as store:
        await (await store.conversation("k")).append("user", "Tea, please.")
    for url in (citus_url, *map(cluster.application, cluster.nodes)):
        connection = await asyncpg.connect(url)
        with pytest.raises(asyncpg.PostgresError, match=r"palaver\.tenant is not set on this node"):
            await connection.fetch(f"SELECT count(*) FROM palaver.{table}")
        await connection.close()


async def test_a_call_for_another_tenant_than_its_node_is_refused(cluster: Cluster, citus_url: str) -> None:
    connection = await asyncpg.connect(citus_url)
    elsewhere = [tenant for tenant in TENANTS if await node_of(cluster, tenant) != await node_of(cluster, "acme")]
    with pytest.raises(asyncpg.PostgresError, match="distribution argument"):
        await connection.fetch("SELECT * FROM palaver_node.conversations($1, $2, 10)", elsewhere[0], APPLICATION)
    with pytest.raises(asyncpg.PostgresError) as refused:
        await connection.fetch("SELECT * FROM palaver_api.conversations('{}', 10)")
    assert refused.value.sqlstate == "PV021"
    await connection.close()


def test_doctor_says_over_how_many_nodes(cluster: Cluster, citus_url: str) -> None:
    for url in (cluster.url, citus_url):
        told: Any = run("doctor", "--db", url).stdout
        assert f"distributed over {len(cluster.nodes)} nodes" in told


async def set_on_node(cluster: Cluster, setting: str) -> None:
    """Change a setting of the database on one node only."""
    only_here = "SET citus.enable_ddl_propagation = off"
    await postgres_server.execute(cluster.nodes[0], only_here, f"ALTER DATABASE {cluster.name} SET {setting}")


async def test_doctor_warns_about_commits_that_a_move_would_lose(cluster: Cluster, citus_url: str) -> None:
    await set_on_node(cluster, "synchronous_commit = off")
    try:
        warned = await asyncio.to_thread(run, "doctor", "--db", citus_url)
    finally:
        await set_on_node(cluster, "synchronous_commit = on")
    assert "loses acknowledged turns" in " ".join(warned.stdout.split())
    quiet = await asyncio.to_thread(run, "doctor", "--db", citus_url)
    assert "synchronous_commit" not in quiet.stdout


def test_distributing_again_changes_nothing(cluster: Cluster) -> None:
    again = run("migrate", "--distribute", "citus", "--db", cluster.url)
    assert "with distribution" in again.stdout
    assert "distributing palaver." not in again.output


async def test_a_failure_names_the_server_s_own_reason(cluster: Cluster) -> None:
    """A coordinator that has no nodes yet."""
    name = f"{cluster.name}_alone"
    await citus_cluster.create(cluster.url, name)
    try:
        url = postgres_server.at(cluster.url, name)
        await asyncio.to_thread(run, "migrate", "--db", url)
        failed = await asyncio.to_thread(CliRunner().invoke, app, ["migrate", "--distribute", "citus", "--db", url])
        assert failed.exit_code == 1
        assert "no node of this cluster holds shards" in failed.output
        told = await asyncio.to_thread(run, "doctor", "--db", url)
        assert "Citus, not distributed" in told.stdout
    finally:
        await citus_cluster.drop(os.environ[citus_cluster.COORDINATOR], name)


def test_the_tables_of_older_systems_are_refused_with_the_reason(cluster: Cluster) -> None:
    done = CliRunner().invoke(app, ["migrate", "--compat", "librarian", "--db", cluster.url])
    assert done.exit_code == 1
    assert "cannot be combined with Citus" in " ".join(done.output.split())
