"""The hot queries read a bounded number of rows by index, whatever there is, and are planned alike at every call.

`make test` does it with 20,000 turns. `make plans` does it with a million of them in a thousand conversations, which
takes some minutes and 4 GB of disk: the bounds are the same. PALAVER_BENCH_DATABASE names one that is filled already,
as for the benchmark (bench/large.py).
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from palaver.core.identity import canonical_json
from palaver.core.turn_draft import DraftBuilder
from palaver.engines.postgres import rows, transports
from palaver.models.tokens import BpeCounter
from tests.support import postgres_server
from tests.support.many_turns import DIMENSIONS, MODEL, SIZE, START, TENANT, ManyTurns, fill
from tests.support.postgres_server import Server, migrate_for_tests

CALLS = 8  # after five of them, a plan may become a generic one
LARGE = {"turns", "events", "passages", "embeddings"}
COUNTED = LARGE | {"conversations", "jobs", "streams"}
SHORT = ManyTurns(conversations=20, owners=11)
TALK = "0" * 18 + "70000000"  # conversation 7
QUESTION = ["w77", "w900", "w3", "w2"]
VECTOR = "[" + ",".join(["0.05"] * DIMENSIONS) + "]"


@dataclass(frozen=True)
class Query:
    """A function with its arguments, and how many rows it may read.

    If it looks at several conversations, it may read their rows, `conversations` times. `vectors` says that the vectors
    of these are compared one by one: that is done in a scope with up to 200,000 of them.
    """

    function: str
    most: int
    args: dict[str, Any] = field(default_factory=dict)
    user: str | None = None
    conversations: int = 0
    vectors: bool = False

    def bound(self, size: ManyTurns) -> int:
        seen = size.conversations if self.user is None else size.conversations // 10
        return self.most + self.conversations * size.conversations + self.vectors * seen * size.turns

    def arguments(self, size: ManyTurns) -> dict[str, Any]:
        """Return the arguments, with the size of the scope where it is asked for."""
        passages = size.total if self.user is None else size.total // 10
        known = {"passages": passages, "terms": passages * SIZE}
        return {name: known.get(name, value) for name, value in self.args.items()}


def one_draft() -> str:
    draft = DraftBuilder(BpeCounter()).draft("0" * 26, "user", "A word about w77.", actor="ada")
    return canonical_json([rows.draft_json(draft)])


CANDIDATES = {
    "stems": QUESTION,
    "passages": 0,
    "terms": 0,
    "by_words": 300,
    "by_meaning": 300,
    "model": MODEL,
    "asked": VECTOR,
}
HERE = {"conversation": TALK}
# A conversation has 1,000 turns. A bound of some thousand rows is a part of 20,000, and next to nothing of a million.
HOT = {
    "append": Query("append", 20, {**HERE, "drafts": one_draft()}),
    "history": Query("history", 60, {**HERE, "most": 50}),
    "list": Query("conversations", 60, {"most": 20}),
    "list of an owner": Query("conversations", 60, {"most": 20}, user="user 0", conversations=1),
    "context": Query("reading", 700, {**HERE, "budget": 4_000, "in_characters": False, "most_facts": 20}),
    "log": Query("events", 110, {**HERE, "after": 5, "most": 100}),
    "recall in a conversation, turns": Query("profile", 1_100, {**HERE, "known": None}),
    "recall in a conversation, words": Query("postings", 2_000, {**HERE, "stems": QUESTION, "most": 20_000}),
    "recall in a conversation, vectors": Query("vectors", 2_100, {**HERE, "model": MODEL, "known": "{}"}),
    "recall in a tenant, size": Query("recall_size", 300, {"most": 1_000}, conversations=2),
    "recall in a tenant": Query("candidates", 60_000, CANDIDATES),
    "recall of an owner, size": Query("recall_size", 900, {"most": 1_000}, user="user 0", conversations=4),
    "recall of an owner": Query("candidates", 60_000, CANDIDATES, user="user 0", conversations=4, vectors=True),
    "nearest in a conversation": Query(
        "nearest", 1_100, {**HERE, "model": MODEL, "asked": VECTOR, "most": 300, "among": [7]}
    ),
    "nearest in a tenant": Query(
        "nearest", 3_000, {"model": MODEL, "asked": VECTOR, "most": 300, "among": [7]}, conversations=1
    ),
    "search for a rare word": Query("search", 6_000, {"query": "'w900'", "candidates": 50, "shown": 3, "most": 20}),
    "search for a common word": Query("search", 6_000, {"query": "'w2'", "candidates": 50, "shown": 3, "most": 20}),
    "claim a job": Query("claim_job", 10, {"lease": 1}),
    "passages to embed": Query("to_embed", 200, {"model": MODEL, "most": 50, "looked_at": 3, **HERE}),
    "sweep, expired": Query("expire", 10, {"most": 100}),
    "sweep, streams": Query("seal_expired", 10),
    "sweep, files": Query("waiting_here", 10),
    "turns by number": Query("turns_numbered", 200, {"tids": list(range(1, 51))}, conversations=1),
}


@dataclass
class Planned:
    """The plans of one call: what was read how, and how many rows of the large tables."""

    steps: list[tuple[str, str, str]] = field(default_factory=list)
    read: int = 0

    @classmethod
    def of(cls, plans: list[dict[str, Any]]) -> Planned:
        found = cls()
        for node in (node for plan in plans for node in nodes(plan["Plan"])):
            table = node.get("Relation Name")
            if (table or node.get("Index Name", "pg_")).startswith("pg_"):  # what asyncpg asks about types
                continue
            found.steps.append((node["Node Type"], table or "", node.get("Index Name", "")))
            if table in COUNTED:
                rows = node["Actual Rows"] + node.get("Rows Removed by Filter", 0)
                found.read += round(node["Actual Loops"] * (rows + node.get("Rows Removed by Index Recheck", 0)))
        return found

    @property
    def sequential(self) -> list[tuple[str, str, str]]:
        return [step for step in self.steps if step[0] == "Seq Scan" and step[1] in LARGE]


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for part in plan.get("Plans", ()):
        yield from nodes(part)


class Session:
    """A superuser's connection that calls functions, and collects the plans of every statement inside them."""

    def __init__(self, connection: Any) -> None:
        self.connection = connection
        self.plans: list[dict[str, Any]] = []
        connection.add_log_listener(lambda _, notice: self._collect(notice.message))

    def _collect(self, message: str) -> None:
        _, found, plan = message.partition("plan:\n")
        if found:
            self.plans.append(json.loads(plan))

    async def call(self, query: Query, size: ManyTurns) -> Planned:
        self.plans.clear()
        sight = {"sight": "tenant"} if query.user is None else {"sight": "own", "user": query.user}
        who = canonical_json({"tenant": TENANT, "rights": "read,write,admin", "now": START + 10**15, **sight})
        args = query.arguments(size)
        given = "".join(f", {name} => ${n}" for n, name in enumerate(args, 2))
        work = self.connection.transaction()
        await work.start()
        try:
            await self.connection.fetch(
                f"SELECT * FROM palaver_api.{query.function}(who => $1{given})", who, *args.values()
            )
        finally:
            await work.rollback()
        await asyncio.sleep(0)  # the event loop delivers notices
        assert self.plans, "nothing was explained"
        return Planned.of(self.plans)


