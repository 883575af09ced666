"""Archives of logs: old events and requests leave the database, and the chain stays provable."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import palaver
from palaver import Conversation, Scope, Store
from palaver.conversations.internals import engine_of
from palaver.errors import InvalidInput, PermissionDenied, VerificationFailed
from palaver.interchange.archive import archive_conversation
from palaver.interchange.jsonl import export_lines, import_dump, read_dumps
from palaver.model import Request, Tip
from palaver.testing import FakeClock
from tests.support.memory import url

pytestmark = [pytest.mark.both_engines, pytest.mark.usefixtures("engine")]

START = datetime(2026, 1, 1, tzinfo=UTC)
DAYS = 100 * 86_400.0  # seconds
LATER = START + timedelta(days=100)


async def talk_for_long(store: Store, clock: FakeClock) -> Conversation:
    """A conversation with old events of many kinds, and some later ones about old and new turns."""
    talk = await store.conversation("old")
    first = await talk.append("user", "What is in the box?")
    second = await talk.append("assistant", "Nothing at all.")
    await talk.append("assistant", "A cat.", replaces=second)
    async with talk.stream("assistant") as stream:
        await stream.write("It sleeps ")
        await stream.write("now.")
    forgotten = await talk.append("user", "Forget this.")
    await talk.forget(forgotten)
    request = Request(id="r1", conversation=talk.id, at=clock.now(), model="m", adapter="a", body={"secret": "words"})
    await engine_of(store).put_request(store.scope, talk.id, request, None)
    clock.advance(DAYS)
    await talk.append("user", "Is it alive?")
    await talk.switch(second)
    await talk.forget(first)
    return talk


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(START)


@pytest.fixture
async def store(tmp_path: Path, clock: FakeClock):
    async with palaver.open(url(tmp_path), embedder=None, worker=False, clock=clock) as opened:
        yield opened


async def archived(store: Store, talk: Conversation, before: datetime = LATER) -> list[str]:
    lines: list[str] = []
    await archive_conversation(store, talk, before, lines.extend)
    return lines


async def test_the_whole_log_is_proved_with_the_archive_and_the_rest_of_it_without(
    store: Store, clock: FakeClock
) -> None:
    talk = await talk_for_long(store, clock)
    whole = await talk.verify()
    lines = await archived(store, talk)
    events = [json.loads(line) for line in lines if json.loads(line)["kind"] == "event"]
    left = await talk.verify()
    assert left.archived == len(events) == events[-1]["row"]["n"]
    assert left.events == whole.events - len(events) + 2  # one says that a request is gone, one that they were archived
    assert [event.kind for event in await talk.audit()][-1] == "archive"
    again = await talk.verify(archive=lines)
    assert (again.events, again.archived, again.turns) == (whole.events + 2, 0, whole.turns)
    assert again.tip == left.tip


async def test_what_is_archived_later_follows_what_was_archived_first(store: Store, clock: FakeClock) -> None:
    talk = await talk_for_long(store, clock)
    lines = await archived(store, talk)
    clock.advance(DAYS)
    await talk.append("user", "Still here.")
    more = await archived(store, talk, LATER + timedelta(days=50))
    assert (await talk.verify()).archived > 0
    assert (await talk.verify(archive=[*lines, *more, *lines])).archived == 0
    first = [line for line in lines if json.loads(line)["kind"] == "event"]
    assert (await talk.verify(archive=more)).archived == len(first)


async def test_requests_are_archived_without_what_they_quote(store: Store, clock: FakeClock) -> None:
    talk = await talk_for_long(store, clock)
    lines = await archived(store, talk)
    assert await talk.requests() == []
    (request,) = [json.loads(line) for line in lines if json.loads(line)["kind"] == "request"]
    assert (request["row"]["id"], request["row"]["model"]) == ("r1", "m")
    assert not any("words" in line or "cat" in line for line in lines)


async def test_archiving_does_not_make_a_conversation_a_recent_one(store: Store, clock: FakeClock) -> None:
    talk = await talk_for_long(store, clock)
    updated = (await store.get(talk.id)).info.updated
    clock.advance(DAYS)
    await archived(store, talk)
    assert (await store.get(talk.id)).info.updated - updated <= timedelta(microseconds=1)


async def test_nothing_old_means_nothing_archived(store: Store, clock: FakeClock) -> None:
    talk = await talk_for_long(store, clock)
    before = await talk.audit()
    assert await archived(store, talk, START - timedelta(days=1)) == []
    assert await talk.audit() == before


async def test_an_archive_that_was_changed_is_noticed(store: Store, clock: FakeClock) -> None:
    talk = await talk_for_long(store, clock)
    lines = await archived(store, talk)
    changed = [line.replace('"actor":"assistant"', '"actor":"mallory"') for line in lines]
    with pytest.raises(VerificationFailed, match="it was changed"):
        await talk.verify(archive=changed)
    with pytest.raises(VerificationFailed, match="event 1 is missing"):
        await talk.verify(archive=lines[1:])
    with pytest.raises(InvalidInput, match="archive"):
        await talk.verify(archive=["no archive"])


async def test_only_an_admin_archives_and_only_through_an_event_of_the_log(store: Store, clock: FakeClock) -> None:
    talk = await talk_for_long(store, clock)
    user = store.scoped(Scope.of("default", "ada"))
    with pytest.raises(PermissionDenied):
        await archived(user, talk)
    tip = Tip(conversation=talk.id, n=2, hash="00" * 32)
    with pytest.raises(InvalidInput, match="through"):
        await engine_of(store).archive_log(store.scope, tip, 0)


async def test_a_conversation_goes_on_and_moves_after_its_log_was_archived(
    store: Store, clock: FakeClock, tmp_path: Path
) -> None:
    talk = await talk_for_long(store, clock)
    lines = await archived(store, talk)
    await talk.append("user", "On we go.")
    exported = [line async for line in export_lines(talk)]
    async with palaver.open(f"sqlite:///{tmp_path}/other.db", embedder=None, worker=False) as other:
        moved = await import_dump(other, next(read_dumps(exported)))
        assert moved is not None
        assert (await moved.verify()).archived > 0
        assert (await moved.verify(archive=lines)).archived == 0
