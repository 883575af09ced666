"""The work for a context depends on its budget, not on how long a turn is."""

from __future__ import annotations

from pathlib import Path

import pytest

import palaver
from palaver.context.render import exceeds, shorten
from palaver.models.tokens import BpeCounter

PROSE = "The harbour lay still under a thin fog while gulls cried over the boats. "
LONG, LONGER = 400_000, 1_600_000  # characters


class Recorder:
    """Counts words, and adds up the characters that it was given."""

    name = "words"

    def __init__(self) -> None:
        self.characters = 0

    def __call__(self, text: str) -> int:
        self.characters += len(text)
        return text.count(" ") + 1


async def characters_counted(path: Path, size: int, **options) -> int:
    """Return how many characters are counted for a context after a turn of that size."""
    count = Recorder()
    url = f"sqlite:///{path}/{size}.db"
    async with palaver.open(url, token_counter=count, embedder=None, worker=False) as store:
        talk = await store.conversation()
        await talk.append("user", (PROSE * (size // len(PROSE) + 1))[:size])
        await talk.append("assistant", "A long text about a harbour.")
        await talk.append("user", "What was it about?")
        count.characters = 0
        context = await talk.build_context(token_budget=500, **options)
    assert context.tokens <= 500
    return count.characters


@pytest.mark.parametrize("policy", ["balanced", "recall-heavy", "last-20"])
async def test_what_is_counted_does_not_grow_with_the_turn(tmp_path: Path, policy: str) -> None:
    long = await characters_counted(tmp_path, LONG, policy=policy)
    longer = await characters_counted(tmp_path, LONGER, policy=policy)
    assert longer < 1.1 * long
    assert longer < LONG


@pytest.mark.parametrize("text", [PROSE * 20_000, "1 " * 700_000, "\n" * 1_000_000, "密码" * 300_000], ids="pdlc")
def test_a_long_text_is_shortened_to_what_fits_and_little_of_it_is_counted(text: str) -> None:
    bpe, seen = BpeCounter(), [0]

    def count(piece: str) -> int:
        seen[0] += len(piece)
        return bpe(piece)

    shorter = shorten(text, 200, count)
    assert seen[0] < len(text)
    assert 150 <= bpe(shorter) <= 200
    assert shorter.startswith(text[:20])
    assert shorter.endswith(text[-20:])


def test_a_text_that_fits_is_never_said_to_exceed() -> None:
    count = BpeCounter()
    for text in (PROSE * 300, " " * 40_000, "a" * 20_000):
        needed = count(text)
        assert not exceeds(text, needed, count)
        assert shorten(text, needed, count) == text


async def test_a_huge_question_is_refused_with_what_it_needs(tmp_path: Path) -> None:
    async with palaver.open(f"sqlite:///{tmp_path}/a.db", embedder=None, worker=False) as store:
        talk = await store.conversation()
        await talk.append("user", "1 " * 50_000)
        with pytest.raises(palaver.BudgetTooSmall) as caught:
            await talk.build_context(token_budget=1_000)
    assert caught.value.needed > 50_000
