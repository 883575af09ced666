"""Reading turns."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

from palaver.conversations.conversation import Conversation
from palaver.errors import InvalidInput, TurnNotFound
from palaver.model import Turn
from palaver.testing.fakes import FakeClock
from palaver.testing.kit import Database, guarantee, refused


@asynccontextmanager
async def ten_turns(db: Database) -> AsyncIterator[tuple[Conversation, list[Turn]]]:
    """A talk of ten turns, a minute apart: user ada, assistant bot, user bob, assistant bot, …"""
    clock = FakeClock()
    async with db.open(clock=clock) as store:
        talk = await store.conversation("k")
        turns = []
        for number in range(10):
            clock.advance(60)
            role, actor = ("assistant", "bot") if number % 2 else ("user", ("ada", "bob")[number // 2 % 2])
            turns.append(await talk.append(role, str(number), actor=actor))  # type: ignore[arg-type]
        yield talk, turns


@guarantee
async def history_is_the_latest_turns_oldest_first(db: Database) -> None:
    """Without a cursor, history is the latest turns, the oldest of them first."""
    async with ten_turns(db) as (talk, turns):
        assert await talk.history() == turns
        assert await talk.history(3) == turns[-3:]
        assert await talk.history(0) == []


@guarantee
async def before_reads_backwards(db: Database) -> None:
    """Before a turn come the latest ones that precede it; page by page one reaches the beginning."""
    async with ten_turns(db) as (talk, turns):
        assert await talk.history(3, before=turns[8]) == turns[5:8]
        pages: list[Turn] = []
        while page := await talk.history(4, before=pages[0] if pages else None):
            pages = page + pages
        assert pages == turns


@guarantee
async def after_reads_on(db: Database) -> None:
    """After a turn come the ones that follow it; page by page one reaches the end."""
    async with ten_turns(db) as (talk, turns):
        assert await talk.history(3, after=turns[2]) == turns[3:6]
        pages = [turns[0]]
        while page := await talk.history(4, after=pages[-1]):
            pages += page
        assert pages == turns


@guarantee
async def two_cursors_make_a_span(db: Database) -> None:
    """Between two cursors lie the turns between them, the latest when there are too many; neither end is in it."""
    async with ten_turns(db) as (talk, turns):
        assert await talk.history(after=turns[2], before=turns[7]) == turns[3:7]
        assert await talk.history(2, after=turns[2], before=turns[7]) == turns[5:7]
        assert await talk.history(after=turns[7], before=turns[2]) == []


@guarantee
async def a_cursor_is_a_turn_or_its_id(db: Database) -> None:
    """A cursor is a turn or its id; numbers, and turns from elsewhere, are refused."""
    async with ten_turns(db) as (talk, turns):
        assert await talk.history(before=turns[4].id) == await talk.history(before=turns[4]) == turns[:4]
        for field in ("before", "after"):
            async with refused(InvalidInput, field=field):
                await talk.history(**{field: 4})  # type: ignore[call-overload]
        for stranger in ("0" * 26, "not an id", turns[4].id[:-1], turns[4].id.lower()):
            async with refused(TurnNotFound, turn=stranger):
                await talk.history(before=stranger)


@guarantee
async def another_conversations_turn_is_no_cursor(db: Database) -> None:
    """No method finds a turn of another conversation."""
    async with db.open() as store:
        here, there = await store.conversation("here"), await store.conversation("there")
        await here.append("user", "here")
        turn = await there.append("user", "there")
        for verb in (here.turn, here.switch, here.forget, here.branches, here.append_commit):
            async with refused(TurnNotFound):
                await verb(turn)
        async with refused(TurnNotFound):
            await here.history(after=turn)
        async with refused(TurnNotFound):
            await here.append("user", "x", replaces=turn)


@guarantee
async def since_includes_and_until_excludes(db: Database) -> None:
    """Since is inclusive and until is not; a time without a zone is refused, because it could be local time."""
    async with ten_turns(db) as (talk, turns):
        since, until = turns[3].created, turns[6].created
        assert await talk.history(since=since, until=until) == turns[3:6]
        assert await talk.history(since=since.isoformat(), until=until.isoformat()) == turns[3:6]
        for naive in (until.replace(tzinfo=None), until.replace(tzinfo=None).isoformat()):
            async with refused(InvalidInput, field="until"):
                await talk.history(until=naive)
        assert await talk.history(since=turns[-1].created + timedelta(microseconds=1)) == []


@guarantee
async def roles_and_participants_narrow(db: Database) -> None:
    """Histories can be narrowed to roles and to participants."""
    async with ten_turns(db) as (talk, turns):
        assert await talk.history(roles=["assistant"]) == turns[1::2]
        assert await talk.history(participants=["ada"]) == turns[0::4]
        assert await talk.history(participants=["ada", "bob"]) == turns[0::2]
        assert await talk.history(participants=["ada"], roles=["assistant"]) == []


@guarantee
async def an_empty_list_means_nobody(db: Database) -> None:
    """An empty list of roles or participants matches nothing."""
    async with ten_turns(db) as (talk, _):
        assert await talk.history(roles=[]) == []
        assert await talk.history(participants=[]) == []
        assert await talk.audit(kinds=[]) == await talk.audit(actors=[]) == []


@guarantee
async def the_limit_counts_what_fits(db: Database) -> None:
    """The limit counts the turns that fit the filters, not those that were looked at."""
    async with ten_turns(db) as (talk, turns):
        assert await talk.history(2, participants=["ada"]) == [turns[4], turns[8]]
        assert await talk.history(2, roles=["user"], after=turns[1]) == [turns[2], turns[4]]
        assert await talk.history(2, roles=["user"], before=turns[6], since=turns[1].created) == [turns[2], turns[4]]


@guarantee
async def superseded_turns_are_shown_on_request(db: Database) -> None:
    """With include_superseded, history is everything that was said, in order of arrival, with cursors by arrival."""
    async with ten_turns(db) as (talk, turns):
        edit = await talk.append("user", "edit", replaces=turns[4])
        everything = await talk.history(include_superseded=True)
        assert [turn.seq for turn in everything] == list(range(11))
        assert everything[4].superseded_by == everything[10].id == edit.id
        assert [turn.id for turn in await talk.history(2, include_superseded=True, before=edit)] == [
            turns[8].id,
            turns[9].id,
        ]
        assert await talk.history(include_superseded=True, after=turns[9]) == [edit]


@guarantee
async def a_cursor_outlives_its_turn(db: Database) -> None:
    """A turn that was superseded or forgotten still marks its place."""
    async with ten_turns(db) as (talk, turns):
        edit = await talk.append("user", "edit", replaces=turns[4])
        await talk.forget(turns[7])
        assert await talk.history(2, after=turns[4]) == turns[5:7]
        assert await talk.history(2, before=turns[5]) == [turns[3], edit]
        assert await talk.history(2, before=turns[7]) == turns[5:7]
        assert await talk.history(after=turns[7]) == turns[8:]
