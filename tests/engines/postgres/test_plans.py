"""The hot queries use their indexes under row level security, in a database with rows of other users."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

import palaver
from palaver import Scope
from palaver.core.identity import canonical_json, new_id
from palaver.core.turn_draft import DraftBuilder
from palaver.engines.postgres import transports
from palaver.engines.postgres.rows import draft_json
from palaver.engines.postgres.rpc import RpcClient

CONVERSATIONS, TURNS, LONG = 20, 60, 3_000
LARGE = ("turns", "events", "passages", "embeddings", "conversations", "turn_metadata", "conversation_metadata")
NEVER = re.compile(rf"Seq Scan on ({'|'.join(LARGE)})")
USED = re.compile(r"(?:using|on) (\w+)")


class Explained:
    """A superuser's connection that collects the plan of every statement inside a function."""

    def __init__(self, connection: Any, scope: Scope, talk: palaver.Conversation) -> None:
        self.connection, self.scope, self.talk = connection, scope, talk
        self.plans: list[str] = []
        self.url = ""

    async def call(self, function: str, **args: Any) -> str:
        self.plans.clear()
        who = RpcClient(None, palaver.conversations.open_options.SystemClock()).scope_params(self.scope)  # type: ignore[arg-type]
        given = ", ".join(f"{name} => ${n}" for n, name in enumerate(args, 2))
        sql = f"SELECT * FROM palaver_api.{function}(who => $1{', ' + given if given else ''})"
        async with self.connection.transaction():
            await self.connection.execute("LOAD 'auto_explain'")
            await self.connection.execute(
                "SET LOCAL auto_explain.log_min_duration = 0; SET LOCAL auto_explain.log_nested_statements = on;"
                "SET LOCAL auto_explain.log_level = 'notice';"
                "SET LOCAL enable_seqscan = off"  # otherwise small tables are always read sequentially
            )
            await self.connection.fetch(sql, who, *args.values())
        await asyncio.sleep(0)  # the event loop delivers notices
        assert self.plans, "nothing was explained"
        return "\n".join(self.plans)


async def say(talk: palaver.Conversation, turns: int) -> None:
    await talk.append_many(
        {"role": "user", "content": f"Turn {n} on subject {n % 17}.", "metadata": {"n": n, "subject": f"s{n % 17}"}}
        for n in range(turns)
    )


@pytest.fixture
async def explained(postgres_database: str, postgres_url: str) -> AsyncIterator[Explained]:
    async with palaver.open(postgres_url, tenant="acme", embedder=None, worker=False) as store:
        for n in range(CONVERSATIONS):
            some = store if n % 3 else store.scoped(Scope.of(f"tenant {n}", None))
            talk = await some.conversation(f"talk {n}", metadata={"n": n})
            await say(talk, TURNS)
        for _ in range(0, LONG, 1_000):  # the conversation of the queries
            await say(talk, 1_000)
        await talk.append("user", "The last word.")
        async with transports.open_connection(postgres_database) as connection:
            await connection.execute("ANALYZE")
            found = Explained(connection, some.scope, talk)
            connection.add_log_listener(lambda _, notice: found.plans.append(str(notice)))
            yield found


# A number in a range, as core/filters.py writes it.
FILTER = '[[0, "n", "number", 7, 9, false, false]]'
ASKED: dict[str, tuple[dict[str, Any], set[str]]] = {
    "reading": (
        {"budget": 500, "in_characters": False, "most_facts": 20},
        {"conversations_by_id", "turns_active", "summaries_pkey"},
    ),
    "history": ({"most": 20}, {"conversations_by_id", "turns_active"}),
    "events": ({"after": 5, "most": 100}, {"conversations_by_id", "events_pkey"}),
    "postings": ({"stems": ["last"], "most": 1_000, "conversation": None}, {"passages_terms"}),
    "profile": ({"known": None}, {"conversations_by_id"}),
    "history_where": ({"filter": FILTER, "most": 20}, {"turn_metadata_pkey", "turns_pkey"}),
    "turns_where": ({"filter": FILTER, "conversation": None}, {"turn_metadata_by_value"}),
    "matches_where": (
        {"filter": FILTER, "query": "'last'", "candidates": 500},
        {"turn_metadata_pkey", "passages_terms"},
    ),
    "conversations_where": (
        {"filter": FILTER, "most": 20},
        {"conversation_metadata_by_value"},  # how its few conversations are read then depends on the server's version
    ),
}


