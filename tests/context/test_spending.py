"""The budget of a real conversation: what outsiders measured, and what it is now."""

from __future__ import annotations

from typing import Any

import pytest

from palaver import Store
from palaver.context.explain import Explanation

pytestmark = [pytest.mark.costly, pytest.mark.both_engines]
TEXT = (
    "Message {n} is about the button in view {view} and its colour {colour}, which was not yet agreed with everybody."
)


async def chat(store: Store, turns: int, *, budget: int, every: int = 20, **options: Any) -> Explanation:
    """Talk, with a context after every few turns; return the explanation of the last one, settled."""
    settings = {"compaction": {"strategy": options.pop("strategy", "hierarchical")}}
    talk = await store.conversation(settings=settings)
    for start in range(0, turns, every):
        await talk.append_many(
            {
                "role": "user" if n % 2 == 0 else "assistant",
                "content": TEXT.format(n=n, view=n % 13, colour=n % 7),
            }
            for n in range(start, start + every)
        )
        await talk.build_context(budget, **options)
        await store.settle()
    return (await talk.build_context(budget, **options)).explain()


def share(explanation: Explanation, *kinds: str) -> float:
    return sum(block.tokens for block in explanation.blocks if block.kind in kinds) / explanation.budget


async def test_a_chat_with_4_000_tokens_sees_its_recent_turns(store: Store) -> None:
    explanation = await chat(store, 200, budget=4_000)
    assert 0.33 <= share(explanation, "recent", "current") <= 0.6, str(explanation)
    assert explanation.coverage.not_covered == 0


async def test_a_small_budget_covers_the_whole_thread(store: Store) -> None:
    explanation = await chat(store, 400, budget=2_000)
    assert explanation.coverage.not_covered == 0, str(explanation)
    assert 0.33 <= share(explanation, "recent", "current") <= 0.6


async def test_a_thread_that_fits_is_shown_as_a_whole(store: Store) -> None:
    explanation = await chat(store, 400, budget=16_000, every=50)
    assert explanation.coverage.verbatim == 400, str(explanation)
    assert {block.kind for block in explanation.blocks} <= {"recent", "current", "memory", "rounds"}


@pytest.mark.parametrize("strategy", ["rolling", "hierarchical"])
async def test_without_recall_most_of_the_budget_is_recent_turns(store: Store, strategy: str) -> None:
    for budget in (1_000, 4_000):
        explanation = await chat(store, 240, budget=budget, every=40, semantic_recall=False, strategy=strategy)
        assert 0.6 <= share(explanation, "recent", "current", "rounds") <= 0.9, str(explanation)
        assert explanation.coverage.not_covered == 0


async def test_recent_chars_shows_what_fits_whatever_summaries_there_are(store: Store) -> None:
    talk = await store.conversation()
    for n in range(60):
        await talk.append("user" if n % 2 == 0 else "assistant", f"{n}: " + "x" * 180)
    await store.settle()
    explanation = (await talk.build_context(policy="recent-chars")).explain()
    assert await talk.summaries()
    assert explanation.coverage.verbatim == 60, str(explanation)


async def test_recent_chars_asks_for_a_summary_before_the_usual_trigger(store: Store) -> None:
    talk = await store.conversation()
    for n in range(12):
        await talk.append("user" if n % 2 == 0 else "assistant", f"Letter {n} about the harbour. " + "word " * 570)
    await talk.build_context(policy="recent-chars")
    await store.settle()
    assert await talk.summaries()
    explanation = (await talk.build_context(policy="recent-chars")).explain()
    assert explanation.coverage.not_covered == 0, str(explanation)
    assert share(explanation, "recent", "current", "rounds") * explanation.budget > 0.9 * 12_000


async def test_a_larger_budget_does_not_lose_turns_with_a_rolling_summary(store: Store) -> None:
    talk = await store.conversation(settings={"compaction": {"strategy": "rolling"}})
    await talk.append_many(
        {"role": "user" if n % 2 == 0 else "assistant", "content": TEXT.format(n=n, view=n % 13, colour=n % 7)}
        for n in range(500)
    )
    await store.settle()
    for budget in (1_000, 4_000, 8_000, 4_000):
        coverage = (await talk.build_context(budget, semantic_recall=False)).explain().coverage
        assert coverage.not_covered == 0, budget
        await store.settle()


async def test_many_standing_instructions_take_room_from_recall_before_the_window(store: Store) -> None:
    talk = await store.conversation()
    animals = ("heron", "otter", "badger", "lynx", "stork", "marten", "beaver", "raven", "adder", "weasel", "osprey")
    for animal in animals:
        await talk.append("user", f"Always write the word {animal} with a capital letter and in a line of its own.")
        await talk.append("assistant", f"From now on every {animal} gets a line of its own.")
    said = (TEXT.format(n=n, view=n % 13, colour=n % 7) for n in range(100))
    await talk.append_many(
        {"role": "user" if n % 2 == 0 else "assistant", "content": text} for n, text in enumerate(said)
    )
    await talk.append("user", "Which colour had the button in view 5 of the animals' page?")
    await store.settle()
    explanation = (await talk.build_context(1_000)).explain()
    assert share(explanation, "memory") > 0.2, str(explanation)
    assert 0.33 <= share(explanation, "recent", "current") <= 0.6, str(explanation)
    assert explanation.coverage.not_covered == 0
