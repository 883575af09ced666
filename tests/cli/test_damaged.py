"""Every command reports a damaged row in one line that names it, never with a traceback."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.conftest import raw

pytestmark = pytest.mark.costly

NO_JSON, NO_TEXT = "'z\"secret\":1}'", "CAST(x'736563726574e96c6c6f' AS TEXT)"
OF_CONVERSATIONS = [
    *((column, NO_JSON) for column in ("participants", "metadata", "settings")),
    *((column, NO_TEXT) for column in ("participants", "metadata", "settings", "title", "preview", "key", "owner")),
]
OF_TURNS = [
    *((column, NO_JSON) for column in ("tool_calls", "tool_results", "attachments", "sources", "metadata")),
    *((column, NO_TEXT) for column in ("content", "actor", "model", "metadata", "tool_calls", "idempotency_key")),
]


@pytest.fixture
def damage(ok: Callable[..., str]) -> Callable[[str, str, str], tuple[str, str]]:
    """Damages a row of one conversation out of three; answers its id, and that of its turn."""
    for key in ("before", "notes", "after"):
        ok("append", key, "user", f"Something {key}.")

    def work(table: str, column: str, value: str) -> tuple[str, str]:
        db = raw()
        ((cid, id, turn),) = db.execute(
            "SELECT c.cid, c.id, t.id FROM conversations c JOIN turns t USING (cid) WHERE c.key = 'notes'"
        ).fetchall()
        db.execute(f"UPDATE {table} SET {column} = {value} WHERE cid = {cid}")
        assert db.changes() == 1
        db.close()
        return id, turn

    return work


def fails(cli: Callable[..., Any], *args: str) -> dict[str, str]:
    """Return what a failed command prints to stderr."""
    result = cli(*args, "--json")
    assert result.exit_code == 1, result.output
    assert "secret" not in result.output
    (line,) = result.stderr.splitlines()
    return dict(json.loads(line))


@pytest.mark.parametrize(("column", "value"), OF_CONVERSATIONS)
def test_verify_names_a_damaged_conversation_and_goes_on(cli, damage, column, value):
    id, _ = damage("conversations", column, value)
    result = cli("verify", "--json")
    assert result.exit_code == 1
    found = {one["conversation"]: one["ok"] for one in map(json.loads, result.stdout.splitlines())}
    assert sorted(found.values()) == [False, True, True]
    assert found[id] is False
    said = json.loads(result.stderr)
    assert said["error"] == "VerificationFailed"
    assert f"conversation {id}, conversation: " in said["message"]
    assert "2 conversations of 3 verified." in cli("verify").stdout


@pytest.mark.parametrize(("column", "value"), OF_CONVERSATIONS)
def test_a_damaged_conversation_is_verified_by_its_name(cli, damage, column, value):
    id, _ = damage("conversations", column, value)
    for name in (id, "notes") if column not in ("key", "owner") else (id,):
        assert fails(cli, "verify", name)["error"] == "VerificationFailed"


def test_a_damaged_conversation_is_not_verified_in_the_place_of_another(cli, damage):
    id, _ = damage("conversations", "metadata", NO_JSON)
    said = fails(cli, "verify", "no such name")
    assert said["error"] == "RowUnreadable"
    assert id in said["message"]


@pytest.mark.parametrize(("column", "value"), OF_CONVERSATIONS)
def test_every_reader_names_a_damaged_conversation(cli, ok, damage, column, value):
    id, _ = damage("conversations", column, value)
    for command in (("ls",), ("show", id), ("search", "something"), ("export", id), ("export",)):
        said = fails(cli, *command)
        assert said["error"] == "RowUnreadable", command
        assert id in said["message"], command
        assert "palaver verify" in said["message"], command
    assert "Something after." in ok("show", "after")


@pytest.mark.parametrize(("column", "value"), OF_TURNS)
def test_a_damaged_turn_is_named_by_verify_and_by_show(cli, ok, damage, column, value):
    _, turn = damage("turns", column, value)
    said = fails(cli, "show", "notes")
    assert said["error"] == "RowUnreadable"
    assert f"turn {turn} (seq 0)" in said["message"]
    said = fails(cli, "verify", "notes")
    assert said["error"] == "VerificationFailed"
    assert f"turn {turn} (seq 0)" in said["message"]
    assert "notes" in ok("ls")
