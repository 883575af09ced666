"""Getting, listing and changing conversations."""

from __future__ import annotations

import asyncio
from typing import Any

from palaver.conversations.store import Store
from palaver.core.identity import micros
from palaver.errors import InvalidInput, StoreClosed, UpdateConflict
from palaver.model import ConversationInfo
from palaver.testing.fakes import FakeClock
from palaver.testing.kit import Database, guarantee, refused


@guarantee
async def a_key_leads_to_one_conversation(db: Database) -> None:
    """The same key finds the same conversation, even after the store was closed and opened again."""
    async with db.open() as store:
        first = await store.conversation("support/42")
        again = await store.conversation("support/42")
    async with db.open() as store:
        later = await store.conversation("support/42")
        by_id = await store.get(first.id)
    assert first.id == again.id == later.id == by_id.id
    assert by_id.key == "support/42"


@guarantee
async def a_new_key_is_created_once(db: Database) -> None:
    """Many callers who ask for a new key at once all get the same conversation."""
    async with db.open() as one, db.open() as two:
        talks = await asyncio.gather(*(store.conversation("new") for store in [one, two] * 8))
        assert len({talk.id for talk in talks}) == 1
        assert [event.kind for event in await talks[0].audit()] == ["create"]


@guarantee
async def without_a_key_every_call_starts_a_conversation(db: Database) -> None:
    """Without a key, a conversation is new."""
    async with db.open() as store:
        one, two = await store.conversation(), await store.conversation()
        assert one.id != two.id
        assert one.key is two.key is None


@guarantee
async def a_key_belongs_to_its_owner(db: Database) -> None:
    """Two owners can use the same key for two conversations."""
    async with db.open() as store:
        ada = await store.conversation("inbox", owner="ada")
        bob = await store.conversation("inbox", owner="bob")
        assert ada.id != bob.id
        assert (await store.conversation("inbox", owner="ada")).id == ada.id


@guarantee
async def the_fields_of_a_conversation_are_kept(db: Database) -> None:
    """The fields that a conversation is created with come back unchanged."""
    fields = {
        "title": "Größe & Maß 🙂",
        "workspace": "lab",
        "agent": "helper",
        "model": "large",
        "participants": ("ada", "bob"),
        "metadata": {"tags": ["a", "b"], "n": 1.5, "nested": {"x": None}},
        "settings": {"facts": False},
        "ttl": 3600.0,
    }
    clock = FakeClock()
    async with db.open(clock=clock) as store:
        talk = await store.conversation("k", owner="ada", **fields)  # type: ignore[arg-type]
    async with db.open(clock=clock) as store:
        info = (await store.get(talk.id)).info
    assert {name: getattr(info, name) for name in fields} == fields
    assert (info.owner, info.tenant, info.key) == ("ada", "default", "k")
    assert info.created == info.updated == clock.now()


@guarantee
async def getting_does_not_change(db: Database) -> None:
    """Fields that are given for a conversation which exists already change nothing."""
    async with db.open() as store:
        await store.conversation("k", title="first")
        again = await store.conversation("k", title="second")
        assert again.info.title == "first"
        assert len(await again.audit()) == 1


@guarantee
async def an_update_changes_what_it_names(db: Database) -> None:
    """An update changes the fields that it names, clears those that it sets to None, and leaves the others."""
    async with db.open() as store:
        talk = await store.conversation("k", title="old", agent="helper", metadata={"a": 1}, participants=["ada"])
        await talk.update(title="new", agent=None)
        await talk.rename("newer")
        found = (await store.get(talk.id)).info
        assert (found.title, found.agent, found.metadata, found.participants) == ("newer", None, {"a": 1}, ("ada",))
        updates = [event.payload["fields"] for event in await talk.audit(kinds=["update"])]
        assert updates == [["agent", "title"], ["title"]]


@guarantee
async def an_update_can_insist_on_what_was_read(db: Database) -> None:
    """With expected_updated, an update is made only when nothing has changed since; the error has both times."""
    async with db.open() as store:
        talk = await store.conversation("k", title="old")
        read = talk.info.updated
        changed = await talk.update(expected_updated=read, title="new")
        async with refused(UpdateConflict, expected=micros(read), found=micros(changed.updated)):
            await talk.update(expected_updated=read, title="newer")
        assert (await store.get(talk.id)).info.title == "new"
        await talk.append("user", "one")
        async with refused(UpdateConflict, expected=micros(changed.updated)):
            await talk.update(expected_updated=changed.updated.isoformat(), title="newer")
        await talk.update(expected_updated=(await talk.refresh()).updated, title="newest")
        assert (await store.get(talk.id)).info.title == "newest"
        async with refused(InvalidInput, field="expected_updated"):
            await talk.update(expected_updated=7, title="none")  # type: ignore[arg-type]


