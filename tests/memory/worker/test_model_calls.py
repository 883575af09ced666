"""The daily limit on model calls of background work: imports cost nothing, and use costs no more than the limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import palaver
from palaver import Conversation, Summary, Turn
from palaver.errors import InvalidInput
from palaver.memory.model_calls import CALLS_PER_DAY, is_postponed
from palaver.testing import FakeClock, ScriptedModel
from tests.support.memory import Watched, talk_on, url

pytestmark = [pytest.mark.costly, pytest.mark.both_engines, pytest.mark.usefixtures("engine")]

TURNS = 1_000
DAY = 24 * 3600


class Counting(ScriptedModel):
    """A model that always says the same, as often as it is asked."""

    def __init__(self) -> None:
        super().__init__(["Numbers were decided on."] * 1_000, name="counting")

    @property
    def count(self) -> int:
        return len(self.requests)


def opened(folder: Path, model: Counting, clock: FakeClock, **options: Any) -> Any:
    given = {"model": "counting", "models": {"counting": model}, "embedder": None, "worker": False}
    given["extractor_model"] = "none"  # its calls count like those of summaries
    return palaver.open(url(folder), clock=clock, **{**given, **options})


async def written_by(talk: Conversation) -> list[str]:
    return [one.model for one in await talk.summaries()]


async def test_an_import_calls_no_model_and_says_so(tmp_path: Path) -> None:
    model, clock = Counting(), FakeClock()
    async with opened(tmp_path, model, clock) as store:
        talk = await store.conversation("imported", settings={"facts": True})
        await talk_on(talk, TURNS, "We decided on number {n}.")
        for n in range(60):
            await talk.append("user", f"And then on number {n}.")
        await store.settle()
        assert model.count == 0
        writers = await written_by(talk)
        assert len(writers) > 40
        assert all(one.endswith("(in place of counting: not in use yet)") for one in writers)
        assert all(one.text for one in await talk.summaries())


async def test_use_starts_calls_up_to_the_limit_in_all_processes_of_a_day(tmp_path: Path) -> None:
    model, clock = Counting(), FakeClock()
    async with opened(tmp_path, model, clock) as store:
        talk = await store.conversation("imported")
        await talk_on(talk, TURNS, "We decided on number {n}.")
        await store.settle()
        context = await talk.build_context(2_000)
        assert any("written by rules (not in use yet)" in one for one in context.explain().notes)
        await store.settle()
        assert model.count == CALLS_PER_DAY
        spans = [(one.level, one.from_seq, one.through_seq) for one in await talk.summaries()]
        assert any(one == "counting" for one in await written_by(talk))

    async with opened(tmp_path, model, clock) as store:  # a restart does not begin another count
        talk = await store.find("imported")
        await talk.build_context(2_000)
        await talk_on(talk, 100, "And on {n}.")
        await store.settle()
        assert model.count == CALLS_PER_DAY
        assert (await written_by(talk)).count("counting") == CALLS_PER_DAY
        assert any(one.endswith("(in place of counting: daily limit reached)") for one in await written_by(talk))

        for day in range(2, 6):
            clock.advance(DAY)
            await talk.build_context(2_000)
            await store.settle()
            assert model.count <= CALLS_PER_DAY * day
        assert set(await written_by(talk)) == {"counting"}, "in the end a model has written them all"
        after = [(one.level, one.from_seq, one.through_seq) for one in await talk.summaries()]
        assert set(spans) <= set(after), "the same spans"
        await talk.verify()


async def test_the_newest_turns_are_rewritten_first(tmp_path: Path) -> None:
    model, clock = Counting(), FakeClock()
    async with opened(tmp_path, model, clock, model_calls_per_day=5) as store:
        talk = await store.conversation("imported")
        await talk_on(talk, 400)
        await store.settle()
        before = await talk.summaries()
        await talk.build_context(2_000)
        await store.settle()
        newest = max(one.through_seq for one in before if one.level == 0)
        rewritten = [one for one in await talk.summaries() if not is_postponed(one.model)]
        assert len(rewritten) == 5
        assert max(one.through_seq for one in rewritten) == newest


async def test_a_conversation_with_answers_is_summarised_by_its_model_at_once(tmp_path: Path) -> None:
    model, clock = Counting(), FakeClock()
    async with opened(tmp_path, model, clock) as store:
        talk = await store.conversation("chat")
        for n in range(30):
            await talk.generate(f"What about number {n}?")
            await store.settle()
        assert model.count == 30 + 1 + 1, "the answers, a title and a summary"
        assert await written_by(talk) == ["counting"]


async def test_a_title_counts_and_is_made_by_rules_beyond_the_limit(tmp_path: Path) -> None:
    model, clock = Counting(), FakeClock()
    async with opened(tmp_path, model, clock, model_calls_per_day=0) as store:
        talk = await store.conversation("chat")
        await talk.generate("What do people eat in Asia?")
        await store.settle()
        assert model.count == 1, "the answer"
        assert (await talk.refresh()).title == "What do people eat in Asia?"


async def test_a_conversation_may_have_a_limit_of_its_own(tmp_path: Path) -> None:
    model, clock = Counting(), FakeClock()
    async with opened(tmp_path, model, clock) as store:
        few = await store.conversation("few", settings={"compaction": {"model_calls_per_day": 2}})
        await talk_on(few, 400)
        await store.settle()
        await few.build_context(2_000)
        await store.settle()
        assert model.count == 2
        await few.update(settings={"compaction": {"model_calls_per_day": None}})
        await talk_on(few, 50)
        await store.settle()
        assert not any(is_postponed(one) for one in await written_by(few)), "no limit"
    for wrong in (-1, True, "20", 1.5):
        with pytest.raises(InvalidInput, match="model_calls_per_day"):
            async with opened(tmp_path, model, clock, model_calls_per_day=wrong):
                pass
        async with opened(tmp_path, model, clock) as store:
            with pytest.raises(InvalidInput, match="model_calls_per_day"):
                await store.conversation("x", settings={"compaction": {"model_calls_per_day": wrong}})


async def test_without_a_limit_it_is_as_it_was(tmp_path: Path) -> None:
    model, clock = Counting(), FakeClock()
    async with opened(tmp_path, model, clock, memory={"model_calls_per_day": None}) as store:
        talk = await store.conversation("imported")
        await talk_on(talk, 400)
        await store.settle()
        assert set(await written_by(talk)) == {"counting"}


async def test_what_the_application_asks_for_is_not_limited_and_counts(tmp_path: Path) -> None:
    model, clock = Counting(), FakeClock()
    async with opened(tmp_path, model, clock, model_calls_per_day=3) as store:
        talk = await store.conversation("asked")
        await talk_on(talk, 400)
        await talk.compact(keep_tokens=0)
        assert model.count > 3
        assert set(await written_by(talk)) == {"counting"}
        count = model.count
        await talk_on(talk, 60)
        await talk.build_context(500)
        await store.settle()
        assert model.count == count


async def test_the_rules_summary_of_retired_turns_is_not_written_again(tmp_path: Path) -> None:
    model, clock = Counting(), FakeClock()
    async with opened(tmp_path, model, clock) as store:
        talk = await store.conversation("retired", settings={"retention": "audit-only"})
        await talk_on(talk, 60, "The word is zanzibar, for the {n}. time.")
        await store.settle()
        before = await talk.summaries()
        await talk.build_context(2_000)
        await store.settle()
        assert (await talk.summaries(), model.count) == (before, 0)


# ---- objects of the application ------------------------------------------------------------------------------------


class Proposer:
    """An extractor that counts the turns that it reads."""

    name = "proposer"

    def __init__(self) -> None:
        self.calls = 0
        self.read: set[int] = set()

    async def extract(self, turns: Sequence[Turn], schema: Mapping[str, Any]) -> str:
        self.calls += 1
        self.read.update(turn.position for turn in turns)
        return "{}"


async def test_a_summariser_of_the_application_is_limited_too(tmp_path: Path) -> None:
    writer, model, clock = Watched(), Counting(), FakeClock()
    async with opened(tmp_path, model, clock, summarizer=writer) as store:
        talk = await store.conversation("imported")
        await talk_on(talk, TURNS)
        await store.settle()
        assert len(writer.read) + len(writer.merged) == CALLS_PER_DAY
        assert any(one.endswith("(in place of watched: daily limit reached)") for one in await written_by(talk))
        recorded = await talk.requests(100)
        assert {(one.purpose, one.model, one.adapter) for one in recorded} == {("summarize", "watched", "application")}
        assert len(recorded) == CALLS_PER_DAY
        assert model.count == 0


async def test_an_extractor_is_limited_and_reads_the_rest_on_another_day(tmp_path: Path) -> None:
    extractor, model, clock = Proposer(), Counting(), FakeClock()
    async with opened(tmp_path, model, clock, extractor=extractor) as store:
        talk = await store.conversation("imported", settings={"facts": True})
        await talk_on(talk, TURNS)
        await store.settle()
        assert extractor.calls == CALLS_PER_DAY
        memory = await talk.working_memory()
        assert memory.extractor_failure == "proposer: daily limit reached"
        assert memory.extractor_postponed is not None
        assert len(extractor.read) < memory.through_seq
        assert model.count == 0, "an extraction does not mean that the conversation is in use"
        for _ in range(5):
            clock.advance(DAY)
            await talk.build_context(2_000)
            await store.settle()
        memory = await talk.working_memory()
        assert (memory.extractor_postponed, memory.extractor_failure) == (None, None)
        assert extractor.read >= set(range(memory.through_seq + 1))


class Says:
    """A summariser whose text names itself."""

    name = "says"

    async def summarize(self, turns: Sequence[Turn], budget: int) -> str:
        return "said"

    async def merge(self, summaries: Sequence[Summary], budget: int) -> str:
        return "said again"


async def test_usage_shows_the_calls_of_the_application(tmp_path: Path) -> None:
    model, clock = Counting(), FakeClock()
    async with opened(tmp_path, model, clock, summarizer=Says()) as store:
        talk = await store.conversation("imported")
        await talk_on(talk, 60)
        await store.settle()
        assert [(line.model, line.calls, line.prompt) for line in await store.usage()] == [("says", 1, 0)]