async def known_stamp(explained: Explained) -> list[int]:
    """Return the stamp of the turn arrays of the conversation, as a caller has it who knows all of its turns."""
    who = RpcClient(None, palaver.conversations.open_options.SystemClock()).scope_params(explained.scope)  # type: ignore[arg-type]
    async with explained.connection.transaction():
        asked = "SELECT stamp FROM palaver_api.profile(who => $1, known => NULL, conversation => $2)"
        stamp: list[int] = await explained.connection.fetchval(asked, who, explained.talk.id)
    return stamp


@pytest.mark.parametrize("function", ASKED)
async def test_a_hot_query_uses_its_index(explained: Explained, function: str) -> None:
    args, indexes = ASKED[function]
    place = {} if function == "conversations_where" else {"conversation": explained.talk.id}
    plans = await explained.call(function, **{**place, **args})
    assert NEVER.findall(plans) == []
    assert indexes <= set(USED.findall(plans)), plans


async def test_a_profile_that_is_known_is_brought_up_to_date_by_its_newest_turns(explained: Explained) -> None:
    """Turns that others have written since are not read."""
    stamp = await known_stamp(explained)
    plans = await explained.call("profile", conversation=explained.talk.id, known=stamp)
    assert NEVER.findall(plans) == []
    assert {"conversations_by_id", "turns_by_seq"} <= set(USED.findall(plans)), plans
    assert "tid >" not in plans, plans


@pytest.fixture
async def without_statistics(postgres_database: str, postgres_url: str) -> AsyncIterator[Explained]:
    """A conversation that was stored just now, as by an import: nothing has counted its rows yet."""
    async with transports.open_connection(postgres_database) as connection:
        for table in ("turns", "passages", "conversations"):
            await connection.execute(f"ALTER TABLE palaver.{table} SET (autovacuum_enabled = false)")
        async with palaver.open(postgres_url, tenant="acme", embedder=None, worker=False) as store:
            talk = await store.conversation("imported")
            for _ in range(0, LONG, 1_000):
                await say(talk, 1_000)
            found = Explained(connection, store.scope, talk)
            found.url = postgres_url
            connection.add_log_listener(lambda _, notice: found.plans.append(str(notice)))
            yield found


@pytest.mark.parametrize("function", ["search", "search_where", "matches", "matches_where"])
async def test_a_search_looks_rows_up_even_without_statistics(without_statistics: Explained, function: str) -> None:
    """The planner expected a handful of rows, and compared 20,000 with 100,000: a search took more than a minute."""
    asked: dict[str, Any] = {"query": "'subject'", "candidates": 500}
    asked |= {"shown": 3, "most": 20} if function.startswith("search") else {"conversation": without_statistics.talk.id}
    plans = await without_statistics.call(function, **asked)
    assert "turns_pkey" in plans
    assert re.findall(r"Join Filter: .*\b[tp]id\b", plans) == [], plans


CANDIDATES = {"stems": ["subject", "turn"], "passages": LONG, "terms": 4 * LONG, "by_words": 300}
# A scan of turns that is bounded by nothing but their tenant.
ALL_TURNS = re.compile(r"on turns \w+ [^\n]*\n\s*Index Cond: \(tenant = '\w+'::text\)\n")


