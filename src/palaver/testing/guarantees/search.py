"""Finding conversations and turns by their words."""

from __future__ import annotations

from palaver.conversations.store import Store
from palaver.testing.fakes import FakeClock
from palaver.testing.kit import Database, guarantee


async def keys(store: Store, text: str) -> list[str | None]:
    return [found.conversation.key for found in await store.search(text)]


@guarantee
async def a_search_sees_what_was_stored_before_it(db: Database) -> None:
    """A word is found as soon as its turn is stored, by every open store, in all its forms and without its accents."""
    async with db.open() as one, db.open() as two:
        talk = await one.conversation("k")
        turn = await talk.append("user", "We were painting the CAFÉ walls.")
        for text in ("painting", "painted walls", "cafe", "Café", "wall"):
            for store in (one, two):
                [found] = await store.search(text)
                assert found.conversation.id == talk.id
                assert [match.turn.id for match in found.matches] == [turn.id]
        assert await one.search("paintings ceiling") == []


@guarantee
async def the_last_word_may_be_unfinished(db: Database) -> None:
    """The last word matches as a prefix; after a space it is a whole word."""
    async with db.open() as store:
        await (await store.conversation("k")).append("user", "peppermint tea")
        assert await keys(store, "pepper") == ["k"]
        assert await keys(store, "tea pepp") == ["k"]
        assert await keys(store, "pepp ") == []


@guarantee
async def titles_are_searched(db: Database) -> None:
    """Titles are searched, come first, and an old title is not found any more."""
    clock = FakeClock()
    async with db.open(clock=clock) as store:
        titled = await store.conversation("titled", title="Holiday in Norway")
        clock.advance(60)
        await (await store.conversation("told")).append("user", "I was in Norway")
        assert await keys(store, "norway") == ["titled", "told"]
        assert [found.in_title for found in await store.search("norway")] == [True, False]
        await titled.rename("Holiday in Sweden")
        assert await keys(store, "norway") == ["told"]
        assert await keys(store, "sweden") == ["titled"]


@guarantee
async def a_title_of_small_words_is_found(db: Database) -> None:
    """A title with none but words that a search passes over is found by them, as long as it has it."""
    async with db.open() as store:
        talk = await store.conversation("k", title="To Do")
        await (await store.conversation("other", title="What to do in Norway")).append("user", "What can we do?")
        assert await keys(store, "to do") == ["k"]
        assert await keys(store, "do") == ["k"]
        assert await keys(store, "the who") == []
        await talk.rename("The Who")
        assert await keys(store, "to do") == []
        assert await keys(store, "The Who") == ["k"]
        await talk.rename(None)
        assert await keys(store, "the who") == []


@guarantee
async def only_what_is_shown_is_found(db: Database) -> None:
    """A search finds turns of the active branch, and follows switches, streams and aborts."""
    async with db.open() as store:
        talk = await store.conversation("k")
        old = await talk.append("user", "apples")
        await talk.append("user", "pears", replaces=old)
        assert (await keys(store, "apples"), await keys(store, "pears")) == ([], ["k"])
        await talk.switch(old)
        assert (await keys(store, "apples"), await keys(store, "pears")) == (["k"], [])
        cut = await talk.append_open("assistant")
        await talk.append_chunk(cut, 0, "plums")
        await talk.append_abort(cut)
        async with talk.stream("assistant") as out:
            await out.write("quin")
            await out.write("ces")
        assert (await keys(store, "plums"), await keys(store, "quinces")) == ([], ["k"])


@guarantee
async def a_conversation_can_be_searched(db: Database) -> None:
    """Inside a conversation, the turns that hold the most of the words come first, each with the stems it holds."""
    async with db.open() as store:
        talk, other = await store.conversation("k"), await store.conversation("other")
        both = await talk.append("user", "red wine")
        one = await talk.append("user", "red apples")
        await talk.append("user", "green tea")
        await other.append("user", "red wine")
        found = await talk.search("red wine, please")
        assert [(match.turn.id, set(match.terms)) for match in found] == [(both.id, {"red", "wine"}), (one.id, {"red"})]
        assert len(await talk.search("red", limit=1)) == 1


@guarantee
async def every_script_is_searched(db: Database) -> None:
    """Words are found in scripts without spaces too, even far into a run of letters, and in long turns."""
    run = "雪山" * 60
    async with db.open() as store:
        talk = await store.conversation("k")
        for text in (run + "咖啡馆", "Привет, мир", "long " * 2_000 + "needle", "snake_case and x86_64"):
            await talk.append("user", text)
        for query in ("咖啡", "咖啡馆", "привет", "needle", "snake_case", "x86_64"):
            assert await keys(store, query) == ["k"], query


@guarantee
async def a_search_for_nothing_finds_nothing(db: Database) -> None:
    """Searches for punctuation, stop words or operators find nothing and raise no error."""
    async with db.open() as store:
        talk = await store.conversation("k")
        await talk.append("user", "some ordinary words")
        for text in ("", " ", "?!", "the of and", '"', "*", "NEAR(", "a OR b)", "scope : c1", "terms:", "-", "'"):
            assert await store.search(text) == []
            assert await talk.search(text) == []
