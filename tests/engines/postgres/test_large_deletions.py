"""Large conversations are deleted over several transactions: hidden at once, and nothing is left at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import palaver
from palaver import Conversation, Store
from palaver.conversations.internals import clock_of, engine_of
from palaver.engines.postgres.deletion import Slices
from palaver.errors import ConversationGone, EngineUnavailable
from palaver.testing import FakeClock, HashEmbedder

TURNS = 25
SMALL = Slices(first=10, later=10)


@pytest.fixture
async def store(postgres_url: str, tmp_path: Path) -> AsyncIterator[Store]:
    async with palaver.open(
        postgres_url, user="ada", files=tmp_path, worker=False, clock=FakeClock(), embedder=HashEmbedder()
    ) as store:
        engine_of(store).slices = SMALL  # type: ignore[attr-defined]
        yield store


@pytest.fixture
async def admin(postgres_database: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(postgres_database)
    yield connection
    await connection.close()


async def filled(store: Store, key: str, **fields: Any) -> Conversation:
    talk = await store.conversation(key, **fields)
    file = await talk.attach(b"a secret in a file", filename="a.txt")
    await talk.append("user", "with a file", attachments=[file])
    await talk.append_many([{"role": "user", "content": f"a secret {n}"} for n in range(TURNS - 1)])
    await store.settle()
    return talk


async def left(admin: Any, talk: Conversation) -> dict[str, int]:
    """Count the rows of a conversation in every table, but for its log and its own row."""
    cid = await admin.fetchval("SELECT cid FROM palaver.conversations WHERE id = $1", talk.id)
    tables = await admin.fetch(
        """SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'cid'
        WHERE c.relnamespace = 'palaver'::regnamespace AND c.relkind IN ('r', 'p')
        AND c.relname NOT IN ('conversations', 'events')"""
    )
    found = {
        name: await admin.fetchval(f"SELECT count(*) FROM palaver.{name} WHERE cid = $1", cid) for (name,) in tables
    }
    return {name: count for name, count in found.items() if count}


class Interrupted:
    """Lets the calls of a function through, and fails after a number of them, as if the process had died."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch, function: str, after: int) -> None:
        self.write, self.function, self.after = engine_of(store).write, function, after  # type: ignore[attr-defined]
        monkeypatch.setattr(engine_of(store), "write", self)

    async def __call__(self, function: str, *args: Any, **more: Any) -> Any:
        if function == self.function:
            if not self.after:
                raise EngineUnavailable("interrupted")
            self.after -= 1
        return await self.write(function, *args, **more)


async def forgotten_in_part(store: Store, monkeypatch: pytest.MonkeyPatch, slices: int) -> Conversation:
    """Fill a conversation, and interrupt `forget` after a number of slices."""
    talk = await filled(store, "k")
    with monkeypatch.context() as patch:
        Interrupted(store, patch, "forget_slice", slices)
        with pytest.raises(EngineUnavailable):
            await talk.forget()
    return talk


async def test_forget_takes_several_transactions_and_leaves_nothing(store: Store, admin: Any) -> None:
    talk, other = await filled(store, "k"), await filled(store, "other")
    assert (await left(admin, talk))["turns"] == TURNS
    await talk.forget()
    assert await left(admin, talk) == {}
    assert [event.kind for event in await store.audit(talk.id)][-1] == "forget"
    assert len(await other.history(limit=100)) == TURNS
    await other.verify()
    with pytest.raises(ConversationGone):
        await talk.forget()


