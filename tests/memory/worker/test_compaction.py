"""Compaction: what is summarised when, by whom, and that it is never done twice."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import palaver
from palaver import Store, Summary, Turn
from palaver.conversations.internals import worker_of
from palaver.errors import InvalidInput
from palaver.memory.compaction import FAN_OUT, SUMMARY_TOKENS
from tests.support.memory import Broken, Gate, Stuck, Watched, spans, talk_on, url

pytestmark = [pytest.mark.both_engines, pytest.mark.usefixtures("engine")]

LONG = "This sentence has about ten tokens in it, more or less. " * 80


# ---- when ----------------------------------------------------------------------------------------------------------


async def test_fifty_turns_are_the_trigger_and_the_older_half_is_summarised(store: Store) -> None:
    talk = await store.conversation()
    await talk_on(talk, 49)
    await store.settle()
    assert await talk.summaries() == []
    await talk_on(talk, 1)
    await store.settle()
    assert spans(await talk.summaries()) == [(0, 25)]


async def test_eight_thousand_tokens_are_the_other_trigger(store: Store) -> None:
    talk = await store.conversation()
    turns = await talk_on(talk, 7, LONG)
    await store.settle()
    assert sum(turn.token_count for turn in turns) < 8_000
    assert await talk.summaries() == []
    turns += await talk_on(talk, 1, LONG)
    assert sum(turn.token_count for turn in turns) >= 8_000
    await store.settle()
    assert spans(await talk.summaries()) == [(0, 4)]


async def test_spans_follow_one_another_without_a_gap_and_the_turns_stay(store: Store) -> None:
    talk = await store.conversation()
    turns = await talk_on(talk, 333)
    await store.settle()
    found = spans(await talk.summaries())
    assert [start for start, _ in found] == [0, *(end for _, end in found[:-1])]
    assert 333 - found[-1][1] < 50
    assert await talk.history(limit=1_000) == turns
    assert sum(one.turns for one in await talk.summaries() if one.level == 0) == found[-1][1]
    await talk.verify()


async def test_a_pending_turn_is_never_passed(store: Store) -> None:
    talk = await store.conversation()
    await talk_on(talk, 60)
    pending = await talk.append_open("assistant")
    await talk_on(talk, 200)
    await store.settle()
    assert max(end for _, end in spans(await talk.summaries())) <= 60
    await talk.append_chunk(pending, 0, "Here I am.")
    await talk.append_commit(pending)
    await store.settle()
    assert max(end for _, end in spans(await talk.summaries())) > 60


async def test_a_budget_that_the_tail_outgrows_is_a_trigger_as_well(store: Store) -> None:
    talk = await store.conversation()
    await talk_on(talk, 40, "Something of a certain length is said here, and it takes some tokens to say. " * 2)
    await store.settle()
    assert await talk.summaries() == []
    ctx = await talk.build_context(600)
    assert ctx.explain().coverage.not_covered == 0, "until there is a summary, rules write one for each prompt"
    await store.settle()
    assert await talk.summaries()
    ctx = await talk.build_context(600)
    assert ctx.explain().coverage.not_covered == 0


async def test_a_tool_round_is_in_one_summary_however_long_it_is(store: Store) -> None:
    talk = await store.conversation()
    await talk.append("user", "Look at all of them.")
    calls = [{"id": f"c{n}", "name": "look", "arguments": {}} for n in range(60)]
    await talk.append("assistant", "", tool_calls=calls)
    for n in range(60):
        await talk.append("tool", "", tool_results=[{"id": f"c{n}", "content": f"result {n}"}])
    await talk.append("assistant", "There are sixty.")
    await talk_on(talk, 60)
    await store.settle()
    assert all(not 1 < edge < 62 for span in spans(await talk.summaries()) for edge in span)
    assert spans(await talk.summaries())[-1][1] > 62


# ---- strategies and settings ---------------------------------------------------------------------------------------


async def test_hierarchical_is_the_default_and_keeps_the_number_of_summaries_small(store: Store) -> None:
    talk = await store.conversation()
    await talk_on(talk, 25 * FAN_OUT * 2 + 40)
    await store.settle()
    found = await talk.summaries()
    assert spans(found, 1) == [(0, 25 * FAN_OUT), (25 * FAN_OUT, 50 * FAN_OUT)]
    assert len(spans(found)) >= 2 * FAN_OUT


async def test_rolling_is_one_summary_of_everything_so_far(store: Store) -> None:
    talk = await store.conversation(settings={"compaction": {"strategy": "rolling"}})
    await talk_on(talk, 300)
    await store.settle()
    found = await talk.summaries()
    assert spans(found, 1) == [(0, spans(found)[-1][1])]
    shown = [one for one in await talk.history(limit=1_000, include_summaries=True) if isinstance(one, palaver.Summary)]
    assert spans(shown, 1) == spans(found, 1)
    assert len(shown) == 1


async def test_never_is_never_and_asks_for_nothing(store: Store) -> None:
    talk = await store.conversation(settings={"compaction": {"strategy": "never"}})
    await talk_on(talk, 300)
    await store.settle()
    await talk.build_context(300)
    assert (await store.stats()).storage["outbox"] == []
    assert await talk.compact() == 0
    assert await talk.summaries() == []


async def test_each_conversation_has_its_own_triggers(store: Store) -> None:
    early = await store.conversation("early", settings={"compaction": {"trigger_turns": 10}})
    heavy = await store.conversation("heavy", settings={"compaction": {"trigger_tokens": 100}})
    late = await store.conversation("late", settings={"compaction": {"trigger_turns": 1_000}})
    for talk in (early, heavy, late):
        await talk_on(talk, 12, "A few words, and then some.")
    await talk_on(late, 200)
    await heavy.append("user", LONG)
    await store.settle()
    assert spans(await early.summaries())
    assert spans(await heavy.summaries())
    assert await late.summaries() == []


@pytest.mark.costly
async def test_triggers_may_be_far_apart(store: Store) -> None:
    """More may wait than compaction reads at first."""
    rare = await store.conversation(settings={"compaction": {"trigger_turns": 1_000_000, "trigger_tokens": 80_000}})
    await talk_on(rare, 500, "Turn {n}. " + "A hundred words of it, or so. " * 14)
    await store.settle()
    assert (await rare.refresh()).token_count < 80_000
    assert await rare.summaries() == []
    await talk_on(rare, 300, "Turn {n}. " + "A hundred words of it, or so. " * 14)
    await store.settle()
    assert (await rare.refresh()).token_count > 80_000
    assert spans(await rare.summaries())


@pytest.mark.parametrize(
    "settings",
    [
        {"compaction": "often"},
        {"compaction": {"trigger_turns": 0}},
        {"compaction": {"trigger_tokens": 2**63}},
        {"compaction": {"trigger_turns": True}},
        {"compaction": {"trigger_tokens": "8000"}},
        {"compaction": {"trigger_tokens": -1}},
        {"compaction": {"strategy": "sometimes"}},
        {"compaction": {"strategy": ["rolling"]}},
        {"compaction": {"summarizer_model": 7}},
        {"compaction": {"triggers": 3}},
        {"retention": "half"},
        {"retention": None},
        {"facts": "yes"},
        {"redact": 1},
    ],
)
async def test_settings_that_mean_nothing_are_refused(store: Store, settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        await store.conversation(settings=settings)
    talk = await store.conversation("there")
    with pytest.raises(InvalidInput):
        await talk.update(settings=settings)


# ---- edits ---------------------------------------------------------------------------------------------------------


async def test_an_edit_rebuilds_the_span_it_is_in_and_no_other(tmp_path: Path) -> None:
    writer = Watched()
    async with palaver.open(url(tmp_path), embedder=None, worker=False, summarizer=writer) as store:
        talk = await store.conversation()
        turns = await talk_on(talk, 400)
        await store.settle()
        before = {one.id: one for one in await talk.summaries()}
        writer.read.clear()
        writer.merged.clear()
        new = await talk.append("user", "the second version", replaces=turns[50])
        assert all(one.from_seq > 50 or one.through_seq <= 50 for one in await talk.summaries())
        await store.settle()
        after = {one.id: one for one in await talk.summaries()}
        changed = [one for one in after.values() if one.id not in before]
        assert {(one.level, one.from_seq, one.through_seq) for one in changed} == {
            (one.level, one.from_seq, one.through_seq) for one in before.values() if one.id not in after
        }
        assert writer.read == [(50, 75)]
        assert writer.merged == [FAN_OUT]
        assert all(one.from_seq <= 50 < one.through_seq for one in changed)
        assert any("the second version" in one.text for one in changed)
        assert (await talk.turn(new)).position == 50


async def test_an_edit_behind_the_summaries_rebuilds_nothing(tmp_path: Path) -> None:
    writer = Watched()
    async with palaver.open(url(tmp_path), embedder=None, worker=False, summarizer=writer) as store:
        talk = await store.conversation()
        turns = await talk_on(talk, 60)
        await store.settle()
        before = await talk.summaries()
        calls = len(writer.read)
        await talk.append("user", "another end", replaces=turns[59])
        await store.settle()
        assert (await talk.summaries(), len(writer.read)) == (before, calls)


async def test_discarding_what_followed_discards_its_summaries_and_they_come_again(store: Store) -> None:
    talk = await store.conversation()
    turns = await talk_on(talk, 200)
    await store.settle()
    kept = [one for one in await talk.summaries() if one.through_seq <= 60]
    await talk.append("user", "let us start again from here", replaces=turns[60], discard_after=True)
    assert await talk.summaries() == kept
    await store.settle()
    await talk_on(talk, 60)
    await store.settle()
    found = spans(await talk.summaries())
    assert [start for start, _ in found] == [0, *(end for _, end in found[:-1])]


async def test_what_changes_while_it_is_being_summarised_is_not_in_the_summary(tmp_path: Path) -> None:
    gate = Gate()
    async with palaver.open(url(tmp_path), embedder=None, summarizer=gate) as store:
        talk = await store.conversation()
        turns = await talk_on(talk, 60, "zebra {n}")
        await gate.asked.wait()
        await talk.append("user", "no animal", replaces=turns[4])
        await talk.forget(turns[6])
        gate.open.set()
        await store.settle()
        (summary,) = [one for one in await talk.summaries() if one.level == 0]
        assert "zebra 4 " not in summary.text
        assert "zebra 6 " not in summary.text
        assert "no animal" in summary.text
        assert summary.turns == 25


# ---- failing summarisers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("writer", [Broken(), Stuck()], ids=["broken", "stuck"])
async def test_a_summariser_that_fails_or_hangs_is_stood_in_for_and_the_summary_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, writer: Any
) -> None:
    async with palaver.open(url(tmp_path), embedder=None, worker=False, summarizer=writer) as store:
        worker_of(store).model_seconds = 0.01
        talk = await store.conversation()
        await talk_on(talk, 25 * FAN_OUT + 50, "We decided to paint door number {n} green.")
        await store.settle()
        found = await talk.summaries()
        assert {one.level for one in found} == {0, 1}
        assert all(one.text and f"in place of {writer.name}" in one.model for one in found)
        assert (await store.stats()).storage["outbox"] == []
    logged = [record.getMessage() for record in caplog.records if record.name == "palaver.worker"]
    assert any(f"summarizer {writer.name} failed" in one and talk.id in one for one in logged)
    assert "paint" not in "".join(logged), "types and ids, never content"


class Says:
    """A summariser with the same words for everything."""

    name = "says"

    def __init__(self, words: Any) -> None:
        self.words = words

    async def summarize(self, turns: Sequence[Turn], budget: int) -> str:
        return self.words  # type: ignore[no-any-return]

    async def merge(self, summaries: Sequence[Summary], budget: int) -> str:
        return self.words  # type: ignore[no-any-return]


@pytest.mark.parametrize("words", ["", " \n", None, {"summary": "doors"}], ids=repr)
async def test_a_summariser_that_says_nothing_is_stood_in_for(tmp_path: Path, words: Any) -> None:
    async with palaver.open(url(tmp_path), embedder=None, worker=False, summarizer=Says(words)) as store:
        talk = await store.conversation()
        await talk_on(talk, 50, "We decided to paint door number {n} green.")
        await talk.summarize()
        (summary,) = await talk.summaries()
        assert "green" in summary.text
        assert "in place of says" in summary.model


async def test_a_summary_that_is_too_long_or_cannot_be_stored_is_cut_and_cleaned(tmp_path: Path) -> None:
    said = Says("Doors\0 are green. " * 10_000)
    async with palaver.open(url(tmp_path), embedder=None, worker=False, summarizer=said) as store:
        talk = await store.conversation()
        await talk_on(talk, 50)
        await talk.summarize()
        (summary,) = await talk.summaries()
        assert (summary.model, summary.text[:6]) == ("says", "Doors\ufffd")
        assert summary.token_count <= SUMMARY_TOKENS


async def test_a_chat_goes_on_while_a_summariser_hangs(tmp_path: Path) -> None:
    async with palaver.open(url(tmp_path), embedder=None, summarizer=Stuck()) as store:
        talk = await store.conversation()
        await talk_on(talk, 100)
        ctx = await talk.build_context(500)
        assert ctx.tokens <= 500
        await talk.append("user", "Are you there?")
        assert "Are you there?" in (await talk.build_context(500)).text


# ---- by hand -------------------------------------------------------------------------------------------------------


async def test_summarize_does_it_before_it_is_due(store: Store) -> None:
    talk = await store.conversation()
    await talk_on(talk, 10)
    assert spans(await talk.summarize()) == [(0, 5)]
    assert spans(await talk.summarize()) == [(0, 5), (5, 7)]


async def test_compacting_again_changes_nothing(tmp_path: Path) -> None:
    writer = Watched()
    async with palaver.open(url(tmp_path), embedder=None, worker=False, summarizer=writer) as store:
        talk = await store.conversation()
        await talk_on(talk, 500)
        await store.settle()
        found, calls = await talk.summaries(), len(writer.read)
        assert await talk.compact() == 0
        await store.settle()
        assert (await talk.summaries(), len(writer.read)) == (found, calls)
        assert len(set(writer.read)) == calls
