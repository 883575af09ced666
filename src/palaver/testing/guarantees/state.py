"""Conversations of the kind `state`, which hold data that is not talk."""

from __future__ import annotations

from typing import Any, cast

from palaver.conversations.conversation import Conversation
from palaver.conversations.store import Store
from palaver.errors import InvalidInput
from palaver.model import Text, data_part
from palaver.testing.kit import Database, guarantee, refused

WORD = "zanzibar"
LARGE = bytes(range(256)) * 12_000  # 3 MB, 4 MB as it is stored


async def _state(store: Store, key: str = "state") -> Conversation:
    return await store.conversation(key, settings={"kind": "state"})


@guarantee
async def state_keeps_any_bytes(db: Database) -> None:
    """State of any bytes comes back unchanged: large values, zero bytes, text that is not valid Unicode."""
    values: list[bytes | str] = [LARGE, b"", b"\x00\xff" * 100, "\x00 Gr\u00f6\u00dfe \ud800"]
    async with db.open() as store:
        state = await _state(store)
        for value in values:
            await state.append("assistant", [data_part(value)])
    async with db.open() as store:
        state = await store.find("state")
        kept = [turn.data for turn in await state.history()]
        assert kept == [one.encode(errors="surrogatepass") if isinstance(one, str) else one for one in values]
        assert (await state.verify()).turns == len(values)


@guarantee
async def state_is_not_indexed_embedded_or_counted(db: Database) -> None:
    """No search, recall, token count or preview knows what a state conversation holds, however it was given."""
    async with db.open() as store:
        state = await _state(store)
        talk = await store.conversation("talk")
        await talk.append("user", "a plain word")
        turn = await state.append("assistant", f"the word {WORD}")
        await state.append("user", [data_part(f"again {WORD}")])
        await store.settle()
        assert turn.data == f"the word {WORD}".encode()
        assert (turn.text, turn.token_count) == ("", 0)
        info = await state.refresh()
        assert (info.token_count, info.preview) == (0, None)
        assert await store.search(WORD) == [] == await state.search(WORD)
        hits = await talk.recall(WORD, 50, scope="owner")
        assert {hit.turn.conversation for hit in hits if hit.turn} <= {talk.id}


@guarantee
async def state_is_never_summarised(db: Database) -> None:
    """A state conversation of any length gets no summaries, notes or facts, and is never sent to a model."""
    async with db.open() as store:
        state = await _state(store)
        await state.append_many({"role": "user", "content": f"I live in {WORD} {n}"} for n in range(120))
        await store.settle()
        assert await state.summaries() == [] == await state.facts()
        for refusal in (state.compact(), state.summarize(), state.extract_facts(), state.build_context(1_000)):
            async with refused(InvalidInput, field="conversation"):
                await refusal
        async with refused(InvalidInput, field="conversation"):
            await state.generate("hello")
        async with refused(InvalidInput, field="conversation"):
            await state.append_open("assistant")
        async with refused(InvalidInput, field="content"):
            await state.append("assistant", [Text("words")])


@guarantee
async def state_is_not_among_the_conversations(db: Database) -> None:
    """Lists hold talk, page by page; state is listed when it is asked for."""
    async with db.open() as store:
        for n in range(5):
            await store.conversation(f"talk/{n}")
            await _state(store, f"state/{n}")
        page = await store.conversations(limit=2)
        keys = [info.key for info in page.items]
        while page.cursor is not None:
            page = await store.conversations(limit=2, cursor=page.cursor)
            keys += [info.key for info in page.items]
        assert keys == [f"talk/{n}" for n in (4, 3, 2, 1, 0)]
        assert [info.key for info in (await store.conversations(kind="state", limit=2)).items] == ["state/4", "state/3"]
        assert len((await store.conversations(kind=None)).items) == 10
        async with refused(InvalidInput, field="kind"):
            await store.conversations(kind="stale")  # type: ignore[arg-type]


@guarantee
async def items_are_found_and_not_summarised(db: Database) -> None:
    """A conversation of the kind items is searched and recalled like talk, but never summarised or listed."""
    async with db.open() as store:
        items = await store.conversation("items", settings={"kind": "items"})
        talk = await store.conversation("talk")
        await items.append_many({"role": "user", "content": f"the island of {WORD} {n}"} for n in range(60))
        await store.settle()
        assert await items.summaries() == []
        assert [match.conversation.id for match in await store.search(WORD)] == [items.id]
        assert {hit.turn.conversation for hit in await talk.recall(WORD, scope="owner") if hit.turn} == {items.id}
        assert [info.key for info in (await store.conversations()).items] == ["talk"]
        assert [info.key for info in (await store.conversations(kind="items")).items] == ["items"]


@guarantee
async def the_kind_never_changes(db: Database) -> None:
    """A conversation stays what it was created as, and settings about words are refused for state."""
    async with db.open() as store:
        state, talk = await _state(store), await store.conversation("talk")
        for change, field in (({"kind": "talk"}, "settings.kind"), ({"facts": True}, "settings.facts")):
            async with refused(InvalidInput, field=field):
                await state.update(settings=change)  # type: ignore[arg-type]
        async with refused(InvalidInput, field="settings.kind"):
            await talk.update(settings={"kind": "state"})
        async with refused(InvalidInput, field="settings.redact"):
            await store.conversation("other", settings={"kind": "state", "redact": True})
        async with refused(InvalidInput, field="settings.kind"):
            await store.conversation("other", settings=cast(Any, {"kind": "stale"}))
        assert (await state.update(settings=None)).settings["kind"] == "state"
        assert (await _state(store)).id == state.id


@guarantee
async def forgotten_state_is_gone(db: Database) -> None:
    """A value of state is forgotten like a turn, and the log still verifies."""
    async with db.open() as store:
        state = await _state(store)
        first = await state.append("assistant", "one")
        await state.append("assistant", "two")
        await state.forget(first)
        assert [turn.data for turn in await state.history()] == [b"two"]
        await state.verify()


@guarantee
async def items_are_ranked_by_themselves(db: Database) -> None:
    """In a conversation of the kind items, the score of a hit does not depend on its neighbours."""
    async with db.open() as store:
        items = await store.conversation("notes", settings={"kind": "items"})
        for text in ("The harbour opens at nine.", f"A note on {WORD}.", "Bread and butter."):
            await items.append("user", text)
        hits = await items.recall(WORD)
        assert hits[0].turn is not None
        assert WORD in hits[0].turn.text
        assert {(hit.parts["neighbour"], hit.parts["session"]) for hit in hits if hit.turn} == {(0.0, 0.0)}
