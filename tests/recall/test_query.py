"""Parsing a question before anything is searched."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from palaver.recall.query import MAX_STEMS, Query, parse

NOW = datetime(2026, 11, 15, tzinfo=UTC)
ACTORS = ["Caroline", "Melanie Brown", "user", "assistant", "rose", "u-4711"]


def asked(text: str) -> Query:
    return parse(text, ACTORS, NOW)


@pytest.mark.parametrize(
    ("text", "codes", "dense"),
    [
        ("When did Caroline move?", {0}, "When did I move?"),
        ("What is Melanie Brown's job?", {1}, "What is my job?"),
        ("Did Caroline and Melanie meet?", {0, 1}, "Did I and I meet?"),
        ("What does the user want from the assistant?", set(), "What does the user want from the assistant?"),
        ("Where is u-4711?", set(), "Where is u-4711?"),
    ],
)
def test_people_are_found_by_name(text: str, codes: set[int], dense: str) -> None:
    assert (asked(text).named, asked(text).dense_text) == (codes, dense)


def test_a_common_word_is_not_a_name_unless_it_is_written_like_one() -> None:
    assert parse("Which rose did she plant?", ["Rose"], NOW).named == frozenset()
    assert parse("Which flower did Rose plant?", ["Rose"], NOW).named == {0}
    assert parse("which flower did rose plant?", ["Rose"], NOW).named == {0}  # all small: it may be meant
    assert parse("Which flower did rose plant?", ["rose"], NOW).named == {0}  # as the actor writes it
    assert parse("Will you come?", ["Will"], NOW).named == frozenset()


def test_june_may_be_a_person() -> None:
    assert parse("What did June say?", ["June"], NOW).dates == ()
    assert parse("What did Ann say in June?", ["Ann"], NOW).dates != ()


@pytest.mark.parametrize(
    "text",
    ["What did you suggest for dinner?", "You recommended a book", "the list you've given me", "What was your advice?"],
)
def test_a_question_about_what_the_assistant_said(text: str) -> None:
    assert asked(text).asks_assistant


@pytest.mark.parametrize("text", ["What would you suggest?", "Can you list my trips?", "Could you show me how?", "Hi"])
def test_a_question_to_the_assistant_is_not_about_what_it_said(text: str) -> None:
    assert not asked(text).asks_assistant


@pytest.mark.parametrize(
    "text",
    [
        "Give me a summary of the project",
        "List the order in which I brought up the topics",
        "Walk me through how my plans changed",
        "How many columns did I ask for across all our sessions?",
        "How has it developed over time?",
    ],
)
def test_an_overview_is_recognised(text: str) -> None:
    assert asked(text).overview


@pytest.mark.parametrize("text", ["Walk me through how to solve it", "When did we meet?", "I ordered pizza in time"])
def test_other_questions_are_no_overview(text: str) -> None:
    assert not asked(text).overview


def test_stems_come_once_and_in_order() -> None:
    assert asked("dogs and a dog, and cats").stems == ("dog", "cat")


def test_a_megabyte_is_cut() -> None:
    start = time.perf_counter()
    query = asked("Caroline's dogs ran in July 2023 " * 33_000)
    assert len(query.text) <= 2_000
    assert len(query.stems) <= MAX_STEMS
    assert time.perf_counter() - start < 0.5


@pytest.mark.parametrize("text", ["", "   ", "???", "\ud800", "שלום", "🙂🙂", "Caroline"])
def test_nothing_much_to_read_is_no_error(text: str) -> None:
    assert asked(text).text == text


def test_a_question_about_the_past_is_recognised() -> None:
    assert asked("Which books has Caroline read?").past
    assert asked("Where did we meet?").past
    assert not asked("Which books does Caroline like?").past
    assert not asked("I was in Rome.").past  # nothing is asked
    assert not asked("Can you summarise what we have discussed?").past
