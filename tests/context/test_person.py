"""The block about the person: from other conversations, stable, explained, and for nobody else."""

from __future__ import annotations

from typing import Any

import palaver
from palaver import Scope, Store


def opened(**options: Any) -> Any:
    return palaver.open("memory:", tenant="acme", user="ada", embedder="none", **{"person": "read-write", **options})


async def known(store: Store, *said: str) -> None:
    talk = await store.conversation("trip", title="Lisbon trip")
    for text in said:
        await talk.append("user", text)
    await store.settle()


async def test_a_new_conversation_shows_what_is_known_with_its_source_and_explains_it() -> None:
    async with opened() as store:
        await known(store, "I am allergic to peanuts. Please always answer in German.")
        talk = await store.conversation("new")
        await talk.append("user", "What can I eat?")
        context = await talk.build_context(token_budget=2_000)
        assert "- ada is allergic to peanuts [from Lisbon trip, " in context.text
        (block,) = [one for one in context.explain().blocks if one.kind == "person"]
        assert (block.reason, len(block.turn_ids)) == ("known of ada from elsewhere: 2 of 2 items", 1)
        assert "<person" not in (await talk.build_context(token_budget=2_000, include_person=False)).text


async def test_the_block_stays_the_same_while_the_conversation_goes_on() -> None:
    async with opened() as store:
        await known(store, "I am allergic to peanuts.")
        talk = await store.conversation("new")
        heads = []
        for n in range(4):
            await talk.append("user", f"I love hiking in area {n}. What about topic {n}?")
            await store.settle()
            heads.append((await talk.build_context(token_budget=2_000)).messages[0]["content"])
            await talk.append("assistant", "Fine.")
        assert len(set(heads)) == 1, "what this conversation says is in its own turns"


async def test_a_large_memory_keeps_its_share_and_shows_what_fits_the_question() -> None:
    async with opened() as store:
        for n in range(150):
            await store.person("ada").remember(f"collects stamps of country number {n}", predicate="hobby")
        talk = await store.conversation("new")
        await talk.append("user", "What do I know about country number 3?")
        context = await talk.build_context(token_budget=2_000)
        assert context.tokens <= 2_000
        blocks = [one for one in context.explain().blocks if one.kind == "person"]
        assert sum(one.tokens for one in blocks) <= 160
        assert "country number 3\n" in context.text


async def test_others_never_see_it() -> None:
    async with opened() as store:
        await known(store, "I am allergic to peanuts.")
        shared = await store.conversation("shared", participants=["bob"])
        await shared.append("user", "What can I eat?")
        assert "peanuts" not in (await shared.build_context(token_budget=2_000)).text
        theirs = await store.scoped(Scope("acme", "bob")).conversation("own")
        await theirs.append("user", "What can ada eat?")
        assert "peanuts" not in (await theirs.build_context(token_budget=2_000)).text


async def test_only_where_it_is_wanted() -> None:
    async with opened() as store:
        await known(store, "I am allergic to peanuts.")
        talk = await store.conversation("confidential", settings={"person": "off"})
        await talk.append("user", "I am allergic to honesty. What can I eat?")
        await store.settle()
        assert "peanuts" not in (await talk.build_context(token_budget=2_000)).text
        assert [one.object for one in await store.person("ada").facts()] == ["peanuts"]
        await talk.update(settings={"person": "read-write"})
        await store.settle()
        assert {one.object for one in await store.person("ada").facts()} == {"peanuts", "honesty"}
