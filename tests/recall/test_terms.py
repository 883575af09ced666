"""Segments are the text itself, in pieces; passages are their stems."""

from __future__ import annotations

from contextvars import copy_context
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.core.strides import pause_between_strides
from palaver.recall.terms import (
    _UNIT,
    PASSAGE_WORDS,
    STOP_WORDS,
    STRIDE,
    _sentences,
    _sentences_of_long,
    _starts_of_units,
    _terms_of_part,
    cut_between_words,
    english_passages,
    passages,
    segments,
    spans,
    terms,
)


@given(st.text(max_size=3000))
def test_segments_are_the_whole_text_and_passages_are_their_stems(text: str) -> None:
    assert "".join(segments(text)) == text
    assert [" ".join(terms(one)) for one in segments(text) if terms(one)] == list(english_passages(text))


def test_a_short_text_is_one_segment() -> None:
    assert segments("Hello there. How are you?") == ["Hello there. How are you?"]
    assert segments("") == []


def test_a_long_text_is_cut_at_sentence_ends() -> None:
    found = segments("We walked along the river and talked. " * 60)
    assert len(found) > 3
    assert all(one.strip().endswith("talked.") for one in found)
    assert all(len(one.split()) <= PASSAGE_WORDS for one in found)


def test_a_text_without_sentences_is_cut_as_well() -> None:
    for text in ("river " * 2000, "日本語の長い文章" * 300, "a,b;" * 4000):
        assert all(len(one.split(" ")) <= 2 * PASSAGE_WORDS for one in english_passages(text))
        assert all(len(one.split(" ")) <= 4 * PASSAGE_WORDS for one in passages(text))


def test_a_megabyte_without_a_space_is_one_term() -> None:
    assert passages("a" * 1_000_000) == ("a" * 64,)


@given(st.text(st.characters(max_codepoint=127), max_size=200))
def test_the_short_way_for_ascii_finds_what_the_long_way_finds(text: str) -> None:
    assert terms(text) == terms(text + " ——")


# ---- long texts ----------------------------------------------------------------------------------------------------

PARTS = (
    "a",
    "the ",
    "Word ",
    "é",
    "ΑΣ ",
    "ΑΣ.",
    "密",
    "ภ",
    ".",
    "!",
    "\n",
    " ",
    "\t",
    "<",
    "😀",
    "\u0301",
    "。",
    "_",
    "İ",
)
RUNS = st.sampled_from((1, 1, 1, 2, 40, 300, STRIDE - 1, STRIDE, STRIDE + 1, 2 * STRIDE))


@given(st.lists(st.tuples(st.sampled_from(PARTS), RUNS), max_size=12))
def test_a_long_text_is_read_in_strides_with_the_same_result(runs: list[tuple[str, int]]) -> None:
    text = "".join(part * times for part, times in runs)
    assert list(_sentences_of_long(text)) == list(_sentences(text))
    units = [unit.start() for unit in _UNIT.finditer(text) if unit.group() not in STOP_WORDS]
    assert list(_starts_of_units(text)) == units
    assert "".join(cut_between_words(text)) == text
    assert terms(text) == _terms_of_part(text)


def count_strides(text: str) -> int:
    """Return how often indexing a text lets others run."""
    calls = count()
    context = copy_context()
    context.run(pause_between_strides.set, lambda: next(calls) and None)
    context.run(passages, text)
    return next(calls)


@pytest.mark.parametrize("unit", ["\n", " ", ".", "<", "the ", "\u200b", "a"])
def test_no_text_is_indexed_in_one_go(unit: str) -> None:
    """A regular expression that runs over all of it would stop the event loop."""
    assert count_strides(unit * (20 * STRIDE // len(unit)) + "x") >= 20


def test_words_after_a_long_gap_are_marked() -> None:
    text = "<" * 3 * STRIDE + " river " + "密" * 2 * STRIDE
    assert [text[start:end] for start, end in spans(text, frozenset(terms("river")))] == ["river"]
