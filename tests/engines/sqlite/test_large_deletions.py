"""A large conversation is deleted in slices: hidden at once, others write in between, and any process can finish it."""

from __future__ import annotations

import asyncio
import random
import sys
from asyncio.subprocess import PIPE
from collections.abc import Awaitable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import palaver
from palaver import Conversation, Store
from palaver.conversations.internals import engine_of
from palaver.engines.sqlite import deletion, large_deletions, text_index
from palaver.engines.sqlite.large_deletions import Eraser
from palaver.ports.queries import EventQuery
from tests.security.test_forgetting import MovableClock, check_index, marker, prose, traces, url

pytestmark = pytest.mark.costly

WAYS = ["forget", "reset", "expire"]
TURNS = 300


@pytest.fixture(autouse=True)
def short_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many slices, rounds and steps of a merge, although the conversation is short."""
    monkeypatch.setattr(deletion.SliceTimer.__init__, "__defaults__", (0.0,))
    monkeypatch.setattr(large_deletions, "PAUSE_SECONDS", 0)
    monkeypatch.setattr(large_deletions, "LAST_ROUND", 40)
    monkeypatch.setattr(large_deletions, "MERGE_PAGES", 1)


async def fill(store: Store, words: list[str], others: int = 3) -> Conversation:
    """Make a conversation that contains these words, among others that do not."""
    rng = random.Random(5)
    talks = [await store.conversation(f"other/{n}") for n in range(others)]
    big = await store.conversation("big", metadata={"kept": True})
    for n in range(0, TURNS, 50):
        said = [f"{prose(rng, 20)} {rng.choice(words)} {prose(rng, 20)}" for _ in range(50)]
        await big.append_many([{"role": "user", "content": text, "metadata": {"n": n}} for text in said])
        for talk in talks:
            await talk.append_many([{"role": "user", "content": prose(rng, 20)} for _ in range(10)])
    file = await big.attach(f"bytes with {words[0]}".encode(), filename="a.txt")
    await big.append("user", words[1], attachments=[file], idempotency_key=words[2])
    await big.remember("goals", f"note of {words[0]}")
    await store.settle()
    assert await big.search(words[0])
    return big


async def delete(store: Store, talk: Conversation, way: str, clock: MovableClock) -> None:
    if way == "expire":
        await talk.update(ttl=60)
        clock.seconds += 3_600
        assert talk.id in await store.expire()
    else:
        await getattr(talk, way)()


async def check_deleted(store: Store, id: str, way: str) -> None:
    """The conversation is gone, or empty, and everything that can be verified is in order."""
    if way == "reset":
        talk = await store.conversation("big")
        assert talk.id == id
        assert talk.info.metadata == {"kept": True}
        assert await talk.history() == []
        await talk.append("user", "it goes on")
    else:
        with pytest.raises(palaver.ConversationGone):
            await store.get(id)
        assert (await engine_of(store).events(store.scope, id, EventQuery(limit=10_000)))[-1].kind == way
    for info in (await store.conversations()).items:
        assert await (await store.get(info.id)).verify()


@pytest.mark.parametrize("others", [0, 3, 40])
@pytest.mark.parametrize("way", WAYS)
async def test_no_byte_of_a_large_conversation_is_left(tmp_path: Path, way: str, others: int) -> None:
    words, clock = [marker(random.Random(n)) for n in range(6)], MovableClock()
    async with palaver.open(url(tmp_path), clock=clock, embedder="none") as store:
        talk = await fill(store, words, others)
        await delete(store, talk, way, clock)
        assert traces(tmp_path, words) == []
        await check_deleted(store, talk.id, way)
        check_index(tmp_path)
        assert traces(tmp_path, words) == []


async def is_refused(call: Awaitable[object]) -> bool:
    try:
        await call
    except (palaver.ConversationGone, palaver.ConversationBusy):
        return True
    return False


@pytest.mark.parametrize("way", ["forget", "reset"])
async def test_others_write_between_the_slices_while_the_conversation_cannot_be_read(tmp_path: Path, way: str) -> None:
    words = [marker(random.Random(n)) for n in range(6)]
    async with palaver.open(url(tmp_path), embedder="none") as store:
        talk, other = await fill(store, words), await store.conversation("another")
        task = asyncio.create_task(getattr(talk, way)())
        refused = written = accepted = 0
        while not task.done():
            await other.append("user", "in between")
            written += 1
            if await is_refused(talk.history()):
                refused += 1
                accepted += not await is_refused(talk.append("user", "too late"))
        await task
        assert accepted <= (way == "reset"), "a reset may have ended between the two"
        assert written > 20
        assert refused > 10
        assert traces(tmp_path, words) == []


class Interrupted(Exception):
    """Stands for a crash."""


def interrupt_after(monkeypatch: pytest.MonkeyPatch, slices: int) -> None:
    real, count = Eraser.slice, 0

    async def slice(self: Eraser, *arguments: Any) -> Any:
        nonlocal count
        count += 1
        if count > slices:
            raise Interrupted
        return await real(self, *arguments)

    monkeypatch.setattr(Eraser, "slice", slice)


@pytest.mark.parametrize("slices", [0, 3, 20, 40])
@pytest.mark.parametrize("way", WAYS)
async def test_an_interrupted_deletion_is_finished_by_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, slices: int
) -> None:
    words, clock = [marker(random.Random(n)) for n in range(6)], MovableClock()
    with monkeypatch.context() as patch:
        async with palaver.open(url(tmp_path), clock=clock, embedder="none") as store:
            talk = await fill(store, words)
            interrupt_after(patch, slices + (way == "expire"))
            with pytest.raises(Interrupted):
                await delete(store, talk, way, clock)
            with pytest.raises((palaver.ConversationGone, palaver.ConversationBusy)):
                await talk.history()
    clock.seconds -= 7_200  # a clock that was set back does not show half of it
    async with palaver.open(url(tmp_path), clock=clock, embedder="none") as store:
        await engine_of(store).finish_deletions(store.scope)
        await store.settle()
        assert traces(tmp_path, words) == []
        await check_deleted(store, talk.id, way)


@pytest.mark.parametrize("way", ["forget", "reset"])
async def test_calling_again_finishes_what_was_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    words = [marker(random.Random(n)) for n in range(6)]
    async with palaver.open(url(tmp_path), embedder="none") as store:
        talk = await fill(store, words)
        with monkeypatch.context() as patch:
            interrupt_after(patch, 5)
            with pytest.raises(Interrupted):
                await getattr(talk, way)()
        await getattr(talk, way)()
        assert traces(tmp_path, words) == []
        if way == "forget":
            with pytest.raises(palaver.ConversationGone):
                await talk.forget()


async def test_only_the_owner_finishes_a_deletion(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with palaver.open(url(tmp_path), embedder="none") as store:
        talk = await fill(store, [marker(random.Random(n)) for n in range(6)])
        await talk.update(participants=["ada"])
        hers = await store.scoped(palaver.Scope.of("default", "ada")).get(talk.id)
        with monkeypatch.context() as patch:
            interrupt_after(patch, 5)
            with pytest.raises(Interrupted):
                await talk.forget()
        with pytest.raises((palaver.PermissionDenied, palaver.NotFound)):
            await hers.forget()


KILLED = """
import asyncio, sys
import palaver
from palaver.engines.sqlite import deletion, large_deletions, text_index

