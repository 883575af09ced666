"""Recall on Postgres in a tenant of a million turns, each with a vector, next to a plain query of the same run.

Filling the database takes most of the time. PALAVER_BENCH_DATABASE names one that is filled already, by the address of
its superuser: `python -m tests.support.many_turns ADDRESS` fills an empty one that was migrated.
"""

from __future__ import annotations

import os
import random
import resource
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import palaver
from bench.measure import Bench, Figure, Goal, Result, in_turns
from palaver import Scope

FILLED = "PALAVER_BENCH_DATABASE"
K = 10
IN_CONVERSATION = Goal(50, at_least=False, of="value")
IN_TENANT = Goal(300, at_least=False, of="value")
FLAT = Goal(100, at_least=False, of="value")
NEAREST = """SELECT t.content FROM palaver.embeddings e JOIN palaver.turns t ON t.tenant = e.tenant AND t.tid = e.tid
WHERE e.tenant = $2 AND extensions.vector_dims(e.vector) = 384
ORDER BY e.vector::extensions.halfvec(384) OPERATOR(extensions.<#>) $1::text::extensions.halfvec(384) LIMIT 10"""


class RandomVectors:
    """An embedder whose vectors do not depend on the text: the time of a real one is not part of recall."""

    typical_cosine = 0.2

    def __init__(self, name: str, dimensions: int) -> None:
        self.name, self.dimensions = name, dimensions
        self.chance = random.Random(19)

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        return [self.one() for _ in texts]

    def one(self) -> list[float]:
        numbers = [self.chance.gauss(0, 1) for _ in range(self.dimensions)]
        size = sum(number * number for number in numbers) ** 0.5
        return [number / size for number in numbers]


@asynccontextmanager
async def filled(bench: Bench, server: Any) -> AsyncIterator[tuple[str, Any]]:
    """Yield the superuser's URL of a database with many turns, and their number."""
    from tests.support import many_turns, postgres_server
    from tests.support.postgres_server import migrate_for_tests

    given = os.environ.get(FILLED)
    size = many_turns.ManyTurns(conversations=1_000 if given or max(bench.sizes.histories) >= 1_000_000 else 20)
    if given:
        yield given, size
        return
    name = await postgres_server.new_database(server)
    await migrate_for_tests(server.at(name))
    await many_turns.fill_at(server.at(name), size)
    yield server.at(name), size
    await postgres_server.drop_database(server, name)


async def recalls(bench: Bench, server: Any) -> list[Result]:
    import asyncpg
    from tests.support import postgres_server
    from tests.support.many_turns import DIMENSIONS, MODEL, TENANT

    embedder = RandomVectors(MODEL, DIMENSIONS)
    chance = random.Random(7)
    async with filled(bench, server) as (admin, size), asyncpg.create_pool(admin, min_size=1, max_size=1) as pool:
        url = postgres_server.as_application(admin)
        async with palaver.open(url, tenant=TENANT, embedder=embedder, worker=False) as store:
            user = store.scoped(Scope.of(TENANT, "user 0"))
            talks = {"tenant": await _some_conversation(store), "owner": await _some_conversation(user)}

            def question() -> str:
                return " ".join(f"w{int(20_000 ** chance.random())}" for _ in range(6))

            def recall(name: str, scope: Any) -> Any:
                async def ask(_: object) -> None:
                    await talks[name].recall(question(), k=K, scope=scope, include_facts=False)

                return ask

            async def nearest(_: object) -> None:
                await pool.fetch(NEAREST, str(embedder.one()), TENANT)

            contestants = {
                "plain": nearest,
                "conversation": recall("tenant", "conversation"),
                "tenant": recall("tenant", "tenant"),
                "owner": recall("owner", "owner"),
            }
            for ask in contestants.values():
                await ask(None)  # plans, and the caches of a process that has just started
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            rounds = await in_turns(bench.sizes.slices, contestants)
            grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1_024
    than = "the 10 nearest vectors, by the index and with their text"

    def figure(what: str, name: str, goal: Goal | None) -> Figure:
        each, plain = rounds.seconds(name) * 1_000, rounds.seconds("plain") * 1_000
        return Figure("postgres", what, each, "ms", plain, than, goal, paired=rounds.times(name, "plain"))

    turns, owned = f"{size.total:,} turns", f"{size.total // 10:,} turns"
    return [
        figure(f"recall in a conversation, {turns} in the tenant", "conversation", IN_CONVERSATION),
        figure(f"recall in the tenant, {turns}", "tenant", IN_TENANT),
        figure(f"recall of an owner with {owned} among {turns}", "owner", None),
        Figure("postgres", f"memory of the client, more after {bench.sizes.slices} recalls", grown, "MB", goal=FLAT),
    ]


async def _some_conversation(store: palaver.Store) -> palaver.Conversation:
    page = await store.conversations(limit=1)
    return await store.get(page.items[0].id)
