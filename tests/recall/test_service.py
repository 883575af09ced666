"""`recall`: who may find what, in which conversations, by which words."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import palaver
from palaver import Conversation, Scope, Store
from palaver.conversations.internals import components_of, engine_of
from palaver.engines.sqlite.engine import SQLiteEngine
from palaver.errors import InvalidInput, ModelUnavailable
from palaver.ports.ranking import RankingStore
from palaver.ports.recall import ProfileRows, RecallScope
from palaver.recall import ranking
from palaver.recall.scoring import Scores
from palaver.recall.service import RecallLimits
from palaver.testing import HashEmbedder
from tests.support.memory import talk_on, url

pytestmark = [pytest.mark.both_engines, pytest.mark.usefixtures("engine")]

PEANUTS = "I am allergic to peanuts and hazelnuts."


async def said(talk: Conversation, query: str, **options: object) -> list[str]:
    return [hit.turn.text for hit in await talk.recall(query, **options) if hit.turn is not None]  # type: ignore[arg-type]


@pytest.fixture(params=[None, HashEmbedder()], ids=["words", "words and vectors"])
async def both(request: pytest.FixtureRequest, tmp_path: Path):
    async with palaver.open(url(tmp_path), embedder=request.param, worker=False) as store:
        yield store


async def test_it_finds_what_was_said_long_ago(both: Store) -> None:
    talk = await both.conversation()
    await talk.append("user", PEANUTS)
    await talk_on(talk, 300)
    await both.settle()
    hits = await talk.recall("which nuts: peanuts?", k=3)
    assert hits[0].turn is not None
    assert hits[0].turn.text == PEANUTS
    assert len(hits) == 3
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert sum(hits[0].parts.values()) == pytest.approx(hits[0].score, abs=0.01)


async def test_await_and_async_for_give_the_same(both: Store) -> None:
    talk = await both.conversation()
    await talk_on(talk, 30)
    recall = talk.recall("turn 7", k=5)
    assert [hit async for hit in talk.recall("turn 7", k=5)] == await recall == await recall


async def test_nothing_is_left_hanging_when_a_recall_is_not_awaited(both: Store) -> None:
    talk = await both.conversation()
    talk.recall("whatever")  # a coroutine that is never awaited would be a warning, and warnings are errors here


async def test_turns_that_are_not_embedded_yet_are_found_by_their_words(tmp_path: Path) -> None:
    async with palaver.open(url(tmp_path), embedder=HashEmbedder(), worker=False) as store:
        talk = await store.conversation()
        await talk_on(talk, 30)
        await store.settle()
        await said(talk, "warm up")
        await talk.append("user", PEANUTS)
        assert (await said(talk, "peanuts"))[0] == PEANUTS


async def test_a_recall_ranks_what_was_there_when_it_looked(both: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others may learn of newer turns while its scores are still being made."""
    talk = await both.conversation()
    await talk.append("user", PEANUTS)
    await talk_on(talk, 30)
    await both.settle()
    await said(talk, "warm up")
    at_it, go_on = threading.Event(), threading.Event()

    def slowly(*args: Any, **options: Any) -> Scores:
        at_it.set()
        assert go_on.wait(20)
        return score(*args, **options)

    score = ranking.score
    monkeypatch.setattr(ranking, "score", slowly)
    early = asyncio.create_task(said(talk, "peanuts", k=50))
    assert await asyncio.to_thread(at_it.wait, 20)
    monkeypatch.setattr(ranking, "score", score)
    await talk.append("user", "Peanuts, again.")
    assert "Peanuts, again." in await said(talk, "peanuts")
    go_on.set()
    assert PEANUTS in await early
    assert "Peanuts, again." not in await early


async def test_what_is_forgotten_and_what_comes_then_keep_their_own_vectors(tmp_path: Path) -> None:
    """A number is given out again: the vector that stood for it before must not speak for the newcomer."""
    async with palaver.open(url(tmp_path), embedder=HashEmbedder(), worker=False) as store:
        talk = await store.conversation("x")
        await talk_on(talk, 30)
        last = await talk.append("user", PEANUTS)
        await store.settle()
        asked = "allergic to peanuts and hazelnuts"
        assert (await said(talk, asked))[0] == PEANUTS
        await talk.forget(last)
        await talk.append("user", "The train leaves at nine.")
        await store.settle()
        (new,) = [hit for hit in await talk.recall(asked, k=50) if hit.turn and hit.turn.text.startswith("The train")]
        async with palaver.open(url(tmp_path), embedder=HashEmbedder(), worker=False) as other:
            again = await (await other.conversation("x")).recall(asked, k=50)
        (fresh,) = [hit for hit in again if hit.turn and hit.turn.text.startswith("The train")]
        assert new.parts == pytest.approx(fresh.parts, abs=1e-3)