@guarantee
async def counts_follow_the_turns(db: Database) -> None:
    """The numbers of turns and tokens are right after every append, edit and removal."""
    async with db.open() as store:
        talk = await store.conversation("k")
        first = await talk.append("user", "one two three")
        second = await talk.append("assistant", "four five")
        assert await _counts(store, talk.id) == (2, first.token_count + second.token_count)
        edit = await talk.append("user", "a much longer question than before", replaces=first)
        assert await _counts(store, talk.id) == (2, edit.token_count + second.token_count)
        await talk.forget(second)
        assert await _counts(store, talk.id) == (1, edit.token_count)
        await talk.reset()
        assert await _counts(store, talk.id) == (0, 0)


async def _counts(store: Store, id: str) -> tuple[int, int]:
    info = (await store.get(id)).info
    return info.turn_count, info.token_count


@guarantee
async def the_preview_is_the_first_thing_a_person_said(db: Database) -> None:
    """The preview is the first line of the first user turn in the active branch, cut to fit a list."""
    async with db.open() as store:
        talk = await store.conversation("k")
        await talk.append("assistant", "Hello, how can I help?")
        assert (await talk.refresh()).preview is None
        first = await talk.append("user", "\n  My parcel is late.  \nIt was sent on Monday.")
        await talk.append("user", "Are you there?")
        assert (await talk.refresh()).preview == "My parcel is late."
        await talk.append("user", "x" * 1_000, replaces=first)
        cut = (await talk.refresh()).preview or ""
        assert cut.startswith("xxx")
        assert len(cut) <= 160


@guarantee
async def the_list_starts_with_the_most_recently_used(db: Database) -> None:
    """Conversations are listed by when they were last used, the latest first."""
    clock = FakeClock()
    async with db.open(clock=clock) as store:
        talks = []
        for name in ("a", "b", "c"):
            clock.advance(60)
            talks.append(await store.conversation(name))
        clock.advance(60)
        await talks[0].append("user", "hello")
        page = await store.conversations()
        assert [info.key for info in page.items] == ["a", "c", "b"]
        assert page.cursor is None


@guarantee
async def pages_of_the_list_meet(db: Database) -> None:
    """Page after page, the list shows every conversation once, including those that were used at the same moment."""
    clock = FakeClock()
    async with db.open(clock=clock) as store:
        for number in range(7):
            await store.conversation(f"k{number}")
            clock.advance(0 if number % 2 else 0.5)
        whole = (await store.conversations()).items
        assert len(whole) == 7
        assert [info.id for info in await _all_pages(store)] == [info.id for info in whole]


async def _all_pages(store: Store) -> list[ConversationInfo]:
    page = await store.conversations(limit=2)
    items = list(page.items)
    while page.cursor:
        page = await store.conversations(limit=2, cursor=page.cursor)
        items.extend(page.items)
    return items


@guarantee
async def the_list_can_be_narrowed(db: Database) -> None:
    """Lists can be narrowed by owner, workspace and agent."""
    async with db.open() as store:
        await store.conversation("a", owner="ada", workspace="lab", agent="helper")
        await store.conversation("b", owner="bob", workspace="lab", agent="critic")
        await store.conversation("c", owner="ada", workspace="shop")
        assert await _keys(store, owner="ada") == {"a", "c"}
        assert await _keys(store, workspace="lab") == {"a", "b"}
        assert await _keys(store, agent="critic") == {"b"}
        assert await _keys(store, owner="ada", workspace="lab") == {"a"}
        assert await _keys(store, owner="nobody") == set()


async def _keys(store: Store, **narrow: Any) -> set[str | None]:
    return {info.key for info in (await store.conversations(**narrow)).items}


@guarantee
async def stats_count_what_is_there(db: Database) -> None:
    """Stats count the conversations, turns, tokens, events and files that are there, and no deleted ones."""
    async with db.open() as store:
        kept, gone = await store.conversation("kept"), await store.conversation("gone")
        for talk in (kept, gone):
            await talk.append("user", "hello there", attachments=[await talk.attach(b"12345")])
        await gone.forget()
        stats = await store.stats()
        assert (stats.conversations, stats.turns, stats.events) == (1, 1, 3)
        assert (stats.attachments, stats.attachment_bytes) == (1, 5)
        assert stats.tokens == (await kept.refresh()).token_count > 0


@guarantee
async def a_closed_store_says_so(db: Database) -> None:
    """Calls on a conversation whose store is closed raise StoreClosed."""
    async with db.open() as store:
        talk = await store.conversation("k")
        await talk.append("user", "hello")
    for late in (talk.append("user", "x"), talk.history(), talk.audit(), talk.verify(), anext(talk.records())):
        async with refused(StoreClosed):
            await late
