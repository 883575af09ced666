"""palaver eval: figures side by side, a threshold for CI, and drafts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest


@pytest.fixture
def questions(store) -> Path:
    talk = store.conversation("k")
    gold = talk.append("user", "My sister Magda keeps bees near Freiburg, and sells chestnut honey.")
    talk.append_many([{"role": "user", "content": f"Small talk number {n}, rain. " * 8} for n in range(60)])
    store.settle()
    lines = [
        {"question": "Who keeps bees?", "conversation": "k", "turns": [gold.id]},
        {"question": "Which colour has the car?", "conversation": "k", "turns": [gold.id]},
    ]
    Path("q.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Path("q.jsonl")


def test_setups_are_compared_and_misses_have_a_reason(lines, ok, questions):
    rows = lines(
        "eval", "q.jsonl", "--policy", "balanced", "--policy", "recall-heavy", "--budget", "1000", "--embedder", "none"
    )
    assert [(row["policy"], row["questions"], row["eic"]) for row in rows] == [
        ("balanced", 2, 0.5),
        ("recall-heavy", 2, 0.5),
    ]
    assert rows[0]["misses"][0]["question"] == "Which colour has the car?"
    text = ok("eval", "q.jsonl", "--embedder", "none", "--budget", "1000")
    assert "recall@10" in text
    assert "Which colour has the car?" in text


def test_a_threshold_is_an_exit_status(cli, questions):
    assert cli("eval", "q.jsonl", "--embedder", "none", "--at-least", "0.5").exit_code == 0
    result = cli("eval", "q.jsonl", "--embedder", "none", "--at-least", "0.9", "--budget", "1000")
    assert result.exit_code == 1


def test_drafts_are_written_once(cli, ok, questions):
    ok("eval", "drafts.jsonl", "--make", "5")
    assert len(Path("drafts.jsonl").read_text().splitlines()) == 5
    ok("eval", "drafts.jsonl", "--embedder", "none")
    result = cli("eval", "drafts.jsonl", "--make", "5")
    assert result.exit_code == 1
    assert "already exists" in result.output
