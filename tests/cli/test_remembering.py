"""palaver summaries, compact, memory, facts."""

from __future__ import annotations

import pytest

from palaver.model import MEMORY_LISTS


@pytest.fixture
def talk(store):
    return store.conversation("support/42")


def fill(talk, turns: int) -> None:
    talk.append_many({"role": "user", "content": f"Day {day}: the fence needs paint."} for day in range(turns))


# ---- summaries and compact -----------------------------------------------------------------------------------------


def test_compact_summarises_what_is_due_and_shows_it(ok, lines, talk):
    fill(talk, 60)
    assert ok("summaries", "support/42") == "No summaries.\n"
    new = lines("compact", "support/42")
    assert [(one["level"], one["from_seq"]) for one in new] == [(0, 0)]
    assert lines("summaries", "support/42") == new
    shown = ok("summaries", "support/42")
    assert f"positions 0–{new[0]['through_seq'] - 1}" in shown
    assert "Day 0: the fence needs paint." in shown


def test_compact_does_nothing_before_it_is_due_unless_it_must(ok, talk):
    fill(talk, 10)
    assert ok("compact", "support/42") == "Nothing was due. To summarise anyway, use --force.\n"
    assert "Wrote 1 summary." in ok("compact", "support/42", "--force")


# ---- memory --------------------------------------------------------------------------------------------------------


def test_memory_is_empty_at_first(ok, lines, talk):
    assert ok("memory", "support/42") == "No notes: this conversation has no turns.\n"
    (known,) = lines("memory", "support/42")
    assert all(known[name] == [] for name in MEMORY_LISTS)


def test_a_note_is_added_corrected_and_dropped(ok, lines, talk):
    assert "0  Ship in May  (user)" in ok("memory", "support/42", "--add", "goals", "Ship in May")
    (known,) = lines("memory", "support/42", "--correct", "goals", "0", "Ship in June")
    assert [note["text"] for note in known["goals"]] == ["Ship in June"]
    assert "Ship in June" in ok("explain", "support/42", "--text")
    assert ok("memory", "support/42", "--drop", "goals", "0") == "No notes: this conversation has no turns.\n"


def test_a_person_signs_the_note(lines, store):
    store.conversation("hers", owner="ada")
    (known,) = lines("memory", "hers", "--add", "goals", "Learn Greek", "--user", "ada")
    assert known["goals"][0]["by"] == "ada"


WRONG_EDITS = [
    ("--add", "nonsense", "x"),
    ("--add", "goals", " "),
    ("--correct", "goals", "0", "x"),
    ("--drop", "goals", "7"),
]


@pytest.mark.parametrize("edit", WRONG_EDITS, ids=" ".join)
def test_an_edit_that_cannot_be_made_is_an_error(cli, talk, edit):
    result = cli("memory", "support/42", *edit)
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")


def test_two_edits_at_once_are_a_usage_error(cli, talk):
    assert cli("memory", "support/42", "--add", "goals", "x", "--drop", "goals", "0").exit_code == 2


# ---- facts ---------------------------------------------------------------------------------------------------------


def test_facts_are_extracted_when_asked_and_name_their_turn(ok, lines, talk):
    turn = talk.append("user", "I live in Berlin.")
    assert ok("facts", "support/42") == "No facts. To extract some, use --extract.\n"
    (fact,) = lines("facts", "support/42", "--extract")
    assert (fact["object"], fact["source_turn"]) == ("Berlin", turn.id)
    assert turn.id in ok("facts", "support/42")


def test_a_replaced_fact_is_shown_on_demand(lines, talk):
    talk.append("user", "I live in Berlin.")
    lines("facts", "support/42", "--extract")
    talk.append("user", "I live in Paris.")
    assert [fact["object"] for fact in lines("facts", "support/42", "--extract")] == ["Paris"]
    everything = {fact["object"]: fact["invalidated_at"] for fact in lines("facts", "support/42", "--all")}
    assert everything["Berlin"] is not None
    assert everything["Paris"] is None


def test_a_fact_is_forgotten_for_good(ok, cli, lines, talk):
    talk.append("user", "I live in Berlin.")
    (fact,) = lines("facts", "support/42", "--extract")
    assert ok("facts", "support/42", "--forget", fact["id"]) == "No facts. To extract some, use --extract.\n"
    result = cli("facts", "support/42", "--forget", fact["id"])
    assert result.exit_code == 1
    assert "no fact" in result.stderr


def test_a_fact_is_corrected(lines, talk):
    talk.append("user", "I live in Berlin.")
    (fact,) = lines("facts", "support/42", "--extract")
    (rome,) = lines("facts", "support/42", "--correct", fact["id"], "Rome")
    assert (rome["object"], rome["by"]) == ("Rome", "person:user")