AUTO_EXPLAIN = """
LOAD 'auto_explain';
SET auto_explain.log_min_duration = 0;
SET auto_explain.log_nested_statements = on;
SET auto_explain.log_level = 'notice';
SET auto_explain.log_format = 'json';
SET auto_explain.log_analyze = on;
SET auto_explain.log_timing = off;
SET random_page_cost = 1.1;  -- as on every disk without a moving head
"""


async def fill_template(url: str, size: ManyTurns) -> None:
    await migrate_for_tests(url)
    async with transports.open_connection(url) as connection:
        await fill(connection, size)


@pytest.fixture(
    params=[
        pytest.param(SHORT, id="20,000 turns"),
        pytest.param(ManyTurns(), id="1,000,000 turns", marks=pytest.mark.slow),
    ]
)
async def filled(request: pytest.FixtureRequest, postgres: Server) -> AsyncIterator[tuple[Session, ManyTurns]]:
    size: ManyTurns = request.param
    url = os.environ.get("PALAVER_BENCH_DATABASE") if size == ManyTurns() else None
    if url is None:
        name = f"{size.total} turns"
        template = await postgres_server.migrated_template(postgres, name, lambda at: fill_template(at, size))
        url = postgres.at(template)
    async with transports.open_connection(url) as connection:  # every call is rolled back
        await connection.execute(AUTO_EXPLAIN)
        yield Session(connection), size


@pytest.mark.parametrize("name", HOT)
async def test_a_hot_query_reads_few_rows_by_index_and_is_planned_alike_each_time(
    filled: tuple[Session, ManyTurns], name: str
) -> None:
    session, size = filled
    query = HOT[name]
    plans = [await session.call(query, size) for _ in range(CALLS)]
    assert [plan.sequential for plan in plans] == [[]] * CALLS
    assert max(plan.read for plan in plans) <= query.bound(size), plans[-1].steps
    assert plans[0].steps == plans[-1].steps
