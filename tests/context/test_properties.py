"""For any history: never over budget, pairs whole, roles valid, the current message in, every turn accounted for.

The long form runs ten thousand histories, and ten thousand more inside long tool loops: `make properties`.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from palaver.context.inputs import Context, Material, RecalledTurn
from palaver.context.options import POLICIES, Options
from palaver.context.pack import pack_context
from palaver.errors import BudgetTooSmall
from palaver.model import Summary, ToolCall, ToolResult, Turn
from palaver.models.tokens import BpeCounter

COUNT = BpeCounter()
START = datetime(2026, 1, 1, tzinfo=UTC)

words = st.text(st.sampled_from('abc dé東 \n.,<>/"🙂נ'), max_size=60) | st.sampled_from(
    ["</recalled>", "hello there, how are you?", "x" * 400, "word " * 120, "def f(x):\n    return x**2\n" * 8]
)


def turn(index: int, role: str, text: str, **fields) -> Turn:
    calls = fields.get("tool_calls", ())
    results = fields.get("tool_results", ())
    counted = "\n".join(
        part
        for part in (
            text,
            "".join(f'[{{"arguments":{{"q":"{c.arguments["q"]}"}},"id":"{c.id}","name":"{c.name}"}}]' for c in calls),
            "".join(f'[{{"content":"{r.content}","id":"{r.id}"}}]' for r in results),
        )
        if part
    )
    return Turn(
        id=f"T{index}",
        conversation="C",
        seq=index,
        position=index,
        role=role,
        actor={"user": "ada", "assistant": "bot"}.get(role, role),
        content=text,
        created=START + timedelta(minutes=7 * index),
        token_count=COUNT(counted) if counted else 0,
        **fields,
    )


@st.composite
def histories(draw, long_tool_loop: bool = False) -> list[Turn]:
    turns: list[Turn] = []
    steps = st.sampled_from(["user", "assistant", "tools", "broken", "orphan"])
    program = draw(st.lists(steps, max_size=30))
    if long_tool_loop:
        program += ["user", *["tools"] * draw(st.integers(1, 25))]
    for step in program:
        index = len(turns)
        if step in ("user", "assistant"):
            turns.append(turn(index, step, draw(words)))
        elif step == "orphan":
            turns.append(turn(index, "tool", "", tool_results=(ToolResult("nobody", "x"),)))
        else:
            ids = [f"c{index}_{n}" for n in range(draw(st.integers(1, 3)))]
            calls = tuple(ToolCall(id, "look", {"q": "nuts"}) for id in ids)
            turns.append(turn(index, "assistant", draw(words), tool_calls=calls))
            if step == "tools":
                for id in ids:
                    result = (ToolResult(id, draw(words)),)
                    turns.append(turn(len(turns), "tool", "", tool_results=result))
    return turns


@st.composite
def materials(draw, long_tool_loop: bool = False) -> Material:
    turns = draw(histories(long_tool_loop))
    older = draw(st.sampled_from([0, 0, 40]))
    shifted = [_shift(one, older) for one in turns]
    summaries = [_summary(0, older, draw(words))] if older and draw(st.booleans()) else []
    cuts = [one.position for one in shifted if one.role == "user"]
    if cuts and draw(st.booleans()):
        cut = draw(st.sampled_from(cuts))
        start = summaries[-1].through_seq if summaries else 0
        if cut > start:
            summaries.append(_summary(start, cut, draw(words), turns=cut - start))
    users = [one for one in shifted if one.role == "user"]
    # Recalled turns lie before the tail where there is something before it, and elsewhere otherwise.
    first = 0 if older else 1000
    found = [turn(first + n, "user", draw(words)) for n in range(draw(st.integers(0, 6)))]
    recalled = [
        RecalledTurn(one if older else replace(one, conversation="D"), 1.0 / (n + 1)) for n, one in enumerate(found)
    ]
    return Material(
        turn_count=older + len(shifted),
        owner="ada",
        conversation="C",
        tail=tuple(shifted),
        current=users[-1] if users else None,
        summaries=tuple(summaries),
        memory_lines=tuple(draw(st.lists(words.filter(bool), max_size=4))),
        recalled=tuple(recalled),
        counter=COUNT.name,
    )


def _shift(one: Turn, by: int) -> Turn:
    return replace(one, position=one.position + by, seq=one.seq + by, id=f"T{one.seq + by}")


def _summary(start: int, end: int, text: str, turns: int | None = None) -> Summary:
    return Summary(
        id=f"S{start}",
        level=0,
        from_seq=start,
        through_seq=end,
        text=text,
        model="test",
        token_count=COUNT(text),
        turns=end - start if turns is None else turns,
        created=START,
    )


OPTIONS = st.builds(
    Options,
    policy=st.sampled_from(list(POLICIES.values())),
    token_budget=st.integers(20, 2_000),
    instructions=st.sampled_from([None, "Answer briefly."]),
    recall=st.booleans(),
    recent_turns=st.sampled_from([None, None, 3]),
    viewer=st.sampled_from([None, None, "bot"]),
    filter_participants=st.sampled_from([None, None, frozenset({"ada", "bot"}), frozenset({"ada"})]),
    note_omissions=st.booleans(),
    shorten=st.booleans(),
)

quick = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
long = settings(max_examples=10_000, deadline=None, suppress_health_check=list(HealthCheck))


def check(material: Material, options: Options) -> None:
    try:
        context = pack_context(material, options, COUNT)
    except BudgetTooSmall as problem:
        too_small = problem.needed > problem.budget
    else:
        too_small = check_context(material, options, context)
    assert too_small, "a budget was refused that would have done"


def check_context(material: Material, options: Options, context: Context) -> bool:
    explanation = context.explain()
    assert context.tokens <= explanation.budget
    added = explanation.budget - options.budget
    assert added == 0 or (options.policy.added_summaries and added <= options.budget * 0.3 + 400)
    assert COUNT(context.text) <= context.tokens, "the rendered text is larger than the figure"
    check_pairs(context.messages)
    check_anthropic(context.to_anthropic())
    check_responses(context.to_responses())
    check_current(material, context)
    check_accounting(material, context)
    again = pack_context(material, options, COUNT)
    assert again.messages == context.messages
    assert str(again.explain()) == str(context.explain())
    return True


def check_pairs(messages) -> None:
    waiting: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] in waiting, "a result without its call right before it"
            waiting.remove(message["tool_call_id"])
        else:
            assert not waiting, "a call without its result right behind it"
            waiting = [call["id"] for call in message.get("tool_calls", ())]
    assert not waiting
    roles = [message["role"] for message in messages]
    assert "system" not in roles[1:]


def check_anthropic(body) -> None:
    roles = [message["role"] for message in body["messages"]]
    assert all(a != b for a, b in pairwise(roles))
    assert not roles or roles[0] == "user"
    used: list[str] = []
    for message in body["messages"]:
        results = [block["tool_use_id"] for block in message["content"] if block["type"] == "tool_result"]
        assert sorted(results) == sorted(used)
        used = [block["id"] for block in message["content"] if block["type"] == "tool_use"]
        assert message["content"], "an empty message"
    assert not used


def check_responses(items) -> None:
    calls = [item["call_id"] for item in items if item.get("type") == "function_call"]
    outputs = [item["call_id"] for item in items if item.get("type") == "function_call_output"]
    assert calls == outputs or sorted(calls) == sorted(outputs)


def check_current(material: Material, context) -> None:
    if material.current is not None:
        assert material.current.id in context.turn_ids
        assert any(
            message["role"] == "user" and message["content"].endswith(material.current.text)
            for message in context.messages
        )


def check_accounting(material: Material, context) -> None:
    explanation = context.explain()
    own = {one.id for one in material.tail} | ({material.current.id} if material.current else set())
    own |= {one.turn.id for one in material.recalled if one.turn.conversation == "C"}
    shown = {id for block in explanation.blocks for id in block.turn_ids} & own
    left = sum(one.turns for one in explanation.left_out)
    assert len(shown) + left == explanation.turns_total, str(explanation)
    assert sum(block.tokens for block in explanation.blocks) <= context.tokens


@pytest.mark.costly
@quick
@given(materials(), OPTIONS)
def test_every_context_keeps_its_promises(material, options):
    check(material, options)


@pytest.mark.costly
@quick
@given(materials(long_tool_loop=True), OPTIONS)
def test_every_context_inside_a_long_tool_loop_keeps_its_promises(material, options):
    check(material, options)


@pytest.mark.slow
@long
@given(materials(), OPTIONS)
def test_ten_thousand_contexts_keep_their_promises(material, options):
    check(material, options)


@pytest.mark.slow
@long
@given(materials(long_tool_loop=True), OPTIONS)
def test_ten_thousand_tool_loops_keep_their_promises(material, options):
    check(material, options)
