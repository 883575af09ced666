"""Storing turns."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

from palaver.conversations.conversation import Conversation
from palaver.core.validation import MAX_BATCH
from palaver.errors import AppendConflict, AttachmentNotFound, IdempotencyConflict, InvalidInput
from palaver.model import (
    ACT_FOR,
    SYSTEM,
    Attachment,
    File,
    Image,
    Reasoning,
    Scope,
    Text,
    TokenUsage,
    ToolCall,
    ToolResult,
    Turn,
)
from palaver.testing.fakes import CountingIds, FakeClock
from palaver.testing.kit import Database, guarantee, refused


@guarantee
async def what_append_returns_is_what_is_stored(db: Database) -> None:
    """The turn that append returns is the turn that every later reader gets."""
    async with db.open() as store:
        talk = await store.conversation("k")
        turn = await talk.append("user", "I'm allergic to peanuts.")
        assert await talk.history() == [turn]
        assert await talk.turn(turn.id) == turn
    async with db.open() as store:
        assert await (await store.conversation("k")).history() == [turn]


@guarantee
async def every_field_comes_back(db: Database) -> None:
    """Every field of a turn comes back as it was given."""
    fields: dict[str, Any] = {
        "actor": "helper-2",
        "created": datetime(2020, 2, 29, 23, 59, 59, 123456, tzinfo=UTC),
        "metadata": {"k": [1, 2.5, None, True, {"ü": "🙂"}]},
        "tool_calls": (ToolCall("c1", "look", {"q": "nuts"}), ToolCall("c2", "raw", "{not json")),
        "sources": ({"url": "https://example.org", "title": "A page"},),
        "tokens": TokenUsage(12, 34),
        "model": "large-1",
        "adapter": "chat",
        "finish_reason": "tool_calls",
        "idempotency_key": "try-1",
    }
    async with db.open() as store:
        talk = await store.conversation("k")
        await talk.append("assistant", "Let me look.", **fields)
        [turn] = await talk.history()
        assert {name: getattr(turn, name) for name in fields} == fields
        assert (turn.role, turn.content, turn.status, turn.active) == ("assistant", "Let me look.", "complete", True)


@guarantee
async def text_is_kept_to_the_letter(db: Database) -> None:
    """Text is neither trimmed nor normalised nor re-encoded."""
    texts = [
        "",
        " ",
        "\r\n\ttab\r",
        "e\u0301 é",
        "👩‍👩‍👧‍👦",
        "\ufeffmark",
        "\u2028\u0085",
        "a" * 100_000,
        '{"a":1}',
        "'; DROP TABLE",
    ]
    async with db.open() as store:
        talk = await store.conversation("k")
        for text in texts:
            await talk.append("user", text)
        assert [turn.content for turn in await talk.history()] == texts


@guarantee
async def parts_come_back_in_order(db: Database) -> None:
    """A content of parts comes back part by part, with the fields that Palaver does not know."""
    parts = (
        Text("Look:", extra={"cache": {"type": "short"}}),
        Image(url="data:image/png;base64,iVBORw0KGgo="),
        File(url="https://example.org/a.pdf", filename="a.pdf", media_type="application/pdf"),
        Reasoning("Hm.", signature="c2ln"),
        Text("What is it?"),
    )
    async with db.open() as store:
        talk = await store.conversation("k")
        await talk.append("user", parts)
        plain = await talk.append("user", ["Look:", {"type": "text", "text": "there", "lang": "en"}])
        assert (await talk.history())[0].content == parts
        assert (await talk.turn(plain)).content == (Text("Look:"), Text("there", extra={"lang": "en"}))
        assert plain.text == "Look:\nthere"


@guarantee
async def tool_results_are_any_json(db: Database) -> None:
    """The result of a tool is a text or any JSON value, and may be an error."""
    results = (ToolResult("c1", "text"), ToolResult("c2", {"rows": [1, None]}), ToolResult("c3", "no", is_error=True))
    async with db.open() as store:
        talk = await store.conversation("k")
        await talk.append("tool", "", tool_results=results)
        [turn] = await talk.history()
        assert turn.tool_results == results


@guarantee
async def sequence_numbers_have_no_gap(db: Database) -> None:
    """Turns are numbered 0, 1, 2, … in the order in which they were stored, even with concurrent writers."""
    async with db.open() as one, db.open() as two:
        talks = [await one.conversation("k"), await two.conversation("k")]
        turns = await asyncio.gather(*(talks[n % 2].append("user", str(n)) for n in range(40)))
        assert sorted(turn.seq for turn in turns) == list(range(40))
        assert [turn.seq for turn in await talks[0].history()] == list(range(40))
        assert [event.n for event in await talks[1].audit()] == list(range(1, 42))
        assert len({turn.id for turn in turns}) == 40


@guarantee
async def a_refused_append_uses_up_no_number(db: Database) -> None:
    """An append that fails leaves no gap behind."""
    async with db.open() as store:
        talk = await store.conversation("k")
        await talk.append("user", "one")
        async with refused(AppendConflict):
            await talk.append("user", "two", expected_seq=7)
        async with refused(AttachmentNotFound):
            await talk.append("user", "two", attachments=[_nowhere()])
        assert (await talk.append("user", "three")).seq == 1
        assert len(await talk.audit()) == 3


@guarantee
async def ids_are_told_apart(db: Database) -> None:
    """No two turns have the same id, even in two conversations, with the same number, at the same moment."""
    async with db.open() as store:
        talks = [await store.conversation() for _ in range(50)]
        turns = await asyncio.gather(*(talk.append("user", "x") for talk in talks))
        assert len({turn.id for turn in turns}) == 50
    async with db.open(tenant="other", ids=CountingIds()) as store:
        turns = [await (await store.conversation(key)).append("user", "x") for key in "abca"]
        assert len({turn.id for turn in turns}) == 4
        assert {len(turn.id) for turn in turns} == {26}


@guarantee
async def a_batch_is_stored_whole(db: Database) -> None:
    """append_many stores all turns in the order given, up to a thousand, and returns them."""
    async with db.open() as store:
        talk = await store.conversation("k")
        turns = await talk.append_many({"role": "user", "content": str(n)} for n in range(MAX_BATCH))
        assert [turn.text for turn in turns] == [str(n) for n in range(MAX_BATCH)]
        assert await talk.history(MAX_BATCH) == turns
        assert await talk.append_many([]) == []


@guarantee
async def a_batch_is_all_or_nothing(db: Database) -> None:
    """When one turn of a batch is refused, by the library or by the database, none is stored."""
    good = {"role": "user", "content": "good"}
    async with db.open() as store:
        talk = await store.conversation("k")
        async with refused(InvalidInput, field="role"):
            await talk.append_many([good, {"role": "robot", "content": "bad"}])  # type: ignore[list-item, typeddict-item]
        async with refused(AttachmentNotFound):
            await talk.append_many([good, {**good, "attachments": [_nowhere()]}])  # type: ignore[list-item, typeddict-item]
        assert await talk.history() == []
        assert (await talk.refresh()).next_seq == 0


def _nowhere() -> Attachment:
    return Attachment(id="0" * 26, filename="x", media_type="text/plain", bytes=1, sha256="0" * 64)


# ---- idempotency ---------------------------------------------------------------------------------------------------


@guarantee
async def a_retry_returns_the_first_result(db: Database) -> None:
    """The same idempotency key stores once, and every retry gets the turn that was stored."""
    async with db.open() as store:
        talk = await store.conversation("k")
        first = await talk.append("user", "pay", idempotency_key="order-1", metadata={"n": 1})
        await talk.append("user", "something else")
        assert await talk.append("user", "pay", idempotency_key="order-1", metadata={"n": 1}) == first
    async with db.open() as store:
        talk = await store.conversation("k")
        assert await talk.append("user", "pay", idempotency_key="order-1", metadata={"n": 1}) == first
        assert len(await talk.history()) == 2


@guarantee
async def retries_in_flight_store_once(db: Database) -> None:
    """Retries that overtake each other, from two stores, store one turn."""
    async with db.open() as one, db.open() as two:
        talks = [await one.conversation("k"), await two.conversation("k")]
        turns = await asyncio.gather(*(talks[n % 2].append("user", "pay", idempotency_key="x") for n in range(16)))
        assert len({turn.id for turn in turns}) == 1
        assert len(await talks[0].history()) == 1


@guarantee
async def a_key_stands_for_one_content(db: Database) -> None:
    """The same idempotency key with different content is refused, and the error names the turn that has the key."""
    async with db.open() as store:
        talk = await store.conversation("k")
        first = await talk.append("user", "pay 5", idempotency_key="x")
        async with refused(IdempotencyConflict, turn=first.id):
            await talk.append("user", "pay 500", idempotency_key="x")
        async with refused(IdempotencyConflict, turn=first.id):
            await talk.append("assistant", "pay 5", idempotency_key="x")
        async with refused(IdempotencyConflict, turn=first.id):
            await talk.append("user", "pay 5", sources=[{"url": "https://example.org"}], idempotency_key="x")
        assert await talk.history() == [first]


@guarantee
async def a_key_is_the_conversations_own(db: Database) -> None:
    """Two conversations can use the same idempotency key."""
    async with db.open() as store:
        one, two = await store.conversation("one"), await store.conversation("two")
        await one.append("user", "a", idempotency_key="x")
        assert (await two.append("user", "b", idempotency_key="x")).text == "b"


@guarantee
async def a_batch_can_be_retried(db: Database) -> None:
    """A batch with keys can be sent again, even if part of it is new."""
    items = [{"role": "user", "content": str(n), "idempotency_key": f"x{n}"} for n in range(3)]
    async with db.open() as store:
        talk = await store.conversation("k")
        first = await talk.append_many(items[:2])  # type: ignore[arg-type]
        again = await talk.append_many(items)  # type: ignore[arg-type]
        assert again[:2] == first
        assert _said(await talk.history()) == ["0", "1", "2"]
        async with refused(InvalidInput, field="idempotency_key"):
            await talk.append_many([items[0], items[0]])  # type: ignore[list-item]


# ---- optimistic concurrency ----------------------------------------------------------------------------------------


@guarantee
async def expected_seq_guards_an_append(db: Database) -> None:
    """With expected_seq a turn is stored only when it would get that number; the error has both numbers."""
    async with db.open() as store:
        talk = await store.conversation("k")
        await talk.append("user", "one", expected_seq=0)
        async with refused(AppendConflict, expected=0, found=1):
            await talk.append("user", "two", expected_seq=0)
        async with refused(AppendConflict, expected=5, found=1):
            await talk.append_many([{"role": "user", "content": "two"}], expected_seq=5)
        assert _said(await talk.history()) == ["one"]


@guarantee
async def one_of_two_rivals_wins(db: Database) -> None:
    """Of several writers who expect the same number, exactly one succeeds."""
    async with db.open() as one, db.open() as two:
        talks = [await one.conversation("k"), await two.conversation("k")]
        tries = (talks[n % 2].append("user", str(n), expected_seq=0) for n in range(8))
        results = await asyncio.gather(*tries, return_exceptions=True)
        assert sum(isinstance(result, Turn) for result in results) == 1
        assert sum(isinstance(result, AppendConflict) for result in results) == 7


@guarantee
async def a_retry_needs_no_new_expectation(db: Database) -> None:
    """A retry with its key returns the first result, although the thread is past the expected number."""
    async with db.open() as store:
        talk = await store.conversation("k")
        first = await talk.append("user", "one", expected_seq=0, idempotency_key="x")
        await talk.append("user", "two")
        assert await talk.append("user", "one", expected_seq=0, idempotency_key="x") == first


# ---- time and names ------------------------------------------------------------------------------------------------


@guarantee
async def time_only_goes_forward(db: Database) -> None:
    """The times that an engine gives to turns and events rise strictly, even if the clock stands still or goes back."""
    clock = FakeClock()
    async with db.open(clock=clock) as store:
        talk = await store.conversation("k")
        for step in (0, 5, -3_600, 0, 1):
            clock.advance(step)
            await talk.append("user", "x")
        await talk.append_many([{"role": "user", "content": "x"}] * 3)
        created = [turn.created for turn in await talk.history()]
        at = [event.at for event in await talk.audit()]
        assert created == sorted(set(created))
        assert at == sorted(set(at))
        assert len(created) == 8


@guarantee
async def a_clock_that_was_years_ahead_does_not_date_later_turns(db: Database) -> None:
    """After a clock was far ahead for a moment, turns have the true time again; the order is that of arrival."""
    clock = FakeClock()
    async with db.open(clock=clock) as store:
        talk, start, years = await store.conversation("k"), clock.now(), 10 * 365 * 86_400
        clock.advance(years)
        wrong = await talk.append("user", "in the future")
        assert wrong.created >= start + timedelta(seconds=years)
        clock.advance(-years)
        turns = [await talk.append("user", str(n)) for n in range(2)]
        turns += await talk.append_many([{"role": "user", "content": "x"}] * 2)
        assert all(start <= turn.created < start + timedelta(minutes=1) for turn in turns)
        assert [turn.id for turn in await talk.history()] == [turn.id for turn in (wrong, *turns)]
        assert [turn.id for turn in await talk.history(until=start + timedelta(days=1))] == [turn.id for turn in turns]
        assert (await talk.verify()).turns == 5
        await talk.update(ttl=3_600)
        clock.advance(7_200)
        assert await store.expire() == [talk.id]


@guarantee
async def a_given_time_is_kept(db: Database) -> None:
    """A time that the caller gives is kept, in UTC, and does not change the order of arrival."""
    clock = FakeClock()
    async with db.open(clock=clock) as store:
        talk = await store.conversation("k")
        late = await talk.append("user", "late", created="2031-05-01T12:00:00+02:00")
        early = await talk.append("user", "early", created=datetime(1999, 1, 1, tzinfo=UTC))
        assert late.created == datetime(2031, 5, 1, 10, tzinfo=UTC)
        assert late.created.tzinfo == UTC
        assert await talk.history() == [late, early]
        assert (await talk.audit())[-1].at.year == clock.now().year


@guarantee
async def turns_name_their_actor(db: Database) -> None:
    """If the caller names no actor, the actor is the user, the agent or the role."""
    async with db.open(scope=Scope("default", "ada").with_rights(SYSTEM, ACT_FOR)) as store:
        talk = await store.conversation("k", agent="helper")
        assert (await talk.append("user", "hi")).actor == "ada"
        assert (await talk.append("assistant", "hi")).actor == "helper"
        assert (await talk.append("system", "be kind")).actor == "system"
        assert (await talk.append("user", "hi", actor="guest")).actor == "guest"
        assert await _actors(talk) == ["ada", "helper", "system", "guest"]


async def _actors(talk: Conversation) -> list[str]:
    return [turn.actor for turn in await talk.history()]


def _said(turns: list[Turn]) -> list[str]:
    return [turn.text for turn in turns]
