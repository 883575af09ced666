"""Statements that a later turn replaced are recognised where the words show it; repeated ones are found."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from palaver.recall.repeats import find_repeats
from palaver.recall.superseded import Said, find_superseded
from palaver.recall.terms import terms

START = datetime(2026, 5, 1, tzinfo=UTC)


def superseded(question: str, *texts: str, speakers: str = "aaaa") -> dict[int, int]:
    said = [
        Said(speaker, START + timedelta(days=day), text)
        for day, (speaker, text) in enumerate(zip(speakers, texts, strict=False))
    ]
    return find_superseded(said, dict.fromkeys(terms(question), 1.0))


def test_a_new_number_for_the_same_thing_replaces_the_old_one() -> None:
    old, new = "My Zotero library has 45 sources by now.", "I added more, and now have 52 sources in Zotero."
    assert superseded("How many sources are in my Zotero library?", old, new) == {0: 1}
    assert superseded("How many sources are in my Zotero library?", old, new, speakers="ab") == {}


def test_a_new_date_replaces_the_old_one() -> None:
    old = "The call with the dentist is on April 21."
    new = "They moved the call with the dentist to April 22."
    assert superseded("When is the call with the dentist?", old, new) == {0: 1}


def test_another_thing_or_the_same_number_replaces_nothing() -> None:
    old = "The call with the dentist is on April 21."
    assert superseded("When is the call?", old, "The rent is now 900 euros.") == {}
    assert superseded("When is the dentist's call?", old, "The call with the dentist is now on April 21, too.") == {}
    assert superseded("How is the weather?", old, "They moved the call with the dentist to April 22.") == {}


def test_a_statement_without_a_sign_of_change_replaces_nothing() -> None:
    assert superseded("How many laps?", "I swam 20 laps on Monday.", "I swam 30 laps on Tuesday.") == {}


def test_repeats_are_found_and_other_numbers_are_no_repeats() -> None:
    text = "Please write short answers about gardens, plants and the weather"
    assert find_repeats([text, f"{text}!", "Something else entirely is written in here today"]) == {1}
    assert find_repeats([f"{text} in 5 lines", f"{text} in 6 lines"]) == set()
    assert find_repeats(["Thanks!", "Thanks!"]) == set()
    assert find_repeats([f"I do {text}", f"I do not {text}"]) == set()
