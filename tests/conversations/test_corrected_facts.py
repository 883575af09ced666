"""A person corrects a fact of a conversation: the correction wins, and no extractor overwrites it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

import palaver
from palaver.conversations.conversation import Conversation
from palaver.conversations.store import Store

START = datetime(2026, 5, 3, tzinfo=UTC)


@pytest.fixture
async def store(database_url: str) -> AsyncIterator[Store]:
    async with palaver.open(database_url, tenant="acme", user="ada", embedder=None, worker=False) as one:
        yield one


async def known(talk: Conversation) -> list[str]:
    return [f"{fact.predicate} {fact.object}" for fact in await talk.facts()]


async def test_a_correction_wins_over_what_is_said_before_and_after_it(store: Store) -> None:
    talk = await store.conversation("a", settings={"facts": True})
    said = await talk.append("user", "I live in Berlin. I like hiking.", created=START)
    await talk.extract_facts()
    home, hobby = await talk.facts()
    rome = await talk.correct_fact(home, "Rome")
    assert (rome.object, rome.by, rome.confidence, rome.source_turn) == ("Rome", "person:ada", 1.0, said.id)
    await talk.correct_fact(hobby.id, "biking", valid_from="2026-01-01T00:00:00Z", by="ada")
    assert await known(talk) == ["lives in Rome", "likes biking"]
    await talk.extract_facts()  # reads the same turn again
    assert await known(talk) == ["lives in Rome", "likes biking"]
    await talk.append("user", "I moved to Oslo. I like rowing.")
    await talk.extract_facts()
    assert await known(talk) == ["lives in Rome", "likes biking", "likes rowing"]
    old = {fact.object: fact for fact in await talk.facts(include_invalidated=True)}
    assert old["Berlin"].invalidated_by == rome.id
    await talk.verify()
    assert [event.kind for event in await talk.audit()].count("correct") == 2


async def test_a_correction_goes_with_its_source_and_can_be_taken_back(store: Store) -> None:
    talk = await store.conversation("a")
    said = await talk.append("user", "I live in Berlin.", created=START)
    (home,) = await talk.extract_facts()
    rome = await talk.correct_fact(home, "Rome")
    assert await talk.forget_fact(rome)
    assert await known(talk) == ["lives in Berlin"]
    await talk.correct_fact(home, "Rome")
    await talk.forget(turn=said)
    assert await talk.facts(include_invalidated=True) == []


async def test_an_erased_person_leaves_no_correction(database_url: str) -> None:
    async with palaver.open(database_url, tenant="acme", embedder=None, worker=False) as store:
        talk = await store.conversation("a", owner="bob", participants=["ada"])
        await talk.append("user", "I live in Berlin.", actor="bob", created=START)
        (home,) = await talk.extract_facts()
        await talk.correct_fact(home, "Rome", by="ada")
        await store.erase_user("ada")
        (left,) = await (await store.conversation("a", owner="bob")).facts(include_invalidated=True)
        assert (left.object, left.invalidated_at) == ("Berlin", None)


async def test_wrong_corrections_are_refused_by_name(store: Store) -> None:
    talk = await store.conversation("a")
    await talk.append("user", "I live in Berlin.", created=START)
    (home,) = await talk.extract_facts()
    with pytest.raises(palaver.InvalidInput, match="text: must not be empty"):
        await talk.correct_fact(home, "  ")
    with pytest.raises(palaver.InvalidInput, match="text: has 301 characters, and at most 300"):
        await talk.correct_fact(home, "x" * 301)
    with pytest.raises(palaver.InvalidInput, match="text: is already the value of this fact"):
        await talk.correct_fact(home, "Berlin")
    with pytest.raises(palaver.NotFound, match="no such fact"):
        await talk.correct_fact("0" * 26, "Rome")
    with pytest.raises(palaver.InvalidInput, match="valid_from"):
        await talk.correct_fact(home, "Rome", valid_from="soon")
    rome = await talk.correct_fact(home, "Rome")
    with pytest.raises(palaver.InvalidInput, match=f"fact: was replaced by {rome.id}"):
        await talk.correct_fact(home, "Oslo")
