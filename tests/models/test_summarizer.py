"""The offline summary: the significant sentences, word for word, and never more than there is room for."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palaver.model import Role, Summary, Turn
from palaver.model import ToolCall as Call
from palaver.model import ToolResult as Result
from palaver.models.offline.summarizer import _END, NAME, merge, summarize
from palaver.models.tokens import BpeCounter

START = datetime(2023, 5, 8, 13, 56, tzinfo=UTC)
tokens = BpeCounter()


def turn(n: int, text: str, *, actor: str = "Ada", role: Role = "user", **more: object) -> Turn:
    return Turn(
        id=f"t{n}",
        conversation="c",
        seq=n,
        position=n,
        role=role,
        actor=actor,
        content=text,
        created=START + timedelta(days=n),
        **more,  # type: ignore[arg-type]
    )


CHAT = [
    turn(0, "Hey Ben! Good to see you. How have you been?"),
    turn(1, "Hi Ada! I moved to Oslo in March and started at Equinor.", actor="Ben"),
    turn(2, "Wow, that sounds great! I'm so happy for you."),
    turn(3, "Thanks! We decided to launch the app on 12 June.", actor="Ben"),
    turn(4, "Cool. My daughter Sara is allergic to peanuts, so no nuts at the party."),
]


def test_keeps_what_tells_something_and_leaves_pleasantries_out() -> None:
    assert summarize(CHAT, budget=500, count=tokens).splitlines() == [
        "[2023-05-09] Ben: I moved to Oslo in March and started at Equinor.",
        "[2023-05-11] Ben: We decided to launch the app on 12 June.",
        "[2023-05-12] Ada: My daughter Sara is allergic to peanuts, so no nuts at the party.",
    ]


def test_a_small_budget_keeps_the_most_telling_line() -> None:
    assert summarize(CHAT, budget=22, count=tokens) == "[2023-05-11] Ben: We decided to launch the app on 12 June."


def test_the_same_turns_give_the_same_text() -> None:
    assert len({summarize(CHAT, budget=60, count=tokens) for _ in range(5)}) == 1


def test_says_the_same_thing_once() -> None:
    said = [turn(n, "The deadline is 12 June 2023 in Oslo.") for n in range(8)]
    assert summarize(said, budget=500, count=tokens) == "[2023-05-08] Ada: The deadline is 12 June 2023 in Oslo."


def test_sentences_of_one_turn_share_a_line() -> None:
    said = [turn(0, "I bought 3 tickets in Bergen. Nice! My sister Eva left on Monday.")]
    assert summarize(said, budget=500, count=tokens) == (
        "[2023-05-08] Ada: I bought 3 tickets in Bergen. My sister Eva left on Monday."
    )


@pytest.mark.parametrize("turns", [[], [turn(0, "")], [turn(0, " \n\t ")]])
def test_nothing_said_is_nothing(turns: list[Turn]) -> None:
    assert summarize(turns, budget=100, count=tokens) == ""


@pytest.mark.parametrize("budget", [-1, 0])
def test_no_room_is_nothing(budget: int) -> None:
    assert summarize(CHAT, budget=budget, count=tokens) == ""
    assert merge([("[2023-05-08] Ada: I moved.", None)], budget=budget, count=tokens) == ""


def test_only_pleasantries_still_leave_a_line() -> None:
    assert summarize([turn(0, "Thanks! 😊"), turn(1, "Sounds great!")], budget=100, count=tokens) != ""


def test_tools_are_told_in_a_few_words() -> None:
    turns = [
        turn(0, "", role="assistant", actor="bot", tool_calls=(Call("c1", "look", {"q": "nuts"}), Call("c2", "wait"))),
        turn(1, "", role="tool", actor="bot", tool_results=(Result("c1", {"hits": ["peanut " * 50]}),)),
    ]
    first, second = summarize(turns, budget=500, count=tokens).splitlines()
    assert first == "[2023-05-08] bot: (tool wait → …)"
    assert second.startswith('[2023-05-09] bot: (tool look → {"hits":["peanut peanut')
    assert second.endswith("…)")
    assert len(second) < 150


def test_one_giant_sentence_is_cut_in_the_middle() -> None:
    said = "It began in Oslo " + "and went on and on " * 500 + "until we came to Rome"
    text = summarize([turn(0, said)], budget=30, count=tokens)
    assert text.startswith("[2023-05-08] Ada: It began in Oslo")
    assert "…" in text
    assert text.endswith("Rome")
    assert tokens(text) <= 30


def test_a_text_without_a_space_fits_as_well() -> None:
    text = summarize([turn(0, "x1" * 500_000)], budget=40, count=tokens)
    assert 0 < tokens(text) <= 40


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("你好！我三月搬到了奥斯陆。谢谢！", "我三月搬到了奥斯陆。"),
        ("Привет! Я переехала в Осло 3 марта. Спасибо!", "Я переехала в Осло 3 марта."),
        ("مرحبا! انتقلت إلى أوسلو في 3 مارس. شكرا!", "انتقلت إلى أوسلو في 3 مارس."),
        ("🎉🎉🎉 I won 2nd prize in Oslo! 🏆", "I won 2nd prize in Oslo!"),
    ],
)
def test_other_scripts_and_emoji_are_kept_as_they_are(said: str, kept: str) -> None:
    assert kept in summarize([turn(0, said)], budget=100, count=tokens)


def test_code_is_left_out_where_there_are_words() -> None:
    text = summarize([turn(0, "We decided to use Rust.\n```rust\nfn main() { 42 }\n```\n")], budget=100, count=tokens)
    assert text == "[2023-05-08] Ada: We decided to use Rust."


@pytest.mark.costly
def test_a_huge_turn_is_read_quickly() -> None:
    began = time.perf_counter()
    summarize([turn(0, "I moved to Oslo on 3 March. " * 180_000)], budget=200, count=tokens)
    assert time.perf_counter() - began < 5


def test_merging_what_fits_keeps_every_line() -> None:
    parts = ["[2023-05-08] Ada: I moved to Oslo.", "[2023-06-08] Ben: We launched.\nThey also met the board."]
    assert merge([(part, None) for part in parts], budget=200, count=tokens) == "\n".join(parts)


def test_merging_dates_lines_that_have_no_date_of_their_own() -> None:
    assert merge([("They met the board.", START)], budget=100, count=tokens) == "[2023-05-08] They met the board."


def test_merging_takes_stored_summaries_and_keeps_dates_and_speakers() -> None:
    stored = [
        Summary(
            id=f"s{n}",
            level=0,
            from_seq=n,
            through_seq=n + 1,
            text=f"[2023-05-{n + 10}] Ada: I moved to town number {n} with my dog. That's so nice.",
            model=NAME,
            token_count=0,
            turns=1,
            created=START,
        )
        for n in range(10)
    ]
    text = merge(stored, budget=60, count=tokens)
    assert 0 < tokens(text) <= 60
    assert all(line.startswith("[2023-05-") and "] Ada: " in line for line in text.splitlines())


words = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
sayings = st.one_of(words, st.sampled_from([one.text for one in CHAT]), st.lists(words, max_size=5).map(". ".join))
roles: st.SearchStrategy[Role] = st.sampled_from(["user", "assistant", "system", "tool"])
chats = st.lists(st.tuples(sayings, roles), max_size=12).map(
    lambda said: [turn(n, text, role=role) for n, (text, role) in enumerate(said)]
)
counters = st.sampled_from([tokens, len, lambda text: len(text.encode()), lambda text: len(text) ** 2 // 50])


@settings(deadline=None)
@given(chats, st.integers(-5, 300), counters)
def test_is_never_over_budget(turns: list[Turn], budget: int, count: object) -> None:
    text = summarize(turns, budget=budget, count=count)  # type: ignore[arg-type]
    assert text == "" or count(text) <= budget  # type: ignore[operator]


@settings(deadline=None)
@given(chats, st.integers(20, 300), st.integers(-5, 200), counters)
def test_merging_is_never_over_budget(turns: list[Turn], first: int, budget: int, count: object) -> None:
    part = summarize(turns, budget=first, count=tokens)
    text = merge([(part, None), (part, START), ("A line.\n\nAnother", None)], budget=budget, count=count)  # type: ignore[arg-type]
    assert text == "" or count(text) <= budget  # type: ignore[operator]


@settings(deadline=None)
@given(chats)
def test_every_word_was_said(turns: list[Turn]) -> None:
    text = summarize(turns, budget=2_000, count=tokens)
    said = [one.text.replace("**", "") for one in turns]
    for line in text.splitlines():
        for word in line.partition(": ")[2].replace("…", " ").split():
            assert any(word.replace("**", "") in other for other in said)


def test_marks_are_looked_at_once() -> None:
    """Tried from each of its marks, this text would take hours."""
    assert _END.findall("." * 500_000 + '"' * 500_000) == []
