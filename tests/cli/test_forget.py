"""palaver forget and reset: permanently, and only after a confirmation."""

from __future__ import annotations

import json
import os
import pty
import subprocess

import apsw
import pytest

from tests.cli.conftest import COMMAND


@pytest.fixture(autouse=True)
def talk(ok):
    ok("append", "notes", "user", "The word is swordfish.")
    ok("append", "notes", "user", "Something else.")


@pytest.mark.parametrize("command", [["forget", "notes"], ["reset", "notes"]])
def test_without_a_terminal_and_without_yes_nothing_is_deleted(cli, lines, command):
    result = cli(*command, input="y\n")
    assert result.exit_code == 1
    assert "--yes" in result.stderr
    assert len(lines("show", "notes")) == 2


@pytest.mark.parametrize(("answer", "code", "left"), [(b"n\n", 1, 2), (b"\n", 1, 2), (b"y\n", 0, 1)])
def test_on_a_terminal_it_asks(lines, answer, code, left):
    turn = lines("show", "notes")[0]["id"]
    master, slave = pty.openpty()
    os.write(master, answer)
    done = subprocess.run([*COMMAND, "forget", "notes", turn], stdin=slave, capture_output=True, text=True, timeout=60)
    os.close(master)
    os.close(slave)
    assert "cannot be undone" in done.stderr
    assert done.returncode == code
    assert len(lines("show", "notes")) == left


def test_a_turn_is_gone_from_every_byte(ok, lines, folder):
    (first, _) = lines("show", "notes")
    (done,) = lines("forget", "notes", first["id"], "--yes")
    assert done == {"conversation": first["conversation"], "turns": [first["id"]], "scrubbed": True}
    assert "swordfish" not in ok("show", "notes", "--all")
    assert all(b"swordfish" not in path.read_bytes() for path in folder.iterdir() if path.is_file())


def test_a_forgotten_conversation_is_not_found_and_its_key_is_free(ok, cli, lines):
    old = lines("ls")[0]["id"]
    ok("forget", "notes", "--yes")
    assert cli("show", "notes").exit_code == 1
    assert "was permanently deleted" in cli("show", old).stderr
    ok("append", "notes", "user", "A new start.")
    assert lines("ls")[0]["id"] != old


@pytest.mark.costly
def test_a_reader_that_keeps_old_bytes_is_a_warning_and_not_an_error(cli, lines):
    (first, _) = lines("show", "notes")
    reader = apsw.Connection("chat.db")
    reader.execute("BEGIN").fetchall()
    reader.execute("SELECT count(*) FROM turns").fetchall()
    result = cli("forget", "notes", first["id"], "--yes", "--json")
    reader.close()
    assert result.exit_code == 0
    assert json.loads(result.stderr)["warning"] == "ScrubPending"
    assert json.loads(result.stdout)["scrubbed"] is False
    assert len(lines("show", "notes")) == 1


def test_reset_keeps_the_conversation_and_goes_on_counting(ok, lines):
    (before,) = lines("ls")
    ok("reset", "notes", "--yes")
    assert lines("show", "notes") == []
    (turn,) = lines("append", "notes", "user", "A new start.")
    assert (turn["conversation"], turn["seq"]) == (before["id"], 2)