async def test_what_is_being_forgotten_is_hidden_and_the_next_sweep_continues(
    store: Store, admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = await forgotten_in_part(store, monkeypatch, 2)
    assert (await left(admin, talk))["turns"] == TURNS - 10
    for call in (talk.history(), talk.append("user", "late"), talk.build_context(), talk.recall("secret")):
        with pytest.raises(ConversationGone):
            await call
    assert await store.search("secret") == []
    assert (await store.conversations()).items == ()
    assert (await store.stats()).turns == 0
    again = await store.conversation("k")
    assert again.id != talk.id, "the key is free at once"
    assert (await store.sweep()).conversations == (talk.id,)
    assert await left(admin, talk) == {}
    assert [event.kind for event in await store.audit(talk.id)][-1] == "forget"


async def test_forget_itself_continues_what_was_interrupted(
    store: Store, admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = await filled(store, "k")
    with monkeypatch.context() as patch:
        Interrupted(store, patch, "forget_slice", 2)
        with pytest.raises(EngineUnavailable):
            await talk.forget()
    await talk.forget()
    assert await left(admin, talk) == {}
    with pytest.raises(ConversationGone):
        await talk.forget()


async def test_forget_succeeds_if_a_sweep_deletes_the_rest_first(
    postgres_url: str, store: Store, admin: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every program that opens the database, and every sweep, continues deletions that are not finished."""
    talk, write = await filled(store, "k"), engine_of(store).write  # type: ignore[attr-defined]

    async def write_then_sweep_elsewhere(function: str, *args: Any, **more: Any) -> Any:
        found = await write(function, *args, **more)
        if function == "forget_slice":
            async with palaver.open(postgres_url, user="ada", files=tmp_path, worker=False, clock=FakeClock()) as other:
                await engine_of(other).finish_deletions(other.scope)
        return found

    monkeypatch.setattr(engine_of(store), "write", write_then_sweep_elsewhere)
    await talk.forget()
    assert await left(admin, talk) == {}
    assert [event.kind for event in await store.audit(talk.id)].count("forget") == 1
    with pytest.raises(ConversationGone):
        await talk.forget()


@pytest.mark.parametrize("again", ["reset", "forget", "sweep", "open"])
async def test_an_interrupted_reset_is_finished(
    postgres_url: str, store: Store, admin: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: str
) -> None:
    talk = await filled(store, "k", ttl=600, title="kept")
    await talk.forget((await talk.history())[3])
    with monkeypatch.context() as patch:
        Interrupted(store, patch, "reset_slice", 1)
        with pytest.raises(EngineUnavailable):
            await talk.reset()
    for call in (talk.history(), talk.append("user", "late"), store.conversation("k")):
        with pytest.raises(palaver.ConversationBusy):
            await call
    if again == "open":
        async with palaver.open(postgres_url, user="ada", files=tmp_path, worker=False, clock=FakeClock()) as other:
            await engine_of(other).finish_deletions(other.scope)
    else:
        await {"reset": talk.reset, "forget": talk.forget, "sweep": store.sweep}[again]()
    if again == "forget":
        assert await left(admin, talk) == {}
        return
    assert await talk.history() == []
    assert (await store.conversation("k")).id == talk.id
    await talk.append("user", "it goes on")
    await talk.verify()
    assert (await left(admin, talk))["turns"] == TURNS + 1, "a reset leaves the stubs"


async def test_a_half_expired_conversation_stays_hidden_when_the_clock_is_set_back(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk = await filled(store, "k", ttl=60)
    clock_of(store).advance(120)  # type: ignore[attr-defined]
    with monkeypatch.context() as patch:
        Interrupted(store, patch, "expire_slice", 1)
        with pytest.raises(EngineUnavailable):
            await store.expire()
    clock_of(store).advance(-120)  # type: ignore[attr-defined]
    with pytest.raises(ConversationGone):
        await talk.history()
    await engine_of(store).finish_deletions(store.scope)
    assert [event.kind for event in await store.audit(talk.id)][-1] == "expire"


async def test_expired_conversations_go_in_slices_and_each_is_reported_once(
    store: Store, admin: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    talks = [await filled(store, f"k/{n}", ttl=60) for n in range(3)]
    clock_of(store).advance(120)  # type: ignore[attr-defined]
    with monkeypatch.context() as patch:
        Interrupted(store, patch, "expire_slice", 1)
        with pytest.raises(EngineUnavailable):
            await store.expire()
    assert sorted(await store.expire()) == sorted(talk.id for talk in talks)
    for talk in talks:
        assert await left(admin, talk) == {}
        assert [event.kind for event in await store.audit(talk.id)][-1] == "expire"
    assert await store.expire() == []


async def test_only_the_owner_may_forget_it(postgres_url: str, store: Store, admin: Any) -> None:
    talk = await filled(store, "k", participants=["bob"])
    async with palaver.open(postgres_url, user="bob", worker=False) as theirs:
        with pytest.raises(palaver.PermissionDenied):
            await engine_of(theirs).forget_conversation(theirs.scope, talk.id)
    assert (await left(admin, talk))["turns"] == TURNS


async def test_the_first_slice_of_a_large_conversation_only_hides_it(
    store: Store, monkeypatch: pytest.MonkeyPatch, admin: Any
) -> None:
    """Deleting rows may take long, and readers and writers must be refused at once."""
    talk = await forgotten_in_part(store, monkeypatch, 1)
    assert (await left(admin, talk))["turns"] == TURNS
    with pytest.raises(ConversationGone):
        await talk.history()
