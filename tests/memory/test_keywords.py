"""Keywords: what a text is about, without a sentence of it."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.memory.keywords import keywords, quotes, words_of
from palaver.memory.working_memory import note_key, without_sentence

WORDS = "always answer apples bring cold drinks every French garden in never not of paint please red the use we".split()
texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=12).map(" ".join)


@given(texts)
def test_no_sentence_can_be_read_from_keywords(text: str) -> None:
    made = keywords(text, 10)
    assert not quotes(made, [text])
    assert set(words_of(made)) <= set(words_of(text))


@pytest.mark.parametrize(
    ("made", "said", "expected"),
    [
        ("the old garden fence broke", "Yes, the old garden fence is new", True),
        ("the old garden", "Yes, the old garden fence is new", False),
        ("I said: use metric units now", "Thanks. Use metric units. Bye", True),
        ("units, metric, use", "Use metric units.", False),
        ("hello", "Hello.", False),
    ],
)
def test_what_is_a_quotation(made: str, said: str, expected: bool) -> None:
    assert quotes(made, [said]) is expected


def test_codes_numbers_and_unspaced_scripts_are_not_keywords() -> None:
    assert keywords("The code is hunter2 or 4711, 我们明天在花园里见面, garden", 10) == "code, garden"


def test_a_negation_is_kept() -> None:
    assert keywords("Never use red emojis", 10) == "emojis, Never, red, use"
    assert keywords("Do not use red emojis", 10) == "emojis, not, red, use"
    assert "Don't" in keywords("Don’t call me after six", 10)


NOTES = [
    ("instructions", "Please always answer in French.", "language: "),
    ("instructions", "My favourite colour is green.", "favourite colour: "),
    ("instructions", "Never use red emojis.", "About: "),
    ("decisions", "We decided to use Postgres for the archive.", "About: "),
    ("open_questions", "When does the new garden fence come?", "About: "),
]


@pytest.mark.parametrize(("name", "text", "start"), NOTES)
def test_a_note_in_normal_form_keeps_its_subject(name: str, text: str, start: str) -> None:
    made = without_sentence(name, text)
    assert made.startswith(start)
    assert not quotes(made, [text])
    assert without_sentence(name, made) == made
    assert note_key(name, made) == note_key(name, text)
    assert made.endswith("?") is text.endswith("?")


def test_random_texts_leave_no_run_of_words() -> None:
    chance = random.Random(7)
    for _ in range(300):
        said = [" ".join(chance.choices(WORDS, k=chance.randint(2, 30))) + "." for _ in range(6)]
        for text in said:
            assert not quotes(without_sentence("instructions", text), [text])


def test_a_text_of_marks_takes_time_in_proportion_to_its_length() -> None:
    """Tried from each of its marks, this text would take hours."""
    assert not quotes("one two three", ["." * 1_000_000 + "x"])
    assert quotes("one two", ["?!" * 1_000 + " one two... three four five."])
