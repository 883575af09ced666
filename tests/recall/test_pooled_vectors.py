"""The vectors of a large scope are kept together: they give the same as those of its conversations one by one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import palaver
from palaver import Store
from palaver.conversations.internals import clock_of, engine_of
from palaver.ports.recall import RecallScope
from palaver.recall.service import RecallLimits, RecallService
from palaver.testing import HashEmbedder

EVERYWHERE = RecallScope()


def service(store: Store, **limits: int) -> RecallService:
    return RecallService(engine_of(store), HashEmbedder(), clock_of(store), RecallLimits(**limits))


async def cosines(recaller: RecallService, store: Store) -> dict[int, float]:
    ranking = await recaller.rank(store.scope, EVERYWHERE, "What about the soup?", 100)
    assert ranking.near.cosines is not None
    found = ranking.near.cosines.round(4).tolist()
    return dict(zip(ranking.profile.tid.tolist(), found, strict=True))


async def test_a_pool_follows_every_change(tmp_path: Path) -> None:
    """Turns that are added and forgotten, and whole conversations, whose row numbers are used again."""
    async with palaver.open(f"sqlite:///{tmp_path / 'a.db'}", embedder=HashEmbedder(), worker=False) as store:
        pooled = service(store, pooled=0)
        talks = [await store.conversation(f"talk {n}") for n in range(3)]
        turns = [await talk.append("user", f"Soup of day {n}.") for n, talk in enumerate(talks)]

        async def compare() -> None:
            await store.settle()
            ours = await cosines(pooled, store)
            assert ours == await cosines(service(store), store)
            assert len(ours) > 1
            assert not np.isnan(list(ours.values())).any()

        await compare()
        await talks[1].append("user", "The soup was cold, and so was the room.")
        await compare()
        await talks[2].forget(turns[2])
        await talks[2].append("user", "Bread takes the place of the soup.")
        await compare()
        await talks[2].forget()
        await talks[0].append("user", "A turn that gets the number of a deleted one.")
        await compare()


@pytest.mark.parametrize("pooled", [0, 1_000])
async def test_vectors_in_use_stay_however_little_room_there_is(tmp_path: Path, pooled: int) -> None:
    """Otherwise most turns of a large scope would be compared by their words alone."""
    async with palaver.open(f"sqlite:///{tmp_path / 'a.db'}", embedder=HashEmbedder(), worker=False) as store:
        for n in range(4):
            await (await store.conversation(f"talk {n}")).append("user", f"Soup of day {n}.")
        await store.settle()
        recaller = service(store, pooled=pooled, vector_bytes=1)
        for _ in range(2):
            found = await cosines(recaller, store)
            assert len(found) == 4
            assert not np.isnan(list(found.values())).any()


async def test_a_common_word_of_a_huge_scope_is_looked_up_in_its_newest_passages(tmp_path: Path) -> None:
    async with palaver.open(f"sqlite:///{tmp_path / 'a.db'}", embedder=None, worker=False) as store:
        talk = await store.conversation("talk")
        await talk.append_many({"role": "user", "content": f"Soup number {n}."} for n in range(30))
        recaller = RecallService(engine_of(store), None, clock_of(store), RecallLimits(huge=10, postings_of_huge=5))
        ranking = await recaller.rank(store.scope, EVERYWHERE, "soup", 30)
        assert int((ranking.scores.named["lexical"] > 0).sum()) == 5


async def test_words_of_another_tenant_are_not_found(tmp_path: Path) -> None:
    """With one tenant in the file, its word is not looked for; with two it is."""
    url = f"sqlite:///{tmp_path / 'a.db'}"
    for tenant in ("one", "two"):
        async with palaver.open(url, tenant=tenant, embedder=None, worker=False) as store:
            talk = await store.conversation("talk")
            await talk.append("user", f"Soup of {tenant}.")
            hits = await talk.recall("soup", scope="tenant")
            assert [hit.turn.text for hit in hits if hit.turn] == [f"Soup of {tenant}."]
