"""The live feed is the log: replayed, then followed, without a gap and without a double."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from queue import SimpleQueue

import pytest

import palaver
from palaver import Conversation, Event, Scope, Store

PATIENCE = 30  # seconds after which something that should happen has not

WRITER = """
import asyncio, sys, palaver
async def main(url, count):
    async with palaver.open(url, tenant="acme", user="ada", worker=False) as store:
        talk = await store.conversation("k")
        for n in range(int(count)):
            await talk.append("user", f"theirs {n}")
        print("written", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        await talk.append("user", "later")
asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
async def store(database_url: str, tmp_path: Path) -> AsyncIterator[Store]:
    async with palaver.open(database_url, tenant="acme", user="ada", files=tmp_path / "files", worker=False) as store:
        yield store


@pytest.fixture
async def talk(store: Store) -> Conversation:
    return await store.conversation("k")


async def take(talk: Conversation, count: int, after: int = 0) -> list[Event]:
    """The next `count` events, then no longer subscribed."""
    found: list[Event] = []
    async with asyncio.timeout(PATIENCE), aclosing(talk.subscribe(after)) as events:
        async for event in events:
            found.append(event)
            if len(found) == count:
                break
    return found


async def until_the_end(talk: Conversation, after: int = 0) -> list[Event]:
    async with asyncio.timeout(PATIENCE):
        return [event async for event in talk.subscribe(after)]


def numbers(events: list[Event]) -> list[int]:
    return [event.n for event in events]


async def write(talk: Conversation, count: int) -> None:
    for n in range(count):
        await talk.append("user", f"text {n}")


# ---- no gap, no double ---------------------------------------------------------------------------------------------


async def test_a_subscriber_gets_the_past_and_then_the_present(talk: Conversation) -> None:
    await write(talk, 3)
    async with asyncio.timeout(PATIENCE), aclosing(talk.subscribe()) as events:
        past = [await anext(events) for _ in range(4)]
        assert [event.kind for event in past] == ["create", "append", "append", "append"]
        waiting = asyncio.ensure_future(anext(events))
        turn = await talk.append("user", "now")
        live = await waiting
        assert (live.n, live.kind, live.turn) == (5, "append", turn.id)
    assert await talk.audit() == [*past, live]


async def test_nothing_is_missed_and_nothing_comes_twice_while_others_write(talk: Conversation) -> None:
    await write(talk, 50)
    total = 1 + 50 + 4 * 150
    subscribers = [asyncio.create_task(take(talk, total - after, after)) for after in (0, 1, 17, 51)]
    await asyncio.gather(*(write(talk, 150) for _ in range(4)))
    late = asyncio.create_task(take(talk, total))
    for after, task in zip((0, 1, 17, 51, 0), [*subscribers, late], strict=True):
        assert numbers(await task) == list(range(after + 1, total + 1))


async def test_every_kind_of_event_is_followed(talk: Conversation) -> None:
    events = asyncio.create_task(until_the_end(talk))
    first = await talk.append("user", "one")
    second = await talk.append("user", "two", replaces=first)
    await talk.switch(first)
    await talk.append_abort(await talk.append_open("assistant"))
    async with talk.stream("assistant", flush=0) as out:
        await out.write("words")
    await talk.attach(b"x", filename="x.txt")
    await talk.rename("title")
    await talk.forget(second)
    await talk.reset()
    await talk.forget()
    found = [event.kind for event in await events]
    assert set(found) >= {"append", "switch", "open", "abort", "commit", "attach", "update", "forget", "reset"}


async def test_events_of_another_process_arrive_without_a_gap(talk: Conversation, database_url: str) -> None:
    theirs, ours = 150, 100
    total = 1 + theirs + ours
    subscriber = asyncio.create_task(take(talk, total))
    async with another_process(database_url, str(theirs)) as process:
        await asyncio.gather(write(talk, ours), process.written())
        assert numbers(await subscriber) == list(range(1, total + 1))
        # Now nobody writes here, so that only the file can tell.
        idle = asyncio.create_task(take(talk, 1, total))
        await watcher_runs(True)
        process.go_on()
        assert numbers(await idle) == [total + 1]


class Process:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def written(self) -> None:
        assert self.process.stdout is not None
        assert await self.process.stdout.readline() == b"written\n"

    def go_on(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(b"\n")


@asynccontextmanager
async def another_process(*arguments: str) -> AsyncIterator[Process]:
    pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", WRITER, *arguments, **pipes)
    yield Process(process)
    await process.communicate(b"\n")
    assert process.returncode == 0


async def test_another_store_on_the_same_file_is_followed(talk: Conversation, database_url: str) -> None:
    async with palaver.open(database_url, tenant="acme", user="ada", worker=False) as second:
        other = await second.conversation("k")
        subscriber = asyncio.create_task(take(talk, 101))
        await write(other, 100)
        assert numbers(await subscriber) == list(range(1, 102))


# ---- resuming ------------------------------------------------------------------------------------------------------


async def test_a_reader_resumes_from_a_number(talk: Conversation) -> None:
    await write(talk, 20)
    whole = await take(talk, 21)
    for after in (0, 1, 10, 20):
        assert await take(talk, 21 - after, after) == whole[after:]


async def test_a_number_from_the_future_waits_for_it(talk: Conversation) -> None:
    subscriber = asyncio.create_task(take(talk, 1, after=5))
    await write(talk, 5)
    assert numbers(await subscriber) == [6]


@pytest.mark.parametrize("after", [-1, 1.5, "3", None, True])
async def test_what_is_no_number_is_refused(talk: Conversation, after: object) -> None:
    with pytest.raises(palaver.InvalidInput):
        await anext(talk.subscribe(after))  # type: ignore[arg-type]


# ---- slow readers --------------------------------------------------------------------------------------------------


async def test_a_slow_reader_loses_nothing_and_nobody_waits_for_it(talk: Conversation) -> None:
    count = 1_500
    async with asyncio.timeout(PATIENCE), aclosing(talk.subscribe()) as events:
        first = await anext(events)
        # The reader is busy with its first event for as long as all of this takes.
        await talk.append_many([{"role": "user", "content": "x"}] * 1_000)
        await write(talk, count - 1_000)
        rest = [await anext(events) for _ in range(count)]
    assert numbers([first, *rest]) == list(range(1, count + 2))


async def test_a_reader_that_leaves_does_not_disturb_the_others(talk: Conversation) -> None:
    staying = asyncio.create_task(take(talk, 21))
    leaving = [asyncio.create_task(take(talk, 21)) for _ in range(5)]
    await write(talk, 10)
    for task in leaving:
        task.cancel()
    await asyncio.gather(*leaving, return_exceptions=True)
    await write(talk, 10)
    assert numbers(await staying) == list(range(1, 22))


# ---- the end -------------------------------------------------------------------------------------------------------


async def test_it_ends_with_the_tombstone(store: Store, talk: Conversation) -> None:
    async with asyncio.timeout(PATIENCE), aclosing(talk.subscribe()) as events:
        first = await anext(events)  # it follows by now: what is gone already cannot be followed
        rest = asyncio.create_task(collect(events))
        await talk.append("user", "x")
        await talk.forget()
        found = [first, *await rest]
    assert [event.kind for event in found] == ["create", "append", "forget"]
    assert found == await store.audit(talk.id)


@pytest.mark.parametrize("reader", ["participant", "workspace"])
async def test_one_who_saw_it_by_its_details_is_cut_off_when_those_are_deleted(
    store: Store, talk: Conversation, reader: str
) -> None:
    """Participants and workspace are forgotten too: so is the right to see even the tombstone."""
    await talk.update(participants=["bob"], workspace="w")
    scopes = {
        "participant": Scope("acme", "bob"),
        "workspace": Scope("acme", "eve", visibility="workspace", workspace="w"),
    }
    theirs = await store.scoped(scopes[reader]).get(talk.id)
    async with asyncio.timeout(PATIENCE), aclosing(theirs.subscribe()) as events:
        assert [(await anext(events)).kind for _ in range(2)] == ["create", "update"]
        rest = asyncio.create_task(collect(events))
        await talk.forget()
        with pytest.raises(palaver.ConversationNotFound):
            await rest


async def collect(events: AsyncIterator[Event]) -> list[Event]:
    return [event async for event in events]


async def test_it_ends_when_the_conversation_expires(database_url: str) -> None:
    async with palaver.open(database_url, tenant="acme", user="ada", worker=False) as store:
        talk = await store.conversation("k", ttl=0.2)
        events = asyncio.create_task(until_the_end(talk))
        async with asyncio.timeout(PATIENCE):
            while not await store.expire():
                pass
        assert [event.kind for event in await events] == ["create", "expire"]


async def test_forgetting_one_turn_is_not_the_end(talk: Conversation) -> None:
    subscriber = asyncio.create_task(take(talk, 4))
    turn = await talk.append("user", "x")
    await talk.forget(turn)
    await talk.append("user", "y")
    assert [event.kind for event in await subscriber] == ["create", "append", "forget", "append"]


async def test_one_who_may_not_see_it_any_more_is_cut_off(store: Store, talk: Conversation) -> None:
    await talk.update(participants=["bob"])
    bob = await store.scoped(Scope("acme", "bob")).get(talk.id)
    async with asyncio.timeout(PATIENCE), aclosing(bob.subscribe()) as events:
        for _ in range(2):
            await anext(events)
        waiting = asyncio.ensure_future(anext(events))
        await talk.update(participants=[])
        with pytest.raises(palaver.ConversationNotFound):
            await waiting


async def test_what_is_gone_already_cannot_be_followed(talk: Conversation) -> None:
    await talk.forget()
    with pytest.raises(palaver.ConversationGone):
        await anext(talk.subscribe())


# ---- the watcher ---------------------------------------------------------------------------------------------------


def watching() -> bool:
    return any(task.get_name() == "palaver-watch" for task in asyncio.all_tasks())


async def watcher_runs(expected: bool) -> None:
    async with asyncio.timeout(PATIENCE):
        while watching() != expected:
            await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()}, timeout=0.001)


