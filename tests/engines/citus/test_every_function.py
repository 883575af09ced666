"""Functions that the guarantees seldom or never reach, called one by one on a filled conversation."""

from __future__ import annotations

import asyncpg
import pytest

import palaver
from palaver.testing import HashEmbedder
from tests.support.citus_cluster import Cluster

WHO = '{"tenant": "acme", "sight": "tenant", "rights": "read,write,admin,system", "now": 1800000000000000}'
KINDS = "ARRAY['embed', 'compact', 'title', 'files']"
JOB = """jsonb_build_object('id', 0, 'kind', 'embed', 'conversation', '{talk}', 'attempts', 1, 'asked', 1)"""
VECTOR = "'[' || repeat('0.1,', 383) || '0.1]'"

# In this order: the last ones delete.
CALLS = {
    "find_conversation": "'', 'k'",
    "whole": "'{talk}'",
    "summaries": "'{talk}'",
    "span": "'{talk}', 0, 10",
    "speakers": "'{talk}', '{{0,5}}', '{{5,10}}', true",
    "uncovered": "'{talk}', 0",
    "matches": "'{talk}', 'tea', 10",
    "requests": "'{talk}', 10",
    "count_calls": "'{talk}', 0",
    "usage": "10",
    "stats": "",
    "tips": "'', 10",
    "unsealed": "10",
    "seals": "'{talk}'",
    "signed_in_scope": "",
    "waiting_here": "",
    "health": f"false, {KINDS}",
    "next_job": KINDS,
    "recall_size": "0",
    "profile": "NULL",
    "postings": "'{{tea,green}}', 100",
    "vectors": "'{model}', '{{}}'",
    "some_vectors": "'{model}', 100",
    "fact_vectors": "'{model}'",
    "facts_to_embed": "'{model}', 10",
    "put_fact_vectors": f"'{{model}}', jsonb_build_array(jsonb_build_array('{{talk}}', 'no such fact', {VECTOR}))",
    "nearest": f"'{{model}}', {VECTOR}, 10, '{{{{1,2}}}}'",
    "turns_numbered": "'{{1,2}}'",
    "file_quotes": "'{{1,2}}', '{{tea}}'",
    "embedding_backlog": "'{model}'",
    "counter_bound": "'{model}'",
    "put_counter_bound": "'{model}', 1.5, 3",
    "renew_job": f"{JOB}, 1000000",
    "release_job": JOB,
    "retry_job": f"{JOB}, 1000000, 'TimeoutError', true",
    "finish_job": JOB,
    "embed_again": "'{{{model}}}', 0, 10",
    "to_embed": "'{model}', 10, 3",
    "drop_vectors": "'{{another}}', '{talk}', 10",
    "drop_other_vectors": "'{model}', 10",
    "drop_summary": "'{talk}', 0, 0",
    "drop_loose_files": "1, 10",
    "orphans": "'{{nowhere}}'",
    "archive_log": "'{talk}', 5, '{tip}', 1",
    "api_keys": "",
    "key_events": "0, 10",
    "retire": "'{talk}', 2, true, 10",
    "forget_older": "1, 10",
    "seal_expired": "",
    "expire": "10",
    "reset": "'{talk}'",
    "forget_conversation": "'{talk}'",
}


@pytest.fixture
async def talk(citus_url: str) -> str:
    """The id of a conversation with turns and vectors."""
    async with palaver.open(citus_url, tenant="acme", embedder=HashEmbedder(384), worker=False) as store:
        talk = await store.conversation("k")
        await talk.append_many([{"role": "user", "content": f"Green tea number {n}, please."} for n in range(20)])
        await store.settle()
        return talk.id


async def test_no_statement_of_a_function_leaves_its_shard(cluster: Cluster, citus_url: str, talk: str) -> None:
    connection = await asyncpg.connect(citus_url)
    (model,) = await cluster.fetch("SELECT DISTINCT model FROM palaver.embeddings")
    (fifth,) = await cluster.fetch("SELECT '\\x' || encode(hash, 'hex') AS hash FROM palaver.events WHERE n = 5")
    known = {"talk": talk, "model": model["model"], "tip": fifth["hash"]}
    failed = []
    for name, args in CALLS.items():
        values = ", ".join(["$1", *([args.format(**known)] if args else [])])
        try:
            await connection.fetch(f"SELECT * FROM palaver_api.{name}({values})", WHO)
        except asyncpg.PostgresError as problem:
            failed.append(f"{name}: {problem}")
    await connection.close()
    assert failed == []
