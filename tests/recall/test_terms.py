"""Segments are the text itself, in pieces; passages are their stems."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from palaver.recall.terms import PASSAGE_WORDS, english_passages, passages, segments, terms


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