@pytest.mark.sqlite_file
async def test_edits_do_not_pile_up_in_what_is_remembered(tmp_path: Path) -> None:
    async with palaver.open(url(tmp_path), embedder=HashEmbedder(), worker=False) as store:
        talk = await store.conversation()
        await talk_on(talk, 5)
        await store.settle()
        last = await talk.append("user", PEANUTS)
        for n in range(10):
            last = await talk.append("user", f"{PEANUTS} {n}", replaces=last)
            await said(talk, "peanuts")
        (vectors,) = components_of(store).contexts.recall._vectors.values()
        assert [len(block.tids) for block in vectors.blocks] == [5]


async def test_a_stream_that_is_being_written_hides_nothing_that_came_after_it(both: Store) -> None:
    talk = await both.conversation()
    await talk_on(talk, 4)
    await said(talk, "warm up")
    pending = await talk.append_open("assistant")
    await talk.append_chunk(pending, 0, "Cashews, ")
    await talk.append("user", PEANUTS)
    assert (await said(talk, "peanuts"))[0] == PEANUTS
    assert not await said(talk, "cashews", threshold=0.2)
    await talk.append_chunk(pending, 1, "perhaps.")
    await talk.append_commit(pending)
    assert "Cashews, perhaps." in await said(talk, "cashews", k=2)
    assert sorted(await said(talk, "peanuts cashews", k=100)) == sorted(
        turn.text for turn in await talk.history(limit=100)
    ), "and each of them once"


async def test_k_and_threshold(both: Store) -> None:
    talk = await both.conversation()
    await talk_on(talk, 30)
    await talk.append("user", PEANUTS)
    assert await said(talk, "peanuts", k=0) == []
    assert len(await said(talk, "peanuts", k=7)) == 7
    assert await said(talk, "allergic peanuts hazelnuts", threshold=0.6) == [PEANUTS]
    assert await said(talk, "peanuts", threshold=100) == []
    assert await said(talk, "   ") == []
    for bad in (
        {"k": -1},
        {"k": "3"},
        {"threshold": "high"},
        {"threshold": 10**400},
        {"scope": "world"},
        {"since": "soon"},
    ):
        with pytest.raises(InvalidInput):
            talk.recall("peanuts", **bad)  # type: ignore[arg-type]


async def test_time_filters_hold_for_turns_and_facts(both: Store) -> None:
    talk = await both.conversation()
    start = datetime(2026, 3, 1, tzinfo=UTC)
    for day in range(10):
        await talk.append("user", f"On day {day} I live in Town{day}.", created=start + timedelta(days=day))
    await talk.extract_facts()
    since, until = start + timedelta(days=3), start + timedelta(days=5)
    assert sorted(await said(talk, "day live town", since=since, until=until)) == [
        "On day 3 I live in Town3.",
        "On day 4 I live in Town4.",
    ]
    hits = await talk.recall("live", since=since, until=until)
    assert all(hit.fact is None or since <= hit.fact.valid_from < until for hit in hits)


async def test_facts_and_turns_come_in_one_list(both: Store) -> None:
    talk = await both.conversation()
    await talk.append("user", "I live in Lisbon.")
    await talk_on(talk, 20)
    await talk.extract_facts()
    hits = await talk.recall("who lives in Lisbon?", k=5)
    assert {hit.fact is None for hit in hits} == {True, False}
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert all(hit.fact is None for hit in await talk.recall("Lisbon", include_facts=False))


