"""Recall in languages other than English: what is found, and what `explain` says of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bench.languages import ask, fill, read_pairs

import palaver
from palaver.ports.recall import Candidates, RecallSize
from palaver.recall.candidates import build_arrays, count_words
from palaver.recall.query import parse
from palaver.testing import HashEmbedder
from tests.recall.test_languages import NOW
from tests.support.memory import url

GERMAN = "Die Rechnung vom Klempner liegt noch auf dem Tisch."


class EnglishEmbedder(HashEmbedder):
    """An embedder that says which languages it knows."""

    languages = ("en",)


@pytest.mark.both_engines
@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(
    ("turn", "question"),
    [
        (GERMAN, "Welche Rechnungen habe ich?"),
        (GERMAN, "Rechnungen"),  # does not say its language
        ("La réunion commence à neuf heures dans la salle bleue.", "Quand sont mes réunions ?"),
        ("회의를 열 시에 시작해.", "회의는 언제야?"),
        ("姉は犬を飼っています。", "犬はどこですか？"),
    ],
)
async def test_a_turn_is_found_by_another_form_of_its_word(tmp_path: Path, turn: str, question: str) -> None:
    async with palaver.open(url(tmp_path), embedder=None, worker=False) as store:
        talk = await store.conversation()
        await talk.append("user", turn)
        await talk.append("user", "Something else in English.")
        hits = await talk.recall(question, k=1)
        assert hits[0].turn is not None
        assert hits[0].turn.text == turn
        assert hits[0].parts["lexical"] > 0


@pytest.mark.both_engines
@pytest.mark.usefixtures("engine")
async def test_explain_says_that_the_embedder_does_not_know_the_language(tmp_path: Path) -> None:
    async with palaver.open(url(tmp_path), embedder=EnglishEmbedder(), worker=False) as store:
        talk = await store.conversation()
        await talk.append("user", GERMAN)
        await talk.append("user", "Welche Rechnungen habe ich noch nicht bezahlt?")
        await store.settle()
        asked = (await talk.build_context(2_000)).explain().recall
        assert "the embedder does not know German, so words count more" in asked
        assert "turns in a language that the embedder does not know: 1 in German" in asked
        english = (await talk.build_context(2_000, query="Where is the bill?")).explain().recall
        assert "words count more" not in english


async def test_an_embedder_that_does_not_name_languages_knows_all(tmp_path: Path) -> None:
    async with palaver.open(url(tmp_path), embedder=HashEmbedder(), worker=False) as store:
        talk = await store.conversation()
        await talk.append("user", GERMAN)
        await talk.append("user", "Welche Rechnungen habe ich noch nicht bezahlt?")
        await store.settle()
        assert "does not know" not in (await talk.build_context(2_000)).explain().recall


@pytest.mark.costly
@pytest.mark.parametrize("language", ["de", "es", "ko"])
async def test_most_answers_are_among_the_first_five_by_words_alone(tmp_path: Path, language: str) -> None:
    async with palaver.open(url(tmp_path), embedder=None, worker=False) as store:
        talk = await store.conversation()
        await fill(talk, language)
        found = await ask(talk, read_pairs(language, "held_out"))
        assert found.at(5) >= 0.85


def test_candidates_of_the_engine_count_for_a_word_by_any_of_its_stems() -> None:
    query = parse("Wann kommen die Rechnungen?", [], NOW)
    assert query.all_stems == ("kommen", "rechnungen", "komm", "rechnung")
    rows = [(tid, 1, tid, 0, 5, "user", "a", 0, "complete") for tid in (1, 2)]
    hits = np.array([[1, 9, 0b1000], [2, 9, 0b0010]], np.int64)
    found = Candidates(rows=rows, holding=[0, 1, 0, 2], hits=hits, near=[], sample=[])
    turns, _ = build_arrays(found)
    lexical = count_words(turns, query, found, RecallSize(turns=2, passages=2, terms=18, actors=("a",)))
    assert sorted(lexical.hits["rechnungen"][0].tolist()) == [0, 1]
    assert lexical.count("rechnungen") == 2
