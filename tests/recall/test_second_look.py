"""With their texts at hand, turns that report events, or share the words of the best ones, move up."""

from __future__ import annotations

from palaver.recall.second_look import BEST, COMPARED, EVENTS, SHARED, count_events, count_shared_words
from palaver.recall.terms import terms

BOOKS = [f"The novel number {n} by that author kept me reading all night." for n in ("one", "two", "three")]
FILLER = [f"Thanks {name}, have a nice evening!" for name in "Ann Bob Cleo Dan Eve Finn Gil Hal Ivo Jo Kim Leo".split()]


def test_turns_with_the_words_of_the_best_ones_gain() -> None:
    asked = terms("Which books do you know?")
    gains = count_shared_words([*BOOKS, *FILLER, "Another novel, by the same author."], asked)
    assert gains[-1] > 0
    assert gains[3:-1] == [0.0] * len(FILLER)
    assert max(gains) <= SHARED


def test_words_of_the_question_and_of_all_turns_count_nothing() -> None:
    assert count_shared_words([*BOOKS, *FILLER], terms(" ".join(BOOKS))) == [0.0] * 15
    assert count_shared_words(BOOKS, ()) == [0.0] * 3
    assert count_shared_words([], ()) == []


def test_a_long_turn_gains_less_by_the_same_words() -> None:
    short = "Another novel, by the same author."
    long = short + " " + " ".join(f"word{n}" for n in range(60))
    gains = count_shared_words([*BOOKS, *FILLER, short, long], ())
    assert 0 < gains[-1] < gains[-2]


def test_only_the_best_turns_are_compared() -> None:
    filler = [f"Filler about subject{n}" for n in range(COMPARED)]
    gains = count_shared_words([*BOOKS, *filler, BOOKS[0]], ())
    assert len(gains) == COMPARED + 4
    assert gains[-1] == 0.0
    late = count_shared_words([*filler[:BEST], *BOOKS, *filler[BEST : COMPARED - 3]], ())
    assert late[BEST] == 0.0


def test_a_turn_that_reports_an_event_gains() -> None:
    told, hoped, empty = count_events(["I went to Rome and visited the forum.", "I hope to see Rome.", ""])
    assert told > EVENTS
    assert hoped == empty == 0.0