async def test_the_file_is_watched_only_while_there_is_a_subscriber(talk: Conversation) -> None:
    await write(talk, 2)
    assert not watching()
    one, two = asyncio.create_task(take(talk, 4)), asyncio.create_task(take(talk, 5))
    await watcher_runs(True)
    await write(talk, 1)
    await one
    await watcher_runs(True)  # the second one still follows
    await write(talk, 1)
    await two
    assert not watching()
    await take(talk, 1)
    assert not watching()


async def test_closing_the_store_ends_the_watch(database_url: str) -> None:
    async with palaver.open(database_url, tenant="acme", user="ada", worker=False) as store:
        talk = await store.conversation("k")
        subscriber = asyncio.create_task(take(talk, 2))
        await watcher_runs(True)
    assert not watching()
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(palaver.StoreClosed):
            await subscriber


async def test_a_reader_in_another_event_loop_gets_a_typed_error(tmp_path: Path) -> None:
    outcome: SimpleQueue[object] = SimpleQueue()

    async def follow(talk: Conversation) -> None:
        try:
            async for event in talk.subscribe():
                outcome.put(event.kind)
        except palaver.WrongEventLoop as problem:
            outcome.put(problem)

    async with palaver.open(f"sqlite:///{tmp_path}/chat.db", worker=False) as store:
        talk = await store.conversation("k")
        threading.Thread(target=lambda: asyncio.run(follow(talk)), daemon=True).start()
        assert isinstance(await asyncio.to_thread(outcome.get, timeout=PATIENCE), palaver.WrongEventLoop)