@pytest.mark.parametrize("function", ["candidates", "candidates_where", "turns_numbered", "history_where", "profile"])
async def test_recall_looks_turns_up_even_without_statistics(without_statistics: Explained, function: str) -> None:
    """For each of some hundred turns it read all turns of the tenant: 16 seconds with 100,000 of them."""
    connection, place = without_statistics.connection, {"conversation": without_statistics.talk.id}
    args = {
        "candidates": CANDIDATES,
        "candidates_where": {**CANDIDATES, "filter": '[[0, "n", "number", 0, 900, false, false]]'},
        "turns_numbered": {
            "tids": [row[0] for row in await connection.fetch("SELECT tid FROM palaver.turns LIMIT 300")]
        },
        "history_where": {**place, "filter": FILTER, "most": 20},
        "profile": {**place, "known": await known_stamp(without_statistics)},
    }
    plans = await without_statistics.call(function, **args[function])
    assert "turns_pkey" in plans
    assert re.findall(r"Join Filter: .*\b[tc]id\b", plans) == [], plans
    assert ALL_TURNS.findall(plans) == [], plans


async def test_appends_find_their_conversations_even_without_statistics(without_statistics: Explained) -> None:
    async with palaver.open(without_statistics.url, tenant="acme", embedder=None, worker=False) as store:
        talks = [await store.conversation(f"other {n}") for n in range(300)]
    draft = draft_json(DraftBuilder(len).draft(new_id(), "user", "Hello.", actor="ada"))
    calls = [{"conversation": id, "drafts": [draft]} for id in sorted(talk.id for talk in talks)[::100]]
    plans = await without_statistics.call("append_together", calls=canonical_json(calls))
    assert "conversations_by_id" in plans
    assert "Tid Scan on conversations" in plans
    assert re.findall(r"on conversations \w+ [^\n]*\n\s*Index Cond: \(tenant = '\w+'::text\)\n", plans) == [], plans
    assert re.findall(r"Join Filter: .*\b(?:ctid|id)\b", plans) == [], plans


# Functions that take a list of conversations or turns of any length: the best plan depends on the list.
PLANNED_EACH_TIME = {
    "palaver.conversations_with",
    "palaver.dated_turns",
    "palaver.looked_at",
    "palaver.matching",
    "palaver.matching_where",
    "palaver.missing",
    "palaver.nearest_turns",
    "palaver.profiled",
    "palaver.ranked_by_words",
    "palaver.some_passages",
    "palaver.stem_postings",
    "palaver.turns_around",
    "palaver.turns_with",
    "palaver_api.candidates",
    "palaver_api.candidates_where",
    "palaver_api.conversations",
    "palaver_api.conversations_where",
    "palaver_api.expire",
    "palaver_api.fact_vectors",
    "palaver_api.facts_where",
    "palaver_api.file_quotes",
    "palaver_api.find_damage",
    "palaver_api.history_where",
    "palaver_api.matches_where",
    "palaver_api.matching_facts",
    "palaver_api.missing_passages",
    "palaver_api.nearest",
    "palaver_api.postings",
    "palaver_api.recall_size",
    "palaver_api.search",
    "palaver_api.search_where",
    "palaver_api.some_vectors",
    "palaver_api.to_embed",
    "palaver_api.turns_numbered",
    "palaver_api.turns_where",
    "palaver_api.vectors",
}


async def test_what_is_asked_about_many_conversations_is_planned_for_those(postgres_database: str) -> None:
    async with transports.open_connection(postgres_database) as connection:
        found = await connection.fetch(
            """SELECT n.nspname || '.' || p.proname FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
            WHERE n.nspname IN ('palaver', 'palaver_api') AND 'plan_cache_mode=force_custom_plan' = ANY (p.proconfig)"""
        )
    assert {row[0] for row in found} == PLANNED_EACH_TIME


async def test_a_recall_over_a_tenant_is_planned_the_same_way_at_every_call(explained: Explained) -> None:
    """After five calls on a connection plpgsql may use a generic plan for lists of any length, which was far slower."""
    for n in range(8):
        plans = await explained.call("postings", stems=["last", "subject"], most=1_000)
        looked_up = [plan for plan in explained.plans if "@@" in plan]
        assert len(looked_up) == 2, plans
        # A custom plan contains the list; a generic plan has a parameter in its place.
        assert all("ANY ('{" in plan and "ANY ($" not in plan for plan in looked_up), (n, plans)
