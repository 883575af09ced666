"""palaver ls, show, search, branches."""

from __future__ import annotations

import pytest


@pytest.fixture
def talk(store):
    talk = store.conversation("support/42")
    talk.append("user", "I'm allergic to peanuts.", actor="ada")
    talk.append("assistant", "Noted: no peanuts.", actor="bot")
    return talk


def test_ls_shows_the_latest_first_and_pages_on(ok, cli, lines):
    for key in ("one", "two", "three"):
        ok("append", key, "user", f"About {key}.")
    assert [info["key"] for info in lines("ls")] == ["three", "two", "one"]
    result = cli("ls", "--limit", "2")
    assert "About three." in result.stdout
    assert "About one." not in result.stdout
    cursor = result.stderr.split("--cursor ")[1].split()[0]
    assert [info["key"] for info in lines("ls", "--cursor", cursor)] == ["one"]


def test_ls_groups_by_day(ok, talk):
    assert "Today" in ok("ls")


def test_show_says_who_said_what_and_when_in_local_time(ok, talk, monkeypatch):
    shown = ok("show", "support/42")
    first, second = talk.history()
    for turn in (first, second):
        assert turn.text in shown
        assert turn.actor in shown
        assert f"{turn.created.astimezone():%Y-%m-%d %H:%M:%S}" in shown
        assert turn.id in shown


def test_a_conversation_is_found_by_id_as_well_as_by_key(ok, talk):
    assert ok("show", talk.id) == ok("show", "support/42")


def test_limit_and_roles_narrow_what_is_shown(lines, talk):
    assert [turn["role"] for turn in lines("show", "support/42", "--limit", "1")] == ["assistant"]
    assert [turn["role"] for turn in lines("show", "support/42", "--roles", "user,tool")] == ["user"]


def test_show_names_the_way_to_earlier_turns(cli, lines, talk):
    note = cli("show", "support/42", "--limit", "1").stderr
    last = lines("show", "support/42")[-1]["id"]
    assert f"--before {last}" in note
    assert [turn["role"] for turn in lines("show", "support/42", "--before", last)] == ["user"]


def test_superseded_turns_are_shown_with_all_and_in_branches(ok, lines, talk):
    talk.append("assistant", "Noted: no nuts at all.", actor="bot", replaces=talk.history()[1])
    assert "no peanuts" not in ok("show", "support/42")
    assert "superseded" in ok("show", "support/42", "--all")
    (branch,) = lines("branches", "support/42")
    assert [turn["content"] for turn in branch["turns"]] == ["Noted: no peanuts.", "Noted: no nuts at all."]
    assert branch["active"] == branch["turns"][1]["id"]


def test_parts_are_told_in_text_and_typed_in_json(ok, lines, talk):
    talk.append("user", [{"type": "text", "text": "Look:"}, {"type": "image", "url": "https://example.org/nut.png"}])
    assert "(image) https://example.org/nut.png" in ok("show", "support/42")
    assert [part["type"] for part in lines("show", "support/42")[-1]["content"]] == ["text", "image"]


def test_what_was_said_cannot_drive_the_terminal(ok, talk):
    talk.append("user", "\x1b[2Jgone [red]not markup[/red]", actor="eve")
    talk.update(title="\x1b]0;title\x07Plans")
    for command in (["show", "support/42"], ["search", "markup"], ["tail", "support/42", "--once"], ["ls"]):
        shown = ok(*command)
        assert "\x1b" not in shown
        assert "\x07" not in shown
    assert "[red]not markup[/red]" in ok("show", "support/42")


def test_a_long_line_is_not_wrapped_in_a_pipe(ok, talk):
    talk.append("user", "word " * 100 + "end")
    assert "word " * 100 + "end" in ok("show", "support/42")


def test_search_finds_word_forms_across_conversations(ok, lines, talk):
    ok("append", "other", "user", "Nothing of the kind.")
    (found,) = lines("search", "peanuts", "allerg")
    assert found["conversation"]["key"] == "support/42"
    (match,) = found["matches"]
    assert [match["turn"]["content"][start:end] for start, end in match["spans"]] == ["allergic", "peanuts"]
    assert "I'm allergic to peanuts." in ok("search", "peanut", "allergic")
    assert ok("search", "zebra").strip() == "Nothing found."
    assert lines("search", "zebra") == []


def test_search_in_one_conversation_finds_turns(ok, lines, talk):
    ok("append", "other", "user", "Peanuts here too.")
    assert {match["turn"]["actor"] for match in lines("search", "--in", "support/42", "peanuts")} == {"ada", "bot"}


def test_a_long_turn_is_shown_around_the_words_that_were_found(ok, talk):
    talk.append("user", "filler " * 200 + "the zebra is here " + "filler " * 200)
    (line,) = (line for line in ok("search", "zebra").splitlines() if "the zebra is here" in line)
    assert line.startswith("… ")
    assert len(line) < 300
