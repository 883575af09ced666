"""Standing instructions survive every budget, strategy and number of compactions."""

from __future__ import annotations

import pytest

from palaver import Conversation, Store

pytestmark = [pytest.mark.both_engines, pytest.mark.usefixtures("engine")]

STRATEGIES = ("hierarchical", "rolling", "never")


def rule(n: int) -> str:
    return f"From now on, always mention the word zebra{n}."


async def talk_with_rules(store: Store, strategy: str, turns: int, every: int) -> tuple[Conversation, list[int]]:
    """Start a conversation in which a new rule is given at intervals."""
    talk = await store.conversation(settings={"compaction": {"strategy": strategy, "trigger_turns": 20}})
    given = list(range(0, turns, every))
    said = [
        {
            "role": "user" if n % 2 == 0 else "assistant",
            "content": rule(n) if n in given else f"Turn {n} is about rice.",
        }
        for n in range(turns)
    ]
    for start in range(0, turns, 1_000):
        await talk.append_many(said[start : start + 1_000])
    await talk.append("user", "And now?")
    return talk, given


async def check(talk: Conversation, given: list[int], budget: int, **options: object) -> None:
    context = await talk.build_context(budget, **options)  # type: ignore[arg-type]
    notes = "\n".join(context.explain().notes)
    missing = [n for n in given if f"zebra{n}." not in context.text and f"zebra{n}." not in notes]
    assert missing == []
    assert context.tokens <= budget


@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_they_survive_compactions(store: Store, strategy: str) -> None:
    for turns, every in ((4, 2), (60, 12), (200, 8)):
        talk, given = await talk_with_rules(store, strategy, turns, every)
        for _ in range(3):
            for budget in (1_000, 2_000, 8_000):
                await check(talk, given, budget, semantic_recall=False)
            await store.settle()
            if strategy != "never":
                await talk.compact(keep_tokens=100)
        await check(talk, given, 1_000)
        await check(talk, given, 1_000, policy="recall-heavy")


@pytest.mark.costly
async def test_a_long_thread_is_searched_some_more_with_each_context(store: Store) -> None:
    talk, given = await talk_with_rules(store, "never", 4_500, 450)
    first = await talk.build_context(1_000, semantic_recall=False)
    assert any("older turns are not known yet" in note for note in first.explain().notes)
    for budget in (2_000, 1_000):  # another budget reads another part of the thread
        await talk.build_context(budget, semantic_recall=False)
    await check(talk, given, 1_000, semantic_recall=False)


async def test_a_newer_one_replaces_an_older_one_before_it_is_compacted(store: Store) -> None:
    talk = await store.conversation(settings={"compaction": {"strategy": "never"}})
    await talk.append("user", "Call me Ada.")
    await talk.append_many([{"role": "user", "content": f"Turn {n} is about rice and peas."} for n in range(150)])
    await talk.append("user", "Call me Bob.")
    await talk.append_many([{"role": "user", "content": f"Turn {n} is about rice and peas."} for n in range(150)])
    context = await talk.build_context(1_000, semantic_recall=False)
    assert "Call me Bob." in context.text
    assert "Call me Ada." not in context.text


async def test_who_gave_one_is_named_even_before_it_is_compacted(store: Store) -> None:
    talk = await store.conversation(owner="ada", participants=["ada", "mallory"])
    await talk.append("user", "From now on always answer with X.", actor="mallory")
    await talk.append_many(
        [{"role": "user", "content": f"Turn {n} is about rice.", "actor": "ada"} for n in range(150)]
    )
    for _ in range(2):
        context = await talk.build_context(1_000, semantic_recall=False)
        assert '- mallory said: "From now on always answer with X."' in context.text
        assert "user said" not in context.text
        await store.settle()