deletion.SliceTimer.__init__.__defaults__ = (0.0,)
real = large_deletions.Eraser.slice

async def slice(self, *arguments):
    print("slice", flush=True)
    return await real(self, *arguments)

large_deletions.Eraser.slice = slice

async def main(url, way):
    async with palaver.open(url, embedder="none") as store:
        talk = await store.conversation("big")
        if way == "sweep":
            await store.sweep(retention_minutes=0.00001)
        elif way == "expire":
            await talk.update(ttl=0.001)
            await store.expire()
        else:
            await getattr(talk, way)()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.parametrize("slices", [1, 25, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize("way", [*WAYS, "sweep"])
async def test_a_process_killed_in_the_middle_leaves_the_rest_to_the_next(
    tmp_path: Path, way: str, slices: int
) -> None:
    words = [marker(random.Random(n)) for n in range(6)]
    async with palaver.open(url(tmp_path), embedder="none") as store:
        await fill(store, words)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", KILLED, url(tmp_path), way, stdout=PIPE)
    assert process.stdout is not None
    for _ in range(slices):
        await process.stdout.readline()
    with suppress(ProcessLookupError):
        process.kill()
    await process.wait()
    async with palaver.open(url(tmp_path), embedder="none") as store:
        if way == "sweep":
            await store.sweep(retention_minutes=0.00001)
        elif way == "expire":  # it may have been killed before it began
            await store.expire()
        else:
            await engine_of(store).finish_deletions(store.scope)
        await store.settle()
        kept = words[:1] if way == "sweep" else []  # the note, which a person wrote
        assert [one for one in traces(tmp_path, words) if not any(word in one for word in kept)] == []
        for info in (await store.conversations()).items:
            assert await (await store.get(info.id)).verify()


def test_rounds_halve_what_is_left_of_an_index_that_is_nearly_all_deleted() -> None:
    step = list(large_deletions.rounds(1_000, 0))
    assert step[:3] == [(2, 1), (4, 2), (8, 4)]
    assert step[-1] == (1, 0)
    assert list(large_deletions.rounds(1_000, 5_000)) == [(1, 0)]
    left = set(range(1_000))
    for divisor, rest in step[:-1]:
        left -= {seq for seq in left if seq % divisor == rest}
    assert len(left) <= large_deletions.LAST_ROUND


@pytest.mark.parametrize("way", ["forget", "reset"])
async def test_a_slice_never_looks_at_the_whole_conversation_nor_rebuilds_the_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """Whether passages were lost is asked once, without the lock: it reads every turn."""
    asked, rebuilt = [], []
    monkeypatch.setattr(text_index, "has_lost_passages", lambda tx, cid: bool(asked.append(cid)))
    monkeypatch.setattr(text_index, "rebuild_damaged", rebuilt.append)
    words = [marker(random.Random(n)) for n in range(3)]
    async with palaver.open(url(tmp_path), embedder=None, worker=False) as store:
        talk = await fill(store, words)
        await (talk.forget() if way == "forget" else talk.reset())
        assert (len(asked), rebuilt) == (1, [])
        assert traces(tmp_path, words) == []
