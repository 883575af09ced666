"""palaver append: one turn, on disk when the command returns."""

from __future__ import annotations

import json
from pathlib import Path


def test_it_creates_the_database_and_the_conversation(ok, lines):
    assert "new conversation support/42" in ok("append", "support/42", "user", "I'm allergic to peanuts.")
    (turn,) = lines("show", "support/42")
    assert (turn["role"], turn["content"], turn["seq"]) == ("user", "I'm allergic to peanuts.", 0)


def test_it_calls_a_conversation_new_only_when_it_is(ok, store):
    store.conversation("empty")
    assert "new" not in ok("append", "empty", "user", "Hello")


def test_text_comes_from_stdin_for_a_dash_and_for_nothing(ok, lines):
    ok("append", "notes", "user", "-", input="from a dash\n")
    ok("append", "notes", "user", input="two\nlines\n\n")
    assert [turn["content"] for turn in lines("show", "notes")] == ["from a dash", "two\nlines\n"]


def test_an_idempotency_key_stores_once(lines):
    one, again = (lines("append", "notes", "user", "Hello", "--idempotency-key", "k")[0]["id"] for _ in range(2))
    assert one == again
    assert len(lines("show", "notes")) == 1


def test_an_expected_seq_that_is_not_next_stores_nothing(ok, cli, lines):
    ok("append", "notes", "user", "one")
    result = cli("append", "notes", "user", "two", "--expected-seq", "0")
    assert result.exit_code == 1
    assert "expected the next seq to be 0, found 1" in result.stderr
    assert len(lines("show", "notes")) == 1


def test_actor_metadata_and_files_are_kept(ok, lines, store):
    Path("bill.txt").write_text("42 euro")
    (turn,) = lines(
        "append", "notes", "user", "See this.", "--actor", "ada", "--metadata", '{"a": [1]}', "--attach", "bill.txt"
    )
    assert (turn["actor"], turn["metadata"]) == ("ada", {"a": [1]})
    (file,) = turn["attachments"]
    assert store.conversation("notes").read_attachment(file["id"]) == b"42 euro"


def test_tool_calls_and_results_can_be_written(ok):
    ok("append", "notes", "assistant", "--tool-calls", '[{"id": "c1", "name": "look", "arguments": {"q": "nuts"}}]')
    ok("append", "notes", "tool", "--tool-results", '[{"id": "c1", "content": "none left"}]')
    shown = ok("show", "notes")
    assert 'look({"q": "nuts"})' in shown
    assert "none left" in shown


def test_a_wrong_role_or_wrong_json_is_a_usage_error_and_makes_no_file(cli):
    assert cli("append", "notes", "king", "Hello").exit_code == 2
    assert cli("append", "notes", "user", "Hello", "--metadata", "{").exit_code == 2
    assert cli("append", "notes", "user", "Hello", "--metadata", "[1]").exit_code == 2
    assert cli("append", "notes", "user", "Hello", "--attach", "nowhere.txt").exit_code == 2
    assert not Path("chat.db").exists()


def test_stdin_that_is_not_text_is_refused(cli):
    result = cli("append", "notes", "user", "--json", input=b"\xff\xfe")
    assert result.exit_code == 1
    assert json.loads(result.stderr)["error"] == "InvalidInput"


def test_rename_changes_the_title_and_nothing_else(ok, lines):
    ok("append", "notes", "user", "Hello")
    ok("rename", "notes", "My notes")
    (info,) = lines("ls")
    assert (info["title"], info["key"]) == ("My notes", "notes")
    ok("rename", "notes", "")
    assert lines("ls")[0]["title"] is None
