"""Summaries that are larger than their share."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from palaver.context.options import parse_options
from palaver.context.pack import pack_context
from palaver.model import Summary
from tests.support.growing_thread import START, GrowingThread, Words


@dataclass(frozen=True)
class WholeLines:
    """Condenses to whole lines, so that a text is shorter than its room; each line gets a mark when it is quoted."""

    width: int

    def merge(self, texts: tuple[str, ...], most: int) -> str:
        line = "ada: " + "x" * (self.width - 6)
        return "\n".join([line] * (most // self.width))

    def summarise(self, turns: object, most: int) -> str:
        return self.merge((), most)


# In these sizes the condensed text was shorter than its room by more than it exceeded its share.
SIZES = [(8_000, 127), (8_000, 143), (8_000, 191), (8_000, 287), (12_000, 145), (12_000, 291), (12_000, 437)]


@pytest.mark.parametrize(("budget", "width"), [*SIZES, (12_000, 60), (16_000, 200)])
def test_a_condensed_summary_always_fits(budget: int, width: int) -> None:
    thread = GrowingThread()
    thread.say(*[33] * 2_000, 12)
    thread.settle()
    options = parse_options(policy="recent-chars", char_budget=budget)
    material = replace(thread.material(options), condenser=WholeLines(width))
    assert pack_context(material, options, Words(options)).explain().coverage.not_covered == 0


def test_turns_between_a_summary_and_the_first_turn_that_was_read_are_reported_there() -> None:
    thread = GrowingThread(sizes=[33] * 100)
    text = "Written by another program."
    summary = Summary(
        id="S", level=0, from_seq=0, through_seq=20, text=text, model="m", token_count=4, turns=20, created=START
    )
    options = parse_options(policy="recent-chars", char_budget=4_000)
    material = replace(thread.material(options), summaries=(summary,))
    explanation = pack_context(material, options, Words(options)).explain()
    read = material.tail[0].position
    assert read > 20
    (missing,) = [one for one in explanation.left_out if not one.summarised]
    assert (missing.reason, missing.turns) == ("not yet summarised", read - 20)
    assert (missing.from_seq, missing.through_seq) == (20, read)
