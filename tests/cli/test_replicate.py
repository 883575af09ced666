"""palaver replicate: two databases become the same."""

from __future__ import annotations

import json

import pytest

SAME = {"counts": {"unchanged": 1}, "conversations": [], "complete": True}


def test_it_says_what_it_did(ok, cli) -> None:
    ok("append", "trip", "user", "Start.", "--db", "edge.db")
    assert "copied (right)  trip, 1 turn" in ok("replicate", "edge.db", "main.db")
    ok("append", "trip", "user", "At the edge.", "--db", "edge.db")
    ok("append", "trip", "user", "In the middle.", "--db", "main.db")
    assert "Would be: 1 merged." in ok("replicate", "edge.db", "main.db", "--dry-run")
    assert "merged (both)  trip, 1 turn, 1 of them on a branch" in ok("replicate", "edge.db", "main.db")
    report = json.loads(ok("replicate", "edge.db", "main.db", "--json"))
    assert {name: report[name] for name in SAME} == SAME
    for name in ("edge.db", "main.db"):
        assert "1 conversation of 1 verified" in ok("verify", "--db", name)


def test_a_conversation_that_is_refused_is_an_exit_status(ok, cli) -> None:
    ok("append", "trip", "user", "Start.", "--db", "edge.db")
    ok("replicate", "edge.db", "main.db")
    for name in ("edge.db", "main.db"):
        ok("append", "trip", "user", name, "--db", name)
    done = cli("replicate", "edge.db", "main.db", "--direction", "pull", "--json")
    assert done.exit_code == 1
    assert [one["action"] for one in json.loads(done.stdout)["conversations"]] == ["refused"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["edge.db", "edge.db"], "is the same store"),
        (["missing.db", "edge.db"], "there is no database"),
        (["edge.db", "main.db", "--direction", "up"], "must be one of both, push, pull"),
        (["edge.db", "https://localhost"], "is the address of a server"),
        (["edge.db", "main.db", "--watch", "0"], "at least"),
        (["edge.db", "main.db", "--conversation", "nothing"], "neither store"),
        (["edge.db", "main.db", "--user", "ada"], "admin"),
    ],
)
def test_mistakes_are_named(ok, cli, options: list[str], problem: str) -> None:
    ok("append", "trip", "user", "Start.", "--db", "edge.db")
    done = cli("replicate", *options)
    assert done.exit_code in (1, 2)
    assert problem in " ".join(done.stderr.split())
