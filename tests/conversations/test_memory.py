"""Summaries and facts that a caller asks for: through which turn, and by which policy."""

from __future__ import annotations

from typing import Any

import pytest

import palaver
from palaver import Conversation, Store, Summary, ToolCall, ToolResult
from palaver.errors import InvalidInput, TurnNotFound

pytestmark = [pytest.mark.both_engines, pytest.mark.usefixtures("engine")]


async def talk_of(store: Store, turns: int, key: str = "k", **fields: Any) -> Conversation:
    talk = await store.conversation(key, **fields)
    roles: tuple[palaver.Role, ...] = ("user", "assistant")
    await talk.append_many({"role": roles[n % 2], "content": f"We spoke of thing number {n}."} for n in range(turns))
    return talk


def covered(summaries: list[Summary]) -> int:
    return max((one.through_seq for one in summaries), default=0)


@pytest.mark.parametrize("last", [0, 1, 9, 29, 79])
async def test_summarize_through_a_turn_covers_it_and_nothing_after_it(store: Store, last: int) -> None:
    talk = await talk_of(store, 80)
    turns = await talk.history(80)
    found = await talk.summarize(through=turns[last])
    assert covered(found) == last + 1
    ends = sorted((one.from_seq, one.through_seq) for one in found if one.level == 0)
    assert [start for start, _ in ends] == [0, *(end for _, end in ends[:-1])]  # without a gap
    assert covered(await talk.summarize(through=turns[last].id)) == last + 1  # nothing is left to do
    await talk.verify()


async def test_summarize_without_through_takes_the_older_half(store: Store) -> None:
    talk = await talk_of(store, 20)
    assert covered(await talk.summarize()) == 10


async def test_through_does_not_split_a_tool_round(store: Store) -> None:
    talk = await talk_of(store, 2)
    calls = await talk.append("assistant", "", tool_calls=[ToolCall("1", "look", {})])
    await talk.append("tool", "", tool_results=[ToolResult("1", "found")])
    await talk.append("assistant", "There it is.")
    assert covered(await talk.summarize(through=calls)) == 2


async def test_through_must_be_a_turn_of_this_conversation(store: Store) -> None:
    talk, other = await talk_of(store, 4), await talk_of(store, 4, "other")
    (theirs,) = await other.history(1)
    for verb in (talk.summarize, talk.extract_facts):
        with pytest.raises(TurnNotFound):
            await verb(through=theirs)
        with pytest.raises(InvalidInput) as refusal:
            await verb(through=3)  # type: ignore[arg-type]
        assert refusal.value.field == "through"
    assert await talk.summaries() == []


async def test_extract_facts_through_a_turn_reads_nothing_after_it(store: Store) -> None:
    talk = await store.conversation("k")
    first = await talk.append("user", "I live in Berlin.")
    await talk.append("user", "My favourite colour is green.")
    assert {fact.source_turn for fact in await talk.extract_facts(through=first)} == {first.id}
    assert {fact.source_turn for fact in await talk.extract_facts()} != set()


async def test_compact_takes_a_policy_for_one_call(store: Store) -> None:
    talk = await talk_of(store, 12)
    assert await talk.compact() == 0
    assert await talk.compact(policy={"trigger_turns": 10, "strategy": "never"}) == 0
    assert await talk.compact(policy={"trigger_turns": 10}) == 1
    assert covered(await talk.summaries()) == 6
    assert await talk.compact() == 0
    assert talk.info.settings == (await talk.refresh()).settings == {}
    assert await talk.compact(policy={"trigger_tokens": 1, "strategy": "rolling"}) >= 1
    assert {one.level for one in await talk.summaries()} == {0, 1}


async def test_a_policy_overrides_the_settings_as_far_as_it_goes(store: Store) -> None:
    settings: Any = {"compaction": {"trigger_turns": 4, "strategy": "never"}}
    talk = await talk_of(store, 12, settings=settings)
    assert await talk.compact() == 0
    assert await talk.compact(policy={"strategy": "hierarchical"}) > 0


@pytest.mark.parametrize(
    ("policy", "field", "words"),
    [
        ({"triggerTurns": 10}, "policy.triggerTurns", "did you mean 'trigger_turns'"),
        ({"strategy": "sometimes"}, "policy.strategy", "must be one of"),
        ({"trigger_tokens": 0}, "policy.trigger_tokens", "one or more"),
        ("rolling", "policy", "must be an object"),
    ],
)
async def test_a_wrong_policy_is_named(store: Store, policy: Any, field: str, words: str) -> None:
    talk = await store.conversation("k")
    with pytest.raises(InvalidInput, match=words) as refusal:
        await talk.compact(policy=policy)
    assert refusal.value.field == field


async def test_a_conversation_says_how_far_it_is_summarised(store: Store) -> None:
    talk = await talk_of(store, 20)
    assert (await talk.refresh()).summarized_through == 0
    turns = await talk.history(20)
    await talk.summarize(through=turns[7])
    assert (await talk.refresh()).summarized_through == covered(await talk.summaries()) == 8
    (listed,) = (await store.conversations()).items
    found = await store.find("k")
    assert listed.summarized_through == found.info.summarized_through == 8
    await talk.summarize(through=turns[19])
    assert (await talk.append("user", "more")).position == (await talk.refresh()).summarized_through == 20
    await talk.reset()
    assert (await talk.refresh()).summarized_through == 0
