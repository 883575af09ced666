"""palaver chat: answers from its own memory, says that no model is used, and stores before it answers."""

from __future__ import annotations

import json
import os
import pty

import pytest

from palaver.models.offline.chat import NOTICE, is_echo
from tests.cli.conftest import interrupt, process, running


def test_a_piped_chat_quotes_what_was_said_before_with_its_date(lines):
    first = process("chat", "notes", input="I'm allergic to peanuts.\n")
    assert first.returncode == 0, first.stderr
    day = lines("show", "notes")[0]["created"][:4]

    later = process("chat", "notes", input="What am I allergic to?\n")

    answer = later.stdout.split("Answers quote", 1)[1]
    assert "“I'm allergic to peanuts.”" in answer
    assert f"(you, {day}" in answer


def test_it_says_that_no_model_is_used_at_the_start_and_in_each_answer():
    out = process("chat", input="One thing.\nAnother subject.\n").stdout
    assert out.count(NOTICE) == 3


def test_it_says_so_when_nothing_matches():
    out = process("chat", input="Do you know xyzzy?\n").stdout
    assert "nothing fits yet" in out


def test_both_sides_are_stored_and_the_answer_names_its_sources(lines):
    process("chat", "notes", input="The meeting is on Tuesday.\nWhen is the meeting?\n")
    said, _, asked, answer = lines("show", "notes")
    assert [said["content"], asked["content"]] == ["The meeting is on Tuesday.", "When is the meeting?"]
    assert (answer["role"], answer["actor"], answer["status"]) == ("assistant", "assistant", "complete")
    assert answer["sources"] == [{"turn": said["id"]}]
    assert (answer["model"], answer["adapter"]) == ("offline", "offline")


def test_a_question_asked_often_still_finds_its_answer(lines):
    asked = "When is the meeting with the dentist?\n"
    process("chat", "notes", input="The meeting is on Tuesday.\n" + asked * 5)
    *_, answer = lines("show", "notes")
    assert "Tuesday" in answer["content"]
    assert "When is" not in answer["content"]


@pytest.mark.parametrize(
    ("role", "actor", "text", "echo"),
    [
        ("user", "ada", "Where is it?", True),
        ("user", "ada", "Really? And where is it?", True),
        ("user", "ada", "It is in Paris. Did you know?", False),
        ("user", "ada", "It is in Paris.", False),
        ("assistant", "offline", "It is in Paris.", True),
        ("assistant", "bot", "It is in Paris.", False),
    ],
)
def test_what_counts_as_an_echo(store, role, actor, text, echo):
    turn = store.conversation("notes").append(role, text, actor=actor)
    assert is_echo(turn) is echo


def test_commands_are_answered_and_not_stored(lines):
    out = process("chat", "notes", input="I like tea.\n/help\n/history\n/search tea\n/search zebra\n/nonsense\n").stdout
    assert "/search TEXT" in out
    assert out.count("I like tea.") >= 2  # once from /history, once from /search
    assert "Nothing found." in out
    assert "/nonsense is not a command" in out
    assert len(lines("show", "notes")) == 2


def test_quit_ends_the_chat_before_the_rest_of_the_input(lines):
    process("chat", "notes", input="I like tea.\n/quit\nI like coffee.\n")
    assert [turn["content"] for turn in lines("show", "notes", "--roles", "user")] == ["I like tea."]


def test_forgetting_a_turn_takes_the_answers_that_quote_it_along(ok, lines, folder):
    process("chat", "notes", input="The password is swordfish.\nWhat is the password?\n")
    secret = lines("show", "notes")[0]["id"]

    process("chat", "notes", input=f"/forget {secret}\n")

    assert [turn["content"] for turn in lines("show", "notes", "--roles", "user")] == ["What is the password?"]
    assert "swordfish" not in ok("show", "notes", "--all")
    assert all(b"swordfish" not in path.read_bytes() for path in folder.iterdir() if path.is_file())


def test_forgetting_the_conversation_needs_the_word_yes(cli):
    kept = process("chat", "notes", input="I like tea.\n/forget\nno\n")
    assert "Nothing was forgotten." in kept.stdout
    assert cli("show", "notes").exit_code == 0

    gone = process("chat", "notes", input="/forget\nyes\nThis comes too late.\n")
    assert "Forgot the conversation" in gone.stdout
    assert cli("show", "notes").exit_code == 1


def test_a_line_that_cannot_be_stored_is_refused_and_the_chat_goes_on(lines):
    done = process("chat", "notes", input=b"broken \xff bytes\nI like tea.\n")
    assert "error:" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == 1
    assert lines("show", "notes", "--roles", "user")[0]["content"] == "I like tea."


def test_json_is_one_line_per_thing():
    out = process("chat", "notes", "--json", input="I like tea.\n/search tea\n/help\n").stdout
    kinds = [json.loads(line)["kind"] for line in out.splitlines()]
    assert kinds == ["start", "turn", "turn", "match", "help"]


def test_ctrl_c_at_the_prompt_ends_the_chat_in_peace():
    master, slave = pty.openpty()
    with running("chat", stdin=slave) as chat:
        seen = b""
        while not seen.endswith(b"you> "):
            piece = os.read(chat.stdout.fileno(), 1000)
            assert piece, chat.stderr.read()
            seen += piece
        err = interrupt(chat)
    os.close(master)
    os.close(slave)
    assert chat.returncode == 0
    assert b"Traceback" not in err
