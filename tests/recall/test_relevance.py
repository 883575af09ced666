"""Relevance: what it rests on, and that a question about something else recalls nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import palaver
from palaver import Conversation, Store
from palaver.context.builder import FLOOR
from palaver.recall.query import parse
from palaver.recall.ranking import Filter
from palaver.recall.relevance import Alikeness, estimate, estimate_single
from palaver.recall.scoring import score
from palaver.testing import HashEmbedder
from tests.recall.test_scoring import JULY, NOW, Turn, lexical, people, profile
from tests.support.memory import talk_on, url

LOCAL = Alikeness(0.2, 0.5, is_known=True)
FILLER = [f"Number {n} was rather ordinary, as such days are." for n in range(60)]


def relevance(
    turns: list[Turn], question: str, cosines: list[float] | None = None, alike: Alikeness = LOCAL
) -> np.ndarray[Any, np.dtype[np.float32]]:
    about = profile(turns)
    query = parse(question, about.actors, NOW)
    words, dense = lexical(turns, query.stems), None if cosines is None else np.array(cosines, np.float32)
    scores = score(about, query, words, dense)
    return estimate(about, query, words, dense, alike, scores, about.searchable)


def near(best: float, rest: float = 0.05) -> list[float]:
    return [best, *[rest] * len(FILLER)]


# ---- signals -------------------------------------------------------------------------------------------------------


def test_a_near_turn_is_relevant_and_a_far_one_is_not() -> None:
    turns = people("My sister moved to Lisbon.", *FILLER)
    close = relevance(turns, "Where does my sibling live now?", near(0.6))
    far = relevance(turns, "Where does my sibling live now?", near(0.15))
    assert close[0] > 0.5 > FLOOR > far[0]
    assert close.argmax() == far.argmax() == 0
    assert FLOOR <= close[2] < close[1], "the next one, and the next of the same person, may belong to it"
    assert close[3:].max() < FLOOR, "the others are as far as any"
    assert 0 <= far.min() <= close.max() <= 1


def test_words_alone_are_enough_without_vectors() -> None:
    turns = people("My sister moved to Lisbon.", *FILLER)
    assert relevance(turns, "When did my sister move to Lisbon?")[0] > 0.9
    assert relevance(turns, "Which database has the best index?").max() < FLOOR


def test_a_turn_with_all_the_words_is_relevant_whatever_its_vector() -> None:
    turns = people("Ticket QX-4711 was closed.", *FILLER)
    assert relevance(turns, "What about ticket QX-4711?", near(0.1))[0] > FLOOR
    assert relevance(turns, "What about ticket ZZ-9999?", near(0.1)).max() < FLOOR


def test_who_names_a_participant_asks_about_the_conversation() -> None:
    turns = people("My sister moved to Lisbon.", *FILLER)
    assert relevance(turns, "What about Ann?", near(0.3))[0] > relevance(turns, "What about Eve?", near(0.3))[0]


def test_an_overview_without_a_topic_is_about_the_conversation() -> None:
    turns = people("My sister moved to Lisbon.", *FILLER)
    assert relevance(turns, "Give me a summary of our conversation.", near(0.0)).max() > 0.9
    assert relevance(turns, "Give me a summary of the French revolution.", near(0.0)).max() < FLOOR


def test_turns_without_a_vector_yet_may_be_found_by_their_words() -> None:
    turns = people("My sister moved to Lisbon.", *FILLER)
    missing = [float("nan")] * 30 + [0.05] * 31
    assert relevance(turns, "When did my sister move to Lisbon?", missing)[0] > 0.5


def test_an_embedder_whose_cosines_are_all_high_is_measured() -> None:
    """Some embedders give 0.8 to anything; 0.95 is near then, and 0.82 is not."""
    turns, high = people("My sister moved to Lisbon.", *FILLER), Alikeness(0.8, 0.5)
    question = "Where does my sibling live now?"
    assert relevance(turns, question, near(0.62, 0.4), high)[0] > 0.3
    assert relevance(turns, question, near(0.42, 0.4), high)[0] < FLOOR


def test_turns_that_are_all_alike_do_not_hide_a_near_one() -> None:
    assert Alikeness(0.9, 0.5).on_scale(0.2).cosine == 0.4


@pytest.mark.parametrize("size", [1, 2, 3, 40])
def test_any_number_of_turns_will_do(size: int) -> None:
    turns = people("My sister moved to Lisbon.", *FILLER[: size - 1])
    found = relevance(turns, "Where does my sibling live now?", near(0.6)[:size])
    assert found[0] > 0.5
    assert relevance(turns, "Where does my sibling live now?", near(0.1)[:size]).max() < FLOOR
    assert len(found) == size


def test_nothing_to_rank_is_no_error() -> None:
    about = profile([])
    query = parse("Well?", about.actors, NOW)
    scores = score(about, query, lexical([], query.stems), None)
    assert not len(estimate(about, query, lexical([], query.stems), None, LOCAL, scores, about.searchable))


def test_a_fact_has_a_relevance_of_its_own() -> None:
    query = parse("Where does my sister live?", (), NOW)
    assert estimate_single(query, 1.0, None, LOCAL) > 0.5 > estimate_single(query, 0.0, None, LOCAL)
    assert estimate_single(query, 0.0, 0.7, LOCAL) > 0.5 > estimate_single(query, 0.0, 0.1, LOCAL)


def test_the_question_itself_is_hidden() -> None:
    turns = people("One.", "Two.", "Three.")
    hidden = Filter(asked=(JULY + 1, 1)).hide_question(profile(turns))
    assert hidden.searchable.tolist() == [True, False, True]


# ---- contexts ------------------------------------------------------------------------------------------------------


EMBEDDERS = [None, HashEmbedder(), pytest.param("local", marks=pytest.mark.costly)]


@pytest.fixture(params=EMBEDDERS, ids=["words", "hashes", "local"])
async def store(request: pytest.FixtureRequest, tmp_path: Path, engine: Any) -> AsyncIterator[Store]:
    async with palaver.open(url(tmp_path), user="ada", embedder=request.param, worker=False) as opened:
        yield opened


async def weather(store: Store) -> Conversation:
    talk = await store.conversation("weather")
    kinds = ("sunny", "rainy", "windy", "cold")
    await talk_on(talk, 10, "The weather on day {n} was mild.")
    await talk.append_many(
        {"role": "assistant" if n % 2 else "user", "content": f"It was {kinds[n % 4]} again, with {n % 30} degrees."}
        for n in range(200)
    )
    await talk.append("user", "My umbrella is in the red cupboard.")
    await talk_on(talk, 100, "Nothing much happened on day {n}, and so it went on.")
    await store.settle()
    return talk


def recalled(context: palaver.Context) -> list[Any]:
    return [one for block in context.explain().blocks if block.kind == "recalled" for one in block.scores]


@pytest.mark.both_engines
@pytest.mark.parametrize("scope", ["conversation", "owner", "tenant"])
async def test_a_question_about_something_else_recalls_nothing_and_explain_says_so(store: Store, scope: Any) -> None:
    talk = await weather(store)
    for text in ("Write a haiku about databases.", "Who won the football championship in Brazil?"):
        await talk.append("user", text)  # it is not an answer to itself
        context = await talk.build_context(2_000, policy="recall-heavy", recall_scope=scope)
        assert recalled(context) == []
        assert "nothing is relevant" in context.explain().recall
        assert recalled(await talk.build_context(2_000, semantic_recall={"threshold": 0}, recall_scope=scope))


@pytest.mark.both_engines
async def test_what_is_relevant_is_recalled_with_its_relevance(store: Store) -> None:
    talk = await weather(store)
    await talk.append("user", "Where is my umbrella?")
    context = await talk.build_context(2_000, policy="recall-heavy")
    assert "red cupboard" in context.text
    scores = recalled(context)
    assert scores
    assert all(FLOOR <= one["relevance"] <= 1 for one in scores)
    hits = await talk.recall("Where is my umbrella?", k=5)
    best = next(hit for hit in hits if hit.turn is not None and "cupboard" in hit.turn.text)
    assert best.relevance == max(hit.relevance for hit in hits if hit.turn and "Where" not in hit.turn.text)
    few = await talk.recall("Where is my umbrella?", k=100, threshold=best.relevance)
    assert 1 <= len(few) < 100
    assert all(hit.relevance >= best.relevance for hit in few)


async def test_standing_instructions_are_not_measured_by_it(tmp_path: Path) -> None:
    async with palaver.open(url(tmp_path), embedder=None, worker=False) as opened:
        talk = await opened.conversation()
        await talk.append("user", "Always answer in French, please.")
        await talk_on(talk, 300)
        await opened.settle()
        context = await talk.build_context(2_000, policy="recall-heavy", query="Which database has the best index?")
        assert "Always answer in French" in context.text
