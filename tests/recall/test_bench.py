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
    "temporal": [{"question": "When does my sprint end?", "source_chat_ids": {"a": [0]}, "answer": "March 29"}],
    "update": [{"question": "When?", "source_chat_ids": {"original_info": [0], "updated_info": [1]}}],
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
    assert [one.gold for one in beam.questions] == [{"0"}, {"0", "1"}]
    assert [(one.answer, one.replaced) for one in beam.questions] == [("March 29", set()), ("", {"0"})]
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


LONG = "Start with a plan. The budget is 250 euros per month. Then buy seeds. Water them twice. Good luck!"


def test_an_answer_is_in_what_is_shown_of_a_turn() -> None:
    from bench.evidence import Shown, plain

    def shows(text: str, answer: str) -> bool:
        return Shown(plain(text), frozenset()).has_answer("id", LONG, answer)

    part = "Ann: […] The budget is 250 euros per month. […] Good luck!"
    assert shows(part, "250 euros")
    assert shows(part, "It was 250 euros, not 300.")  # the turn has nothing of 300
    assert not shows(part, "250 euros for seeds")
    assert not shows(part, "Venus")  # no word of the answer: it counts as a whole only
    assert shows(LONG, "Venus")
    assert not shows("Somebody wrote of a monthly budget of 250 euros.", "250 euros")


def test_a_turn_has_its_date_when_the_last_date_before_it_is_its_own() -> None:
    from bench.evidence import Shown

    text = "Zoe: Hello there. [2024-05-01] Ann: I moved to Oslo. [2024-06-02] Ann: I moved to Rome."
    shown = Shown(text, frozenset())
    assert shown.has_dated("1", "I moved to Rome.", "2024-06-02")
    assert not shown.has_dated("2", "I moved to Oslo.", "2024-06-02")
    assert not shown.has_dated("3", "Hello there.", "2024-05-01")


def test_a_replaced_turn_is_stale_without_a_mark() -> None:
    from bench.evidence import Shown

    assert Shown("Ann: I live in Oslo. Ann: I live in Rome.", frozenset()).is_stale("I live in Oslo.")
    assert not Shown("Ann: I live in Oslo. [superseded on 2024-06-02]", frozenset()).is_stale("I live in Oslo.")
    assert not Shown("Ann: I live in Rome.", frozenset()).is_stale("I live in Oslo.")


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

    saved = folder / "figures.pickle"
    assert main([str(folder), "--budgets", "2000,4000", "--save", str(saved)]) == 0
    assert main([str(folder), "--budgets", "2000,4000", "--before", str(saved)]) == 0
    printed = capsys.readouterr().out
    assert "LoCoMo EIC@2000 1.000" in printed
    assert "LoCoMo balanced EIC@2000: 1.000 → 1.000 (0 / 0)" in printed
    assert "contexts over budget: 0" in printed
    assert main([str(folder / "locomo")]) == 2
