"""The measure of quality reads its data as described, and counts what it says it counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from palaver.models.offline.embedder import available

ROOT = Path(__file__).parents[2]

SESSIONS = {
    "speaker_a": "Ann",
    "speaker_b": "Bob",
    "session_1_date_time": "1:56 pm on 8 May, 2023",
    "session_1": [
        {"speaker": "Ann", "dia_id": "D1:1", "text": "I adopted a greyhound called Comet."},
        {"speaker": "Bob", "dia_id": "D1:2", "text": "Lovely!", "blip_caption": "a dog on a sofa"},
    ],
    "session_2_date_time": "9:00 am on 20 May, 2023",
    "session_2": [
        {"speaker": "Ann", "dia_id": "D2:1", "text": "My pottery class starts on Monday."},
        {"speaker": "Bob", "dia_id": "D2:2", "text": "Have fun with the clay."},
    ],
}
QUESTIONS = [
    {"question": "What did Ann adopt?", "evidence": ["D1:1; D01:02"], "category": 4},
    {"question": "When did Ann fly to Mars?", "evidence": ["D2:1"], "category": 5},
    {"question": "Without evidence?", "evidence": [], "category": 1},
]
PAIR = {
    "relation_type": "causal",
    "cue_dialogue": "A: I stopped drinking coffee.\nB: Good for you.",
    "trigger_query": "A: I slept so well this week.",
}
CHAT = [
    {
        "batch_number": 1,
        "time_anchor": "March-15-2024",
        "turns": [
            [
                {"role": "user", "id": 0, "content": "My sprint ends on March 29. ->-> 1,1"},
                {"role": "assistant", "id": 1, "content": "Noted."},
            ]
        ],
    }
]
PROBES = {
    "temporal": [{"question": "When does my sprint end?", "source_chat_ids": {"a": [0]}}],
    "abstention": [{"question": "?"}],
}


@pytest.fixture(autouse=True)
def _bench_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    files = {
        "locomo/some.json": [{"sample_id": "c1", "conversation": SESSIONS, "qa": QUESTIONS}],
        "locomo-plus/some.json": [PAIR],
        "beam-100k/1/chat.json": CHAT,
        "beam-100k/1/probing_questions/probing_questions.json": PROBES,
    }
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(json.dumps(content))
    return tmp_path


def test_the_data_is_read(folder: Path) -> None:
    from bench.datasets import inside, load

    data = load(folder)
    (locomo,), (beam,), (plus,) = data["LoCoMo"], data["BEAM"], data["LoCoMo-Plus"]
    assert locomo.turns[1].text == "Lovely! [shares image: a dog on a sofa]"
    assert locomo.turns[1].proof == "Lovely!"
    assert [(one.gold, one.headline) for one in locomo.questions] == [({"D1:1", "D1:2"}, True), ({"D2:1"}, False)]
    assert beam.turns[0].text == "My sprint ends on March 29."
    assert [one.gold for one in beam.questions] == [{"0"}]
    assert [said.name for said in plus.turns] == ["D1:1", "D1:2", "cue:0", "cue:1", "D2:1", "D2:2"]
    assert [said.actor for said in plus.turns[2:4]] == ["Ann", "Bob"]
    assert [said.created for said in plus.turns] == sorted(said.created for said in plus.turns)
    assert [said.name for said in inside(plus).turns][1:3] == ["cue:0", "cue:1"]


def test_a_turn_is_quoted_when_its_words_are_there() -> None:
    from bench.evidence import quoted

    words = " ".join(f"w{n}" for n in range(10))
    assert quoted("a  b\nc", "x a b c y", reported=False)
    assert not quoted(words, words[:-3], reported=False)
    assert quoted(words, words[:-3], reported=True)
    assert not quoted(words, words[:10], reported=True)


def test_figures() -> None:
    from bench.evidence import found, interval, sign_test

    assert found(["a", "x", "b"], frozenset("ab"), k=2) == {"R@2": 0.5, "NDCG@2": pytest.approx(0.613, abs=1e-3)}
    assert found(["a", "b"], frozenset("ab")) == {"R@10": 1, "NDCG@10": 1}
    low, high = interval([0, 1] * 50)
    assert 0.38 < low < 0.5 < high < 0.62
    assert sign_test([1, 0, 1], [0, 1, 0]) == (2, 1)


@pytest.mark.costly
@pytest.mark.skipif(not available(), reason="the local embedder is not installed")
def test_the_whole_measure_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from bench.recall import main

    assert main([str(folder), "--budgets", "2000,4000"]) == 0
    printed = capsys.readouterr().out
    assert "LoCoMo EIC@2000 1.000" in printed
    assert "contexts over budget: 0" in printed
    assert main([str(folder / "locomo")]) == 2
