"""A scope that is too large to read: the database finds candidates, and the ranking of them is that of all turns."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

import palaver
from palaver import Conversation, Fact, RecallHit, Scope, Store, Where
from palaver.conversations.internals import components_of, engine_of
from palaver.core.identity import new_id
from palaver.ports.memory import FactsDraft
from palaver.ports.recall import CandidateQuery, RecallScope
from palaver.recall.dates import When, spans
from palaver.recall.service import RecallLimits
from palaver.testing import HashEmbedder
from tests.support import postgres_server

WORDS = (
    "river mountain bread candle window garden violin ticket harbour copper lantern meadow pepper saddle "
    "thunder velvet walnut anchor blanket cradle dolphin engine falcon glacier hammer island jacket kettle ladder"
).split()
COMMON = "morning evening weather coffee".split()
QUESTIONS = [
    "bread and pepper in the garden",
    "the falcon over the glacier",
    "velvet saddle in the morning",
    "coffee in the evening weather",
    "thunder at the harbour?",
]
EVERYTHING, CANDIDATES = RecallLimits(), RecallLimits(all_turns=0)
START = datetime(2026, 1, 1, tzinfo=UTC)


def limit(store: Store, limits: RecallLimits) -> None:
    service = components_of(store).contexts.recall
    service.limits = limits
    service._sizes.clear()


async def fill(store: Store, conversations: int, turns: int) -> list[Conversation]:
    chance = random.Random(7)
    talks = []
    for n in range(conversations):
        talk = await store.conversation(f"talk {n}", settings={"compaction": {"strategy": "never"}})
        day = START + timedelta(days=n)
        drafts = [
            {
                "role": "user" if k % 2 == 0 else "assistant",
                "content": " ".join(chance.sample(WORDS, 5) + chance.sample(COMMON, 2)),
                "created": day + timedelta(seconds=k),
            }
            for k in range(turns)
        ]
        await talk.append_many(drafts)
        talks.append(talk)
    await store.settle()
    return talks


@pytest.fixture(params=[None, HashEmbedder(384)], ids=["words", "words and vectors"])
async def store(request: pytest.FixtureRequest, postgres_url: str) -> AsyncIterator[Store]:
    async with palaver.open(postgres_url, tenant="acme", embedder=request.param, worker=False) as opened:
        yield opened


def ids(hits: list[RecallHit]) -> list[str]:
    return [hit.turn.id for hit in hits if hit.turn]


async def test_candidates_are_ranked_as_if_all_turns_were_read(store: Store) -> None:
    (talk, *_) = await fill(store, 6, 200)
    for question in QUESTIONS:
        limit(store, EVERYTHING)
        whole = await talk.recall(question, k=1_000, scope="tenant")
        limit(store, CANDIDATES)
        found = await talk.recall(question, k=10, scope="tenant")
        scores = {hit.turn.id: hit.score for hit in whole if hit.turn}
        best = sum(hit.score for hit in whole[:10]) / 10
        assert sum(scores[id] for id in ids(found)) / 10 == pytest.approx(best, abs=0.03), question
        assert found[0].relevance == pytest.approx(whole[0].relevance, abs=0.1)


async def test_a_filter_chooses_the_same_turns_among_candidates(store: Store) -> None:
    (talk, *_) = await fill(store, 3, 100)
    marked = [
        await talk.append("user", f"The falcon number {n} over the glacier.", actor="ada", metadata={"n": n})
        for n in range(6)
    ]
    await store.settle()
    filters: list[Where] = [
        {"metadata": {"n": {"gte": 2, "lt": 5}}},
        {"metadata": {"n": {"in": [1, 4]}}, "actor": "ada", "role": "user"},
        {"actor": ["ada"]},
        {"metadata": {"n": 99}},
        {"role": "tool"},
    ]
    chosen = []
    for where in filters:
        limit(store, EVERYTHING)
        whole = ids(await talk.recall("falcon glacier", k=20, scope="tenant", where=where))
        limit(store, CANDIDATES)
        found = ids(await talk.recall("falcon glacier", k=20, scope="tenant", where=where))
        assert set(found) == set(whole), where
        chosen.append(sorted(marked.index(turn) for turn in marked if turn.id in found))
    assert chosen == [[2, 3, 4], [1, 4], [0, 1, 2, 3, 4, 5], [], []]


async def test_the_number_of_candidates_is_bounded(store: Store) -> None:
    await fill(store, 4, 250)
    engine, where = engine_of(store), RecallScope()
    size = await engine.recall_size(store.scope, where, 0)
    assert (size.turns, size.passages) == (1_000, 1_000)
    wanted = CandidateQuery(stems=["morn", "even"], size=size, by_words=10, by_meaning=10)
    found = await engine.candidates(store.scope, where, wanted)
    # The best by words, a sample of two hundred, and the neighbours of each.
    assert 10 <= len(found.rows) <= 3 * (10 + len(found.sample))
    assert len(found.sample) <= 200
    assert set(found.hits[:, 0].tolist()) <= {row[0] for row in found.rows}


async def test_nobody_gets_candidates_from_conversations_that_it_cannot_see(store: Store) -> None:
    ada, eve = (store.scoped(Scope.of("acme", name)) for name in ("ada", "eve"))
    secret = await ada.conversation("secret")
    await secret.append("user", "The falcon sleeps in the copper kettle.")
    shared = await ada.conversation("shared", participants=["ada", "eve"])
    await shared.append("user", "The falcon eats bread.")
    own = await eve.conversation("own")
    await own.append("user", "Nothing of interest.")
    await store.settle()
    for one in (store, ada, eve):
        limit(one, CANDIDATES)
    said = {
        one: {hit.turn.text for hit in await talk.recall("falcon copper kettle", k=10, scope="tenant") if hit.turn}
        for one, talk in (("ada", secret), ("eve", own))
    }
    assert said["ada"] == {"The falcon sleeps in the copper kettle.", "The falcon eats bread."}
    assert said["eve"] - {"Nothing of interest."} == {"The falcon eats bread."}
    hits = await own.recall("falcon copper kettle", k=10, scope="owner")
    assert {hit.turn.text for hit in hits if hit.turn} == {"Nothing of interest."}


async def test_replaced_forgotten_and_expired_turns_are_not_candidates(store: Store, postgres_database: str) -> None:
    talk = await store.conversation("talk")
    first = await talk.append("user", "The falcon sleeps in the kettle.")
    forgotten = await talk.append("user", "The falcon drinks.")
    await talk.append("user", "A falcon stays.", replaces=first)
    await talk.forget(forgotten)
    gone = await store.conversation("gone")
    await gone.append("user", "The falcon of a conversation that is gone.")
    await gone.forget()
    late = await store.conversation("late", ttl=3_600)
    await late.append("user", "The falcon of a conversation that has expired.")
    await store.settle()
    expire = "UPDATE palaver.conversations SET expires_at = 1 WHERE expires_at IS NOT NULL"
    await postgres_server.execute(postgres_database, expire)
    limit(store, CANDIDATES)
    hits = await talk.recall("falcon", k=10, scope="tenant")
    assert [hit.turn.text for hit in hits if hit.turn] == ["A falcon stays."]


async def test_bounds_of_time_hold_for_candidates(store: Store) -> None:
    (talk, *_) = await fill(store, 4, 100)
    limit(store, replace(CANDIDATES, candidates=20))
    since, until = START + timedelta(days=2), START + timedelta(days=3)
    hits = await talk.recall("bread in the garden", k=10, scope="tenant", since=since, until=until)
    assert len(hits) == 10
    assert all(since <= hit.turn.created < until for hit in hits if hit.turn)


async def test_turns_of_a_day_that_the_question_names_are_candidates(store: Store) -> None:
    await fill(store, 15, 20)
    engine, where = engine_of(store), RecallScope()
    size = await engine.recall_size(store.scope, where, 0)
    wanted = CandidateQuery(stems=[], size=size, by_words=1, by_meaning=1)
    days = []
    for one in (wanted, replace(wanted, spans=spans([When(2026, 1, 13)], START))):
        found = await engine.candidates(store.scope, where, one)
        days.append({datetime.fromtimestamp(row[3] / 1e6, UTC) for row in found.rows})
    assert days[0] < days[1]
    assert all(moment >= START + timedelta(days=12) for moment in days[1] - days[0])


async def test_a_question_without_words_or_in_an_empty_tenant_finds_what_there_is(store: Store) -> None:
    limit(store, CANDIDATES)
    talk = await store.conversation("talk")
    service = components_of(store).contexts.recall
    service.limits = replace(CANDIDATES, all_turns=-1)
    assert await talk.recall("falcon", k=10, scope="tenant") == []
    await talk.append("user", "A falcon stays.")
    await store.settle()
    service._sizes.clear()
    assert len(await talk.recall("the of and", k=10, scope="tenant")) == 1


def fact(subject: str, predicate: str, object: str) -> Fact:
    return Fact(
        id=new_id(),
        subject=subject,
        predicate=predicate,
        object=object,
        source_turn=None,
        confidence=1.0,
        valid_from=START,
    )


async def test_facts_of_a_large_scope_are_found_by_words_and_by_meaning(store: Store) -> None:
    talk, other = await store.conversation("talk"), await store.conversation("other")
    await talk.append("user", "Hello.")
    facts = {talk: [fact("Ada", "keeps", "a falcon in the harbour")]}
    facts[other] = [fact("Ben", "likes", "copper kettles"), fact("Eve", "lives", "elsewhere")]
    for one, new in facts.items():
        await engine_of(store).put_facts(store.scope, one.id, FactsDraft(new=tuple(new)))
    await store.settle()
    found = []
    for limits in (EVERYTHING, CANDIDATES):
        limit(store, limits)
        hits = await talk.recall("falcon kettles", k=10, scope="tenant")
        found.append({hit.fact.subject: hit.parts["lexical"] for hit in hits if hit.fact})
    whole, candidates = found
    assert whole == candidates
    assert {"Ada", "Ben"} <= whole.keys()
