"""palaver demo: the product in a minute, and nothing of it stays."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = [pytest.mark.process, pytest.mark.costly]


@pytest.fixture(autouse=True)
def temporary(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the demo has its temporary files."""
    place = folder / "temporary"
    place.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(place))
    return place


def test_the_demo_shows_memory_recall_a_kill_and_forgetting(lines, folder, temporary):
    conversation, context, recall, kill, forget = lines("demo")
    assert conversation["turns"] == 86
    assert conversation["summaries"]
    assert context["tokens"] <= context["budget"]
    assert context["holds_answer"]
    assert "allergic" in recall["text"]
    assert kill == {"step": "kill", "acknowledged": 25, "there": 25, "verified": True}
    assert forget["found"] == 0
    assert forget["on_disk"] == {"before": True, "after": False}
    assert list(temporary.iterdir()) == []
    assert [one.name for one in folder.iterdir()] == ["temporary"], "the user's own database is not touched"


def test_the_demo_explains_its_context_to_a_reader(ok):
    shown = ok("demo")
    for part in ("of 600 tokens", "I'm allergic to peanuts", "25 are on disk", "Before: yes. After: no."):
        assert part in shown
