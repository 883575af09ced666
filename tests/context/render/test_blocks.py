"""Blocks of quotations: who said what, and when."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from palaver.context.render import Quotation, recalled_block
from palaver.model import Turn

START = datetime(2026, 1, 1, tzinfo=UTC)


def quotation(minutes: int, text: str, actor: str = "ada", conversation: str = "C", **more) -> Quotation:
    turn = Turn(
        id=f"T{minutes}",
        conversation=conversation,
        seq=minutes,
        position=minutes,
        role="user",
        actor=actor,
        content=text,
        created=START + timedelta(minutes=minutes),
        token_count=1,
    )
    return Quotation(turn, **more)


def lines(*quotations: Quotation) -> list[str]:
    return recalled_block(quotations).splitlines()[1:-1]


def test_a_speaker_is_named_once_in_a_row() -> None:
    said = [quotation(1, "One."), quotation(2, "Two.\nAnd more."), quotation(3, "Three.", "bob"), quotation(4, "Four.")]
    assert lines(*said) == ["[2026-01-01]", "ada: One.", "+ Two.", " And more.", "bob: Three.", "ada: Four."]


def test_a_speaker_is_named_again_on_another_day() -> None:
    assert lines(quotation(1, "One."), quotation(1441, "Two.")) == [
        "[2026-01-01]",
        "ada: One.",
        "[2026-01-02]",
        "ada: Two.",
    ]


def test_a_user_of_another_conversation_is_somebody_else() -> None:
    assert lines(quotation(1, "One.", "user"), quotation(2, "Two.", "user", conversation="D")) == [
        "[2026-01-01]",
        "user: One.",
        "user: Two.",
    ]


def test_text_like_a_line_of_ours_stands_behind_a_name() -> None:
    shown = lines(quotation(1, "One."), quotation(2, "bob: I agree."), quotation(3, "[2026-01-09] Three."))
    assert shown == ["[2026-01-01]", "ada: One.", "ada: bob: I agree.", "ada: > [2026-01-09] Three."]


def test_parts_and_marks_of_a_next_turn() -> None:
    text = "First sentence. Second sentence."
    part = quotation(2, text, parts=((16, 32),), name="T2")
    old = quotation(3, "Three.", superseded=START)
    assert lines(quotation(1, "One."), part, old) == [
        "[2026-01-01]",
        "ada: One.",
        "+",
        "[… 1 passage of turn T2 …]",
        " Second sentence.",
        "+ Three.",
        "[superseded on 2026-01-01]",
    ]