async def test_scopes_widen_from_the_conversation_to_its_owner_to_the_tenant(both: Store) -> None:
    here = await both.conversation("here", owner="ada")
    hers = await both.conversation("hers", owner="ada")
    his = await both.conversation("his", owner="bob")
    for talk, text in ((here, "llamas eat grass"), (hers, "llamas eat hay"), (his, "llamas eat corn")):
        await talk.append("user", text)
    assert sorted(await said(here, "llamas")) == ["llamas eat grass"]
    assert sorted(await said(here, "llamas", scope="owner")) == ["llamas eat grass", "llamas eat hay"]
    assert len(await said(here, "llamas", scope="tenant")) == 3
    ada = both.scoped(Scope.of("default", "ada"))
    assert len(await said(await ada.get(here.id), "llamas", scope="tenant")) == 2, "ada cannot see bob's"
    ctx = await here.build_context(2_000, query="hay", recall_scope="owner")
    assert "llamas eat hay" in ctx.text
    assert "llamas eat corn" not in ctx.text


async def test_facts_follow_the_scope(both: Store) -> None:
    here, there = await both.conversation("here"), await both.conversation("there")
    await there.append("user", "I live in Lisbon.")
    await there.extract_facts()
    assert not [hit for hit in await here.recall("Lisbon") if hit.fact]
    assert [hit.fact.object for hit in await here.recall("Lisbon", scope="tenant") if hit.fact] == ["Lisbon"]


async def test_another_tenant_never_appears_also_where_numbers_are_given_out_again(tmp_path: Path) -> None:
    async with palaver.open(url(tmp_path), tenant="acme", embedder=HashEmbedder(), worker=False) as acme:
        rival = acme.scoped(Scope.of("rival", None))
        for n in range(12):
            mine, theirs = await acme.conversation(f"m{n}"), await rival.conversation(f"t{n}")
            await mine.append("user", f"our secret llama {n}")
            await theirs.append("user", f"their secret llama {n}")
            await acme.settle()
            for talk, word in ((mine, "our"), (theirs, "their")):
                for scope in ("conversation", "owner", "tenant"):
                    found = await said(talk, "secret llama", scope=scope, k=50)
                    assert found
                    assert all(text.startswith(word) for text in found)
            if n % 3 == 0:
                await mine.forget()  # the next turn in this file takes its number
            elif n % 3 == 1:
                await theirs.forget()


async def test_what_was_deleted_and_replaced_by_as_much_is_noticed(both: Store) -> None:
    for n in range(6):
        talk = await both.conversation()
        await talk.append("user", f"number{n} alpha beta")
        assert (await said(talk, "alpha", scope="tenant")) == [f"number{n} alpha beta"]
        await talk.forget()


async def test_recalls_at_the_same_time_do_not_disturb_one_another(both: Store) -> None:
    talks = [await both.conversation(f"c{n}") for n in range(4)]
    for n, talk in enumerate(talks):
        await talk.append("user", f"animal{n} lives here")
    found = await asyncio.gather(*(said(talk, f"animal{n}") for n, talk in enumerate(talks) for _ in range(5)))
    assert found == [[f"animal{n} lives here"] for n in range(4) for _ in range(5)]


async def test_explain_says_by_what_means_it_looked(tmp_path: Path) -> None:
    for embedder, told in ((None, "no embedder"), (HashEmbedder(), "hash-32")):
        async with palaver.open(url(tmp_path), embedder=embedder, worker=False) as store:
            talk = await store.conversation("t")
            await talk.append("user", PEANUTS)
            explanation = (await talk.build_context(1_000)).explain()
            assert told in explanation.recall
            assert told in str(explanation)


async def test_recall_goes_on_when_the_last_vector_is_gone(tmp_path: Path) -> None:
    async with palaver.open(url(tmp_path), embedder=HashEmbedder(), worker=False) as store:
        one, other = await store.conversation("one"), await store.conversation("other")
        await one.append("user", PEANUTS)
        said_last = await other.append("user", "Good evening.")
        await store.settle()
        assert PEANUTS in await said(one, "peanuts", scope="tenant")
        assert await said(other, "evening") == ["Good evening."]
        await other.forget(said_last)
        assert await said(other, "evening") == []
        await one.reset()
        assert await said(one, "peanuts") == []
        assert await said(other, "peanuts", scope="tenant") == []
        await one.append("user", "And walnuts.")
        await store.settle()
        assert "And walnuts." in await said(one, "walnuts", scope="tenant")


