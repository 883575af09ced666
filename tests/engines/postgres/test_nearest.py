"""In a scope with too many vectors to read, the database finds the nearest ones, and the ranking is the same."""

from __future__ import annotations

import random

import pytest

import palaver
from palaver import Store
from palaver.conversations.internals import components_of
from palaver.recall.service import RecallLimits
from palaver.testing import HashEmbedder

WORDS = (
    "river mountain bread candle window garden violin ticket harbour copper lantern meadow pepper saddle "
    "thunder velvet walnut anchor blanket cradle dolphin engine falcon glacier hammer island jacket kettle ladder"
).split()


async def fill(store: Store, turns: int) -> palaver.Conversation:
    chance = random.Random(7)
    talk = await store.conversation("long", settings={"compaction": {"strategy": "never"}})
    await talk.append_many({"role": "user", "content": " ".join(chance.sample(WORDS, 6))} for _ in range(turns))
    await store.settle()
    return talk


@pytest.mark.parametrize("scope", ["conversation", "tenant"])
async def test_the_nearest_are_ranked_as_if_all_were_looked_at(postgres_url: str, scope: str) -> None:
    questions = [
        "bread and pepper in the garden",
        "a falcon over the glacier",
        "velvet saddle",
        "thunder at the harbour",
    ]
    found = {}
    for many in (10_000, 100):
        async with palaver.open(postgres_url, embedder=HashEmbedder(384), worker=False) as store:
            components_of(store).contexts.recall.limits = RecallLimits(all_vectors=many)
            talk = await fill(store, 600) if many > 600 else await store.conversation("long")
            hits = [await talk.recall(question, k=10, scope=scope) for question in questions]
            found[many] = [{hit.turn.id for hit in each if hit.turn} for each in hits]
    shared = [len(all & nearest) for all, nearest in zip(*found.values(), strict=True)]
    assert min(shared) >= 9, shared


async def test_when_the_index_finds_too_little_every_vector_is_looked_at(postgres_url: str) -> None:
    """For an embedder whose vectors have a length without an index."""
    async with palaver.open(postgres_url, embedder=HashEmbedder(48), worker=False) as store:
        components_of(store).contexts.recall.limits = RecallLimits(all_vectors=100, nearest=250)
        talk = await fill(store, 200)
        ranking = await components_of(store).contexts.recall.rank(
            store.scope, palaver.ports.RecallScope(conversation=talk.id), "owl", 1_000
        )
        assert len(ranking.order) == 200
        hits = await talk.recall("copper lantern", k=5)
        assert all("copper" in hit.turn.text or "lantern" in hit.turn.text for hit in hits if hit.turn)
