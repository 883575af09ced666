"""Which summaries a model rewrites first, and how a postponed one is recognised."""

from __future__ import annotations

from datetime import UTC, datetime

from palaver.memory.model_calls import LIMIT_REACHED, NOT_IN_USE, is_postponed, name_postponed, rewrite_order
from palaver.model import Summary

LATER = name_postponed("rules-1", "openai:gpt-5", LIMIT_REACHED)


def summary(level: int, start: int, end: int, model: str = LATER) -> Summary:
    return Summary(
        id=f"{level}:{start}",
        level=level,
        from_seq=start,
        through_seq=end,
        text="text",
        model=model,
        token_count=10,
        turns=end - start,
        created=datetime(2026, 1, 1, tzinfo=UTC),
    )


def test_the_name_says_why() -> None:
    assert LATER == "rules-1 (in place of openai:gpt-5: daily limit reached)"
    assert is_postponed(name_postponed("rules-1", "x", NOT_IN_USE))
    assert not is_postponed("rules-1")
    assert not is_postponed("rules-1 (in place of openai:gpt-5)"), "that one failed"


def test_the_newest_come_first_and_parts_before_what_is_made_from_them() -> None:
    below = [summary(0, start, start + 25) for start in range(0, 250, 25)]
    above = [summary(1, 0, 100), summary(1, 100, 200)]
    order = [one.id for one in rewrite_order([*below, *above])]
    assert order == [
        "0:225", "0:200",
        "0:175", "0:150", "0:125", "0:100", "1:100",
        "0:75", "0:50", "0:25", "0:0", "1:0",
    ]  # fmt: skip


def test_what_a_model_wrote_stays() -> None:
    written = summary(0, 0, 25, "openai:gpt-5")
    assert rewrite_order([written, summary(0, 25, 50)]) == [summary(0, 25, 50)]
    assert rewrite_order([]) == []