async def test_many_turns_that_have_no_vector_yet_are_found_by_their_words(tmp_path: Path) -> None:
    async with palaver.open(url(tmp_path), embedder=HashEmbedder(), worker=False) as store:
        components_of(store).contexts.recall.limits = RecallLimits(all_vectors=10)
        talk = await store.conversation("t")
        await talk_on(talk, 30)
        await talk.append("user", PEANUTS)
        assert (await said(talk, "peanuts"))[0] == PEANUTS


async def test_a_new_standing_instruction_is_learned_without_reading_everything_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with palaver.open(url(tmp_path), embedder=None, worker=False) as store:
        talk = await store.conversation("t")
        await talk_on(talk, 60)
        await store.settle()
        recaller, where = components_of(store).contexts.recall, RecallScope(conversation=talk.id)
        told: list[ProfileRows] = []
        profile = engine_of(store).profile

        async def noted(*given: Any) -> ProfileRows:
            told.append(await profile(*given))
            return told[-1]

        monkeypatch.setattr(engine_of(store), "profile", noted)
        before = await recaller.rank(store.scope, where, "soup", 5)
        said = await talk.append("user", "From now on, always answer in French.")
        unmarked = await recaller.rank(store.scope, where, "soup", 5)
        await store.settle()
        marked = await recaller.rank(store.scope, where, "soup", 5)
        again = await recaller.rank(store.scope, where, "soup", 5)
        assert [one.fresh for one in told] == [True, False, False, False]
        assert len(told[0].rows) == 60
        assert all(len(one.rows) < 20 for one in told[1:]), "one engine looks at a few more than are new"
        assert unmarked.standing(60) == before.standing(60), "what somebody has in hand does not change"
        for ranking in (marked, again):
            standing = await recaller.turns(store.scope, ranking, ranking.standing(60))
            assert said.id in [turn.id for turn in standing.values()]


class HalfTheTime(HashEmbedder):
    """Does not answer questions about the weather."""

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        if any("weather" in text for text in texts):
            raise ModelUnavailable(self.name, "the service is down")
        return await super().embed(texts)


async def test_explain_speaks_of_its_own_question_and_of_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with palaver.open(url(tmp_path), embedder=HalfTheTime(), worker=False) as store:
        talk = await store.conversation("t")
        await talk.append("user", PEANUTS)
        recaller = components_of(store).contexts.recall
        found, go_on = asyncio.Event(), asyncio.Event()
        quotes = recaller.quotes

        async def slowly(*given: Any) -> Any:
            found.set()
            await go_on.wait()
            return await quotes(*given)

        monkeypatch.setattr(recaller, "quotes", slowly)
        slow = asyncio.create_task(talk.build_context(1_000, query="Which nuts?"))
        await found.wait()
        monkeypatch.setattr(recaller, "quotes", quotes)
        down = await talk.build_context(1_000, query="How is the weather?")
        go_on.set()
        assert down.explain().recall == "by words alone: hash-32 failed"
        assert (await slow).explain().recall == "by words and meaning (hash-32)"


class Failing(HashEmbedder):
    """One whose client raises an error of its own."""

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        raise RuntimeError("the connection pool is empty")


async def test_whatever_an_embedder_raises_words_are_found(tmp_path: Path) -> None:
    async with palaver.open(url(tmp_path), embedder=Failing(), worker=False) as store:
        talk = await store.conversation("t")
        await talk.append("user", PEANUTS)
        assert [hit.turn.text for hit in await talk.recall("peanuts") if hit.turn] == [PEANUTS]
        ctx = await talk.build_context(1_000, message="Which peanuts?")
        assert ctx.explain().recall == "by words alone: hash-32 failed"


async def test_an_engine_that_cannot_rank_has_all_its_turns_and_vectors_read(both: Store) -> None:
    """The same limits make Postgres rank in the database, which is an optional port that SQLite does not have."""
    components_of(both).contexts.recall.limits = RecallLimits(all_turns=0, all_vectors=0)
    assert isinstance(engine_of(both), RankingStore) is not isinstance(engine_of(both), SQLiteEngine)
    talk = await both.conversation("t")
    await talk.append("user", PEANUTS)
    await both.settle()
    assert await said(talk, "peanuts") == [PEANUTS]
    assert await said(talk, "peanuts", scope="tenant") == [PEANUTS]
