"""Facts: asked for per conversation, with where they come from, and the newer ends the older."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

import palaver
from palaver import Store
from tests.support.memory import talk_on, url

pytestmark = [pytest.mark.both_engines, pytest.mark.usefixtures("engine")]


async def test_facts_are_kept_only_where_the_conversation_asks_for_them(store: Store) -> None:
    for wanted in (False, True):
        talk = await store.conversation(settings={"facts": wanted})
        await talk.append("user", "I live in Lisbon.")
        await talk_on(talk, 60)
        await store.settle()
        assert bool(await talk.facts()) is wanted


async def test_a_fact_says_who_said_what_where_and_how_sure_it_is(store: Store) -> None:
    talk = await store.conversation(settings={"facts": True}, owner="ada")
    turn = await talk.append("user", "By the way, I live in Lisbon.", actor="ada")
    await talk_on(talk, 60)
    await store.settle()
    (fact,) = [one for one in await talk.facts() if one.predicate == "lives in"]
    assert (fact.subject, fact.object, fact.source_turn) == ("ada", "Lisbon", turn.id)
    assert 0 < fact.confidence <= 1
    assert fact.valid_from == turn.created
    assert "ada lives in Lisbon" in (await talk.build_context(2_000)).text
    assert "ada lives in" not in (await talk.build_context(2_000, include_facts=False)).text


async def test_an_update_ends_the_old_fact_and_links_to_what_took_its_place(store: Store) -> None:
    talk = await store.conversation(settings={"facts": True})
    await talk.append("user", "I live in Lisbon.")
    await talk_on(talk, 60)
    await store.settle()
    await talk.append("user", "I moved to Porto.")
    await talk_on(talk, 60)
    await store.settle()
    (now,) = await talk.facts()
    assert now.object == "Porto"
    (old,) = [one for one in await talk.facts(include_invalidated=True) if one.object == "Lisbon"]
    assert old.invalidated_by == now.id
    assert old.invalidated_at is not None
    assert old.invalidated_at >= old.valid_from
    assert "Lisbon" not in (await talk.build_context(300, semantic_recall=False)).text
    await talk.verify()


async def test_moving_back_means_living_there_again(store: Store) -> None:
    talk = await store.conversation(settings={"facts": True})
    for place in ("Lisbon", "Porto", "Lisbon"):
        back = await talk.append("user", f"I live in {place}.")
    await talk.extract_facts()
    (now,) = await talk.facts()
    assert (now.object, now.source_turn) == ("Lisbon", back.id)


async def test_what_is_said_twice_is_one_fact(store: Store) -> None:
    talk = await store.conversation(settings={"facts": True})
    for _ in range(3):
        await talk.append("user", "I live in Lisbon.")
        await talk_on(talk, 60)
        await store.settle()
    await talk.append("user", "I live in LISBON!")
    assert await talk.extract_facts() == []
    assert len(await talk.facts(include_invalidated=True)) == 1


async def test_two_who_extract_at_once_store_a_fact_once(store: Store) -> None:
    talk = await store.conversation()
    await talk.append("user", "I live in Lisbon.")
    found = await asyncio.gather(*(talk.extract_facts() for _ in range(5)))
    assert sorted(map(len, found)) == [0, 0, 0, 0, 1]
    assert len(await talk.facts()) == 1


async def test_when_the_newer_statement_is_forgotten_the_older_holds_again(store: Store) -> None:
    talk = await store.conversation()
    await talk.append("user", "I live in Lisbon.")
    await talk.extract_facts()
    newer = await talk.append("user", "I moved to Porto.")
    await talk.extract_facts()
    await talk.forget(newer)
    assert [(one.object, one.invalidated_by) for one in await talk.facts(include_invalidated=True)] == [
        ("Lisbon", None)
    ]


async def test_a_fact_of_a_discarded_branch_goes_and_comes_back_with_it(store: Store) -> None:
    talk = await store.conversation(settings={"facts": True})
    await talk_on(talk, 2)
    said = await talk.append("user", "I live in Lisbon.")
    await talk.extract_facts()
    await talk.append("user", "Never mind.", replaces=said, discard_after=True)
    assert await talk.facts() == []
    await talk.switch(said)
    await talk.extract_facts()
    assert [one.object for one in await talk.facts()] == ["Lisbon"]


async def test_a_person_can_forget_a_fact(store: Store) -> None:
    talk = await store.conversation()
    await talk.append("user", "I live in Lisbon.")
    (fact,) = await talk.extract_facts()
    assert await talk.forget_fact(fact)
    assert not await talk.forget_fact(fact)
    assert await talk.facts(include_invalidated=True) == []
    await talk.verify()


async def test_only_a_participant_states_facts(store: Store) -> None:
    talk = await store.conversation()
    await talk.append("assistant", "I live in Lisbon.")
    await talk.append("user", "I live in Lisbon.", metadata={"origin": "client-history"})
    await talk.append("assistant", "", tool_calls=[{"id": "c", "name": "who", "arguments": {}}])
    await talk.append("tool", "", tool_results=[{"id": "c", "content": "I live in Lisbon."}])
    assert await talk.extract_facts() == []


class Meaning:
    """An embedder that knows two subjects: where a person lives, and everything else."""

    def __init__(self, name: str = "meaning") -> None:
        self.name, self.dimensions, self.asked = name, 2, [""]

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.asked += texts
        return [[1.0, 0.0] if {"lives", "residence"} & set(text.lower().split()) else [0.0, 1.0] for text in texts]


async def test_facts_have_vectors_of_their_own_and_are_found_by_meaning(tmp_path: Path) -> None:
    async with palaver.open(url(tmp_path), embedder=Meaning(), worker=False) as store:
        talk = await store.conversation(settings={"facts": True}, owner="ada")
        await talk.append("user", "I live in Lisbon.", actor="ada")
        await talk_on(talk, 20, "Number {n} is about nothing in particular.")
        await talk.extract_facts()
        await store.settle()
        (hit,) = [one for one in await talk.recall("residence", k=30) if one.fact]
        assert hit.fact is not None
        assert hit.fact.object == "Lisbon"
        assert (hit.parts["lexical"], hit.parts["dense"] > 0.1) == (0.0, True)
        assert not [one for one in await talk.recall("weather", k=30) if one.fact]


async def test_another_embedder_gives_facts_new_vectors(tmp_path: Path) -> None:
    async with palaver.open(url(tmp_path), embedder=Meaning(), worker=False) as store:
        talk = await store.conversation("facts", settings={"facts": True}, owner="ada")
        await talk.append("user", "I live in Lisbon.", actor="ada")
        await talk.extract_facts()
        await store.settle()
    other = Meaning("another")
    async with palaver.open(url(tmp_path), embedder=other, worker=False) as store:
        talk = await store.conversation("facts", owner="ada")
        await talk_on(talk, 20, "Number {n} is about nothing in particular.")
        await store.settle()
        assert "ada lives in Lisbon" in other.asked
        assert [one for one in await talk.recall("residence", k=30) if one.fact]
