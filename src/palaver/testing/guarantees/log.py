"""The log: live and in retrospect."""

from __future__ import annotations

import asyncio

from palaver.conversations.conversation import Conversation
from palaver.errors import ConversationGone, InvalidInput, StoreClosed
from palaver.model import ACT_FOR, Event, Scope
from palaver.testing.fakes import FakeClock
from palaver.testing.kit import Database, guarantee, refused


async def follow(talk: Conversation, *, after: int = 0, until: int) -> list[Event]:
    """The events up to number `until`."""
    seen: list[Event] = []
    async for event in talk.subscribe(after=after):
        seen.append(event)
        if event.n >= until:
            break
    return seen


@guarantee
async def a_subscriber_sees_the_past_and_then_the_present(db: Database) -> None:
    """A subscriber gets every event from the log, then those to come, each once, from this store and from others."""
    async with db.open() as one, db.open() as two:
        here, there = await one.conversation("k"), await two.conversation("k")
        await here.append("user", "past")
        readers = [asyncio.create_task(follow(talk, until=42)) for talk in (here, there)]
        await asyncio.gather(*(talk.append("user", "x") for talk in [here, there] * 20))
        for reader in readers:
            seen = await reader
            assert [event.n for event in seen] == list(range(1, 43))
        assert seen == await here.audit()


@guarantee
async def a_subscriber_resumes_from_a_number(db: Database) -> None:
    """A subscriber that comes back with the last number it saw misses nothing and sees nothing twice."""
    async with db.open() as store:
        talk = await store.conversation("k")
        await talk.append_many([{"role": "user", "content": str(n)} for n in range(10)])
        first = await follow(talk, until=4)
    async with db.open() as store:
        talk = await store.conversation("k")
        rest = await follow(talk, after=first[-1].n, until=11)
        assert first + rest == await talk.audit()


@guarantee
async def a_slow_subscriber_loses_nothing(db: Database) -> None:
    """A subscriber that falls far behind does not hold up writers, and gets everything later."""
    async with db.open() as store:
        talk = await store.conversation("k")
        events = talk.subscribe()
        seen = [(await anext(events)).n]
        for _ in range(3):
            await talk.append_many([{"role": "user", "content": "x"}] * 500)
        while seen[-1] < 1_501:
            seen.append((await anext(events)).n)
        assert seen == list(range(1, 1_502))


@guarantee
async def a_subscription_ends_with_the_conversation(db: Database) -> None:
    """The last event is the one that deletes the conversation; then the subscription ends."""
    async with db.open() as store:
        talk = await store.conversation("k")
        events = talk.subscribe()
        assert (await anext(events)).kind == "create"
        await talk.append("user", "x")
        await talk.forget()
        assert [event.kind async for event in events] == ["append", "forget"]
        async with refused(ConversationGone):
            await anext(talk.subscribe())


@guarantee
async def a_subscriber_hears_that_the_store_is_closed(db: Database) -> None:
    """A subscriber gets StoreClosed when the store is closed: one that waits, one that is busy, one that is late."""
    async with db.open() as store:
        talk = await store.conversation("k")
        waits, busy = talk.subscribe(), talk.subscribe()
        await anext(waits)
        waiting = asyncio.ensure_future(anext(waits))
        await anext(busy)
    async with asyncio.timeout(60):
        for late in (waiting, anext(busy), anext(talk.subscribe())):
            async with refused(StoreClosed):
                await late


@guarantee
async def the_log_tells_the_story(db: Database) -> None:
    """Every change is an event with a gapless number, its kind, its turn and its actor."""
    async with db.open(user="ada") as store:
        talk = await store.conversation("k", agent="bot")
        question = await talk.append("user", "question")
        answer = await talk.append_open("assistant")
        await talk.append_chunk(answer, 0, "an")
        await talk.append_commit(answer)
        await talk.append("assistant", "better", replaces=answer)
        await talk.switch(answer)
        await talk.rename("a title")
        cut = await talk.append_open("assistant")
        await talk.append_abort(cut)
        await talk.attach(b"file")
        await talk.forget(question)
        await talk.reset()
        log = await talk.audit()
    assert [event.n for event in log] == list(range(1, len(log) + 1))
    assert [event.kind for event in log] == (
        "create append open chunk commit append switch update open abort attach forget reset".split()
    )
    assert [event.turn for event in log[1:5]] == [question.id, answer.id, answer.id, answer.id]
    assert log[5].payload["replaces"] == answer.id
    assert [event.actor for event in log[:4]] == ["ada", "ada", "bot", "bot"]
    assert log[2].payload["by"] == "ada"


@guarantee
async def acting_for_another_is_on_record(db: Database) -> None:
    """If a caller writes under another name, the log has both."""
    async with db.open(scope=Scope("default", "ada").with_rights(ACT_FOR)) as store:
        talk = await store.conversation("k")
        await talk.append("user", "I am Bob", actor="bob")
        [event] = await talk.audit(kinds=["append"])
        assert (event.actor, event.payload["by"]) == ("bob", "ada")


@guarantee
async def the_log_can_be_narrowed(db: Database) -> None:
    """The log can be read by number, kind, actor, turn and time."""
    clock = FakeClock()
    async with db.open(clock=clock) as store:
        talk = await store.conversation("k")
        turns = []
        for actor in ("ada", "bob", "ada"):
            clock.advance(60)
            turns.append(await talk.append("user", "x", actor=actor))
        await talk.forget(turns[0])
        assert [event.n for event in await talk.audit(after=2, limit=2)] == [3, 4]
        assert [event.n for event in await talk.audit(kinds=["append"])] == [2, 3, 4]
        assert [event.n for event in await talk.audit(actors=["bob"])] == [3]
        assert [event.kind for event in await talk.audit(turn=turns[0].id)] == ["append", "forget"]
        assert [event.n for event in await talk.audit(since=turns[1].created, until=turns[2].created)] == [3]
        async with refused(InvalidInput, field="turn"):
            await talk.audit(turn=3)  # type: ignore[arg-type]


@guarantee
async def events_never_hold_content(db: Database) -> None:
    """No event holds anything that was said, nor titles, metadata, keys or names of files."""
    async with db.open() as store:
        talk = await store.conversation("k", title="zanzibar", metadata={"zanzibar": "zanzibar"})
        file = await talk.attach(b"zanzibar", filename="zanzibar.txt")
        await talk.append(
            "user", "zanzibar", metadata={"m": "zanzibar"}, attachments=[file], idempotency_key="zanzibar"
        )
        turn = await talk.append_open("assistant", model="zanzibar")
        await talk.append_chunk(turn, 0, "zanzibar")
        await talk.append_commit(turn, tool_calls=[_call("zanzibar")], sources=[{"zanzibar": 1}])
        await talk.update(title="zanzibar again", settings={"compaction": {"summarizer_model": "zanzibar"}})
        assert "zanzibar" not in repr(await talk.audit())


def _call(name: str) -> dict[str, object]:
    return {"id": name, "name": name, "arguments": {name: name}}
