"""Retention, time to live and the sweep: what each really keeps."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import palaver
from palaver import Conversation, Store
from palaver.core.turn_draft import TurnDraft, content_hash
from palaver.errors import ConversationGone, InvalidInput, TurnGone
from palaver.testing import FakeClock
from tests.support.memory import spans, talk_on, traces, url

pytestmark = [pytest.mark.both_engines, pytest.mark.usefixtures("engine")]

SAID = "We decided that project Quetzal{n} begins on day {n}."


async def stubs(talk: Conversation) -> list[dict[str, object]]:
    found = [record.row async for page in talk.records() for record in page if record.kind == "turn"]
    return [row for row in found if row["status"] == "forgotten"]


async def test_full_keeps_the_words_when_they_are_summarised(store: Store) -> None:
    talk = await store.conversation(settings={"retention": "full"})
    turns = await talk_on(talk, 60, SAID)
    await store.settle()
    assert await talk.summaries()
    assert await talk.history(limit=100) == turns
    await talk.verify()


@pytest.mark.parametrize("kind", ["audit-only", "ephemeral"])
async def test_what_is_summarised_loses_its_words_and_the_summary_stands_for_it(
    tmp_path: Path, store: Store, kind: str
) -> None:
    talk = await store.conversation(settings={"retention": kind})
    turns = await talk_on(talk, 60, SAID)
    rare = await talk.append("user", "xylophone", replaces=turns[3])
    await store.settle()
    ((_, end),) = spans(await talk.summaries())
    assert end == 25
    assert [turn.position for turn in await talk.history(limit=100)] == list(range(25, 60))
    with pytest.raises(TurnGone):
        await talk.turn(rare)
    assert len(await stubs(talk)) == 26, "the version that was replaced goes as well"
    assert traces(tmp_path, "xylophone") == [] or "xylophone" in (await talk.summaries())[0].text
    assert await talk.search("Quetzal3") == []
    await talk.verify()
    await talk_on(talk, 100, SAID)
    await store.settle()
    found = spans(await talk.summaries())
    assert [start for start, _ in found] == [0, *(end for _, end in found[:-1])]
    await talk.verify()


async def test_audit_only_can_still_prove_a_copy_and_ephemeral_cannot(store: Store) -> None:
    for kind, provable in (("audit-only", True), ("ephemeral", False)):
        talk = await store.conversation(settings={"retention": kind})
        copy = (await talk_on(talk, 60, SAID))[0]
        await store.settle()
        (stub,) = [row for row in await stubs(talk) if row["id"] == copy.id]
        assert stub["content"] is None
        assert (stub["salt"] is not None) is provable
        if provable:
            fields = {"role": "user", "actor": copy.actor, "content": copy.text, "token_count": copy.token_count}
            draft = TurnDraft(id=copy.id, salt=stub["salt"], **fields)  # type: ignore[arg-type]
            assert content_hash(copy.id, draft, stub["created"]) == stub["content_hash"]  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["audit-only", "ephemeral"])
async def test_forgetting_a_retired_turn_takes_its_summary_its_notes_and_its_proof(
    tmp_path: Path, store: Store, kind: str
) -> None:
    talk = await store.conversation(settings={"retention": kind, "facts": True})
    secret = await talk.append("user", "We decided to hire Zebulonius. I live in Zebulonia.")
    await talk_on(talk, 60, SAID)
    await store.settle()
    assert traces(tmp_path, "Zebuloni")
    await talk.forget(secret)
    await store.settle()
    assert traces(tmp_path, "Zebuloni") == []
    assert await talk.facts() == []
    assert all(row["salt"] is None for row in await stubs(talk) if row["id"] == secret.id)
    before = await talk.summaries()
    await talk.forget(secret)  # again: nothing to do
    await store.settle()
    assert await talk.summaries() == before
    await talk.verify()


async def test_everything_can_be_summarised_and_the_thread_goes_on_from_its_end(store: Store) -> None:
    talk = await store.conversation(settings={"retention": "ephemeral"})
    turns = await talk_on(talk, 10, SAID)
    await talk.compact(keep_tokens=0)
    assert len(await talk.history(limit=100)) == 1
    turn = await talk.append("user", "And then?")
    assert turn.position == turns[-1].position + 1
    await talk.verify()


async def test_a_reset_takes_the_proof_of_retired_turns_with_it(store: Store) -> None:
    talk = await store.conversation(settings={"retention": "audit-only"})
    await talk_on(talk, 60, SAID)
    await store.settle()
    await talk.reset()
    assert all(row["salt"] is None for row in await stubs(talk))
    await talk.verify()


# ---- time ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(datetime(2026, 5, 1, tzinfo=UTC), tick=0.001)


async def test_a_sweep_forgets_turns_that_are_older_than_it_is_told_and_no_others(
    tmp_path: Path, clock: FakeClock
) -> None:
    async with palaver.open(url(tmp_path), embedder=None, worker=False, clock=clock) as store:
        talk = await store.conversation()
        await talk_on(talk, 300, "Oldquetzal number {n} was a fine bird.")
        await store.settle()
        clock.advance(3_600)
        young = await talk_on(talk, 20)
        assert (await store.sweep()).turns == 0, "off unless it is asked for"
        swept = await store.sweep(retention_minutes=30)
        assert swept.turns == 300
        await store.settle()
        assert await talk.history(limit=1_000) == young
        assert await talk.summaries() == []
        assert traces(tmp_path, "Oldquetzal") == []
        await talk.verify()
        await talk_on(talk, 60)
        await store.settle()
        assert spans(await talk.summaries()), "and compaction goes on"


@pytest.mark.costly
@pytest.mark.parametrize("kind", ["audit-only", "ephemeral"])
async def test_a_sweep_also_takes_what_summaries_say_of_retired_turns(
    tmp_path: Path, clock: FakeClock, kind: str
) -> None:
    async with palaver.open(url(tmp_path), embedder=None, worker=False, clock=clock) as store:
        talk = await store.conversation(settings={"retention": kind, "facts": True})
        await talk.append("user", "I live in Oldquetzalia.")
        await talk_on(talk, 400, "We decided that Oldquetzal number {n} is a fine bird.")
        await store.settle()
        assert traces(tmp_path, "Oldquetzal")
        clock.advance(3_600)
        await talk_on(talk, 20)
        await store.sweep(retention_minutes=30)
        await store.settle()
        assert traces(tmp_path, "Oldquetzal") == []
        assert await talk.summaries() == []
        assert await talk.facts() == []
        assert len(await talk.history(limit=100)) == 20
        await talk.verify()
        assert (await store.sweep(retention_minutes=30)).turns == 0


async def test_several_sweeps_at_once_do_it_once(tmp_path: Path, clock: FakeClock) -> None:
    async with (
        palaver.open(url(tmp_path), embedder=None, worker=False, clock=clock) as one,
        palaver.open(url(tmp_path), embedder=None, worker=False, clock=clock) as two,
    ):
        talk = await one.conversation("old")
        await talk_on(talk, 500)
        await one.conversation("brief", ttl=60)
        clock.advance(3_600)
        swept = await asyncio.gather(*(store.sweep(retention_minutes=5) for store in (one, two, one, two)))
        assert sum(one.turns for one in swept) == 500
        assert sum(len(one.conversations) for one in swept) == 1
        assert await talk.history() == []
        await talk.verify()


async def test_a_conversation_ends_with_its_time_to_live(tmp_path: Path, clock: FakeClock) -> None:
    async with palaver.open(url(tmp_path), embedder=None, worker=False, clock=clock) as store:
        talk = await store.conversation(ttl=600, settings={"facts": True})
        await talk_on(talk, 100, SAID)
        await store.settle()
        clock.advance(601)
        with pytest.raises(ConversationGone):
            await talk.summaries()
        await store.settle()  # a job of an expired conversation does no harm
        assert (await store.sweep()).conversations == (talk.id,)
        await store.settle()
        assert traces(tmp_path, "Quetzal") == []


@pytest.mark.parametrize("minutes", [0, -5, float("inf"), float("nan"), "30", True])
async def test_a_retention_that_means_nothing_is_refused(store: Store, minutes: float) -> None:
    talk = await store.conversation()
    await talk.append("user", "Keep me.", created=datetime.now(UTC) - timedelta(days=365))
    with pytest.raises(InvalidInput):
        await store.sweep(retention_minutes=minutes)
    assert len(await talk.history()) == 1


async def test_the_store_can_sweep_by_itself(tmp_path: Path) -> None:
    async with palaver.open(
        url(tmp_path), embedder=None, sweep_every=0.01, retention_minutes=60, worker=False
    ) as store:
        talk = await store.conversation()
        async for event in talk.subscribe():
            if event.kind == "create":
                await talk.append("user", "Long ago.", created=datetime.now(UTC) - timedelta(days=1))
            if event.kind == "forget":
                break
        assert await talk.history() == []
