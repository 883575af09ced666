"""Filters by metadata, speaker, role and time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, cast

from palaver.conversations.conversation import Conversation
from palaver.conversations.store import Store
from palaver.core.filters import Where, clean_where, meets
from palaver.errors import InvalidInput
from palaver.testing.kit import Database, guarantee, refused

START = datetime(2026, 1, 1, tzinfo=UTC)
VALUES: list[dict[str, Any]] = [
    {"topic": "billing", "priority": 1, "open": True, "tags": ["a", "b"]},
    {"topic": "billing", "priority": 3.5, "open": False, "tags": ["b"]},
    {"topic": "Billing", "priority": -7, "open": 1, "tags": []},
    {"topic": "travel", "priority": 30, "tags": ["c", 4, None, True]},
    {"topic": "größe", "priority": "30", "tags": "b"},
    {"topic": None, "priority": 9_007_199_254_740_993, "nested": {"topic": "billing"}},
    {"topic": "", "priority": 9_007_199_254_740_992},
    {"topic": "true", "priority": 0.0},
    {"topic": "x" * 300, "priority": -1e-9},
]
CONDITIONS: list[dict[str, Any]] = [
    {"topic": "billing"},
    {"topic": ""},
    {"topic": "true"},
    {"topic": {"in": ["travel", "größe", "nowhere"]}},
    {"topic": {"gte": "b", "lt": "c"}},
    {"topic": {"gt": "billing"}},
    {"topic": {"lte": "billing"}},
    {"priority": 3.5},
    {"priority": "30"},
    {"priority": {"gte": 1, "lt": 30}},
    {"priority": {"gt": 1}},
    {"priority": {"lt": 0}},
    {"priority": {"lte": -7}},
    {"priority": {"gte": 0, "lte": 0}},
    {"priority": 9_007_199_254_740_993},
    {"open": True},
    {"open": False},
    {"open": 1},
    {"tags": "b"},
    {"tags": 4},
    {"tags": {"in": ["a", "c"]}},
    {"topic": "billing", "priority": {"gt": 1}, "tags": "b"},
    {"nested": "billing"},
    {"missing": 1},
]


async def _fill(store: Store, key: str = "k") -> Conversation:
    talk = await store.conversation(key)
    for n, metadata in enumerate(VALUES):
        role, actor = ("user", "ada") if n % 2 else ("assistant", "bot")
        created = START + timedelta(days=n)
        await talk.append(cast(Any, role), f"apple {n}", actor=actor, metadata=metadata, created=created)
    await talk.append("user", "apple without metadata", actor="ada")
    return talk


def _where(metadata: dict[str, Any]) -> Where:
    return {"metadata": metadata}


async def _texts(talk: Conversation, where: Where) -> list[str]:
    return [turn.text for turn in await talk.history(where=where)]


@guarantee
async def history_finds_the_turns_whose_metadata_fits(db: Database) -> None:
    """A history with a filter has the turns whose metadata has the value, one of the values, or one in the range."""
    async with db.open() as store:
        talk = await _fill(store)
        for condition in CONDITIONS:
            wanted = clean_where(_where(condition)).metadata
            expected = [f"apple {n}" for n, metadata in enumerate(VALUES) if meets(wanted, metadata)]
            assert await _texts(talk, _where(condition)) == expected, condition


@guarantee
async def recall_and_search_find_only_what_fits(db: Database) -> None:
    """Recall and both searches return the turns that a history with the same filter returns."""
    async with db.open() as store:
        talk = await _fill(store)
        await _fill(store, "another")
        for where in (_where({"topic": "billing"}), _where({"priority": {"gt": 1}}), _where({"missing": 1})):
            expected = sorted(await _texts(talk, where))
            assert sorted(hit.turn.text for hit in await talk.recall("apple", where=where) if hit.turn) == expected
            assert sorted(match.turn.text for match in await talk.search("apple", where=where)) == expected
            found = await store.search("apple", where=where)
            assert {one.conversation.key for one in found} == ({"k", "another"} if expected else set())
            assert {match.turn.text for one in found for match in one.matches} <= set(expected)
            anywhere = await talk.recall("apple", 50, scope="owner", where=where)
            assert sorted(hit.turn.text for hit in anywhere if hit.turn) == sorted(expected * 2)


@guarantee
async def actors_roles_and_times_filter_too(db: Database) -> None:
    """A filter by speaker, role and time holds in history, recall and search, alone and with metadata."""
    async with db.open() as store:
        talk = await _fill(store)
        filters: list[tuple[Where, list[int]]] = [
            ({"role": "user", "until": START + timedelta(days=5)}, [1, 3]),
            ({"actor": ["bot", "nobody"], "since": START + timedelta(days=5), "until": "2027-01-01"}, [6, 8]),
            ({"role": ["user", "assistant"], "metadata": {"priority": {"gte": 1}}, "actor": "ada"}, [1, 3, 5]),
            ({"role": "tool"}, []),
        ]
        for where, numbers in filters:
            expected = sorted(f"apple {n}" for n in numbers)
            stored = [text for text in await _texts(talk, where) if text[-1].isdigit()]
            assert sorted(stored) == expected, where
            hits = await talk.recall("apple", 50, where=where)
            assert sorted(hit.turn.text for hit in hits if hit.turn and hit.turn.text[-1].isdigit()) == expected, where
            matches = await talk.search("apple", where=where)
            assert sorted(one.turn.text for one in matches if one.turn.text[-1].isdigit()) == expected, where


@guarantee
async def pages_of_a_filtered_history_are_complete(db: Database) -> None:
    """With a filter, cursors lead in both directions through every turn that fits, once."""
    async with db.open() as store:
        talk = await store.conversation("k")
        turns = [await talk.append("user", f"n {n}", metadata={"third": n % 3 == 0}) for n in range(20)]
        expected = [turn.id for turn in turns if turn.metadata["third"]]
        where = _where({"third": True})
        backwards: list[str] = []
        page = await talk.history(3, where=where)
        while page:
            backwards = [turn.id for turn in page] + backwards
            page = await talk.history(3, before=page[0], where=where)
        forwards = [turn.id for turn in await talk.history(3, after=turns[0], where=where)]
        assert backwards == expected
        assert forwards == expected[1:4]


@guarantee
async def a_filter_looks_at_the_branch_that_is_active(db: Database) -> None:
    """A turn that was replaced is found with include_superseded only, its new version with its own metadata."""
    async with db.open() as store:
        talk = await store.conversation("k")
        old = await talk.append("user", "first apple", metadata={"draft": 1})
        new = await talk.append("user", "second apple", metadata={"draft": 2}, replaces=old)
        one, two = _where({"draft": 1}), _where({"draft": 2})
        assert await talk.history(where=one) == [] == await talk.search("apple", where=one)
        assert not list(await talk.recall("apple", where=one))
        assert [turn.id for turn in await talk.history(include_superseded=True, where=one)] == [old.id]
        assert [turn.id for turn in await talk.history(where=two)] == [new.id]
        await talk.switch(old)
        assert [turn.id for turn in await talk.history(where=one)] == [old.id]


@guarantee
async def a_filter_finds_nothing_that_was_forgotten(db: Database) -> None:
    """Forgotten turns, and those of a deleted or emptied conversation, fit no filter; a later stream fits its own."""
    async with db.open() as store:
        talk = await store.conversation("k")
        turn = await talk.append("user", "apple", metadata={"topic": "secret"})
        await talk.forget(turn)
        where = _where({"topic": "secret"})
        assert await talk.history(include_superseded=True, where=where) == []
        await talk.append("user", "apple", metadata={"topic": "secret"})
        await talk.reset()
        assert await talk.history(include_superseded=True, where=where) == []
        async with talk.stream("assistant", metadata={"topic": "secret"}) as out:
            await out.write("an apple")
        assert await _texts(talk, where) == ["an apple"]
        await talk.forget()
        again = await store.conversation("k")
        assert await again.history(where=where) == [] == await store.search("apple", where=where)


@guarantee
async def state_can_be_filtered(db: Database) -> None:
    """The history of a conversation of the kind state is filtered like any other."""
    async with db.open() as store:
        state = await store.conversation("s", settings={"kind": "state"})
        await state.append("assistant", "a", metadata={"step": 1})
        last = await state.append("assistant", "b", metadata={"step": 2})
        assert [turn.id for turn in await state.history(where=_where({"step": {"gte": 2}}))] == [last.id]


@guarantee
async def conversations_are_filtered_by_their_own_metadata(db: Database) -> None:
    """A list has the conversations whose metadata, people and last change fit, page by page, as they are now."""
    async with db.open() as store:
        for n in range(7):
            await store.conversation(f"c{n}", metadata={"plan": "pro" if n % 2 else "free", "seats": n})
        shared = await store.conversation("shared", participants=["bob"], metadata={"plan": "pro"})
        keys = [info.key for info in (await store.conversations(where={"metadata": {"plan": "pro"}})).items]
        assert sorted(key or "" for key in keys) == ["c1", "c3", "c5", "shared"]
        first = await store.conversations(limit=2, where={"metadata": {"seats": {"gte": 4}}})
        rest = await store.conversations(cursor=first.cursor, where={"metadata": {"seats": {"gte": 4}}})
        assert sorted(info.key or "" for info in (*first.items, *rest.items)) == ["c4", "c5", "c6"]
        assert [info.id for info in (await store.conversations(where={"actor": ["bob"]})).items] == [shared.id]
        nothing = await store.conversations(where={"until": "2001-01-01"})
        assert (nothing.items, nothing.empty is not None) == ((), True)
        await shared.update(metadata={"plan": "closed"})
        assert not (await store.conversations(where={"metadata": {"plan": "pro"}, "actor": "bob"})).items
        assert len((await store.conversations(where={"metadata": {"plan": "closed"}})).items) == 1
        await shared.forget()
        assert not (await store.conversations(where={"metadata": {"plan": "closed"}})).items


@guarantee
async def a_filter_shows_nothing_of_others(db: Database) -> None:
    """A filter finds only what the scope may see."""
    async with db.open(user="ada") as store:
        await _fill(store)
        await store.conversation("mine", metadata={"plan": "pro"})
    for others in ({"user": "eve"}, {"tenant": "other"}):
        async with db.open(**others) as theirs:
            talk = await theirs.conversation("theirs")
            where = _where({"topic": "billing"})
            assert not (await theirs.conversations(where={"metadata": {"plan": "pro"}})).items
            assert await theirs.search("apple", where=where) == []
            assert not await talk.recall("apple", scope="tenant", where=where)


@guarantee
async def mistakes_in_a_filter_are_named(db: Database) -> None:
    """An unknown condition, a value that cannot be compared and a range of two kinds are refused with the field."""
    async with db.open() as store:
        talk = await store.conversation("k")
        wrong: list[tuple[Any, str]] = [
            ({"rolle": "user"}, "where"),
            ([1], "where"),
            ({"role": "robot"}, "role"),
            ({"actor": 3}, "where.actor"),
            ({"since": "yesterday"}, "where.since"),
            ({"metadata": ["topic"]}, "where.metadata"),
            ({"metadata": {"topic": None}}, "where.metadata['topic']"),
            ({"metadata": {"topic": {"like": "b"}}}, "where.metadata['topic']"),
            ({"metadata": {"topic": {}}}, "where.metadata['topic']"),
            ({"metadata": {"topic": {"in": []}}}, "where.metadata['topic']"),
            ({"metadata": {"topic": {"eq": 1, "gt": 0}}}, "where.metadata['topic']"),
            ({"metadata": {"topic": {"gt": 1, "lt": "b"}}}, "where.metadata['topic']"),
            ({"metadata": {"topic": {"gt": 1, "gte": 1}}}, "where.metadata['topic']"),
            ({"metadata": {"topic": "x" * 257}}, "where.metadata['topic']"),
            ({"metadata": {str(n): n for n in range(21)}}, "where.metadata"),
        ]
        for where, field in wrong:
            async with refused(InvalidInput, field=field):
                await talk.history(where=where)
        async with refused(InvalidInput, field="where.role"):
            await talk.history(roles=["user"], where={"role": "user"})
        async with refused(InvalidInput, field="where"):
            await store.conversations(where=cast(Any, {"role": "user"}))
