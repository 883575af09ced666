"""Every standing instruction is in the prompt, or named as one that did not fit."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from palaver.context.inputs import Context, Material
from palaver.context.options import POLICIES, Options
from palaver.context.pack import pack_context
from palaver.model import Turn
from palaver.models.tokens import BpeCounter

COUNT = BpeCounter()
START = datetime(2026, 1, 1, tzinfo=UTC)

texts = st.integers(1, 60).map(lambda size: "word " * size)


def turn(index: int, text: str) -> Turn:
    return Turn(
        id=f"T{index}",
        conversation="C",
        seq=index,
        position=index,
        role="user" if index % 2 == 0 else "assistant",
        actor="ada" if index % 2 == 0 else "bot",
        content=text,
        created=START + timedelta(minutes=index),
        token_count=COUNT(text),
    )


@st.composite
def materials(draw) -> Material:
    """Draw a thread with standing instructions and other notes."""
    tail = [
        turn(n, draw(texts) + f"Always say zebra{n} {draw(texts)}.") for n in range(100, 100 + draw(st.integers(2, 40)))
    ]
    kept = [(f'- ada (the user) said: "Always say {n} {draw(texts)}."') for n in range(draw(st.integers(0, 60)))]
    users = [one for one in tail if one.role == "user"]
    return Material(
        turn_count=100 + len(tail),
        owner="ada",
        tail=tuple(tail),
        current=users[-1],
        memory_lines=tuple(f'- "Note {n}."' for n in range(draw(st.integers(0, 30)))),
        standing=tuple(kept),
        counter=COUNT.name,
    )


def check(material: Material, context: Context) -> None:
    system = context.messages[0]["content"] if context.messages[0]["role"] == "system" else ""
    left_out = [line for line in material.standing if line not in system]
    named = [note for note in context.explain().notes if note.startswith("a standing instruction did not fit")]
    assert len(named) == len(left_out)
    assert all(any(note.endswith(line.removeprefix("- ")) for note in named) for line in left_out)
    assert (f"({len(left_out)} standing wishes did not fit: " in system) == bool(left_out)


@pytest.mark.costly
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(materials(), st.integers(1_000, 16_000), st.sampled_from(["balanced", "recall-heavy"]))
def test_each_is_shown_or_named(material: Material, budget: int, policy: str) -> None:
    context = pack_context(material, Options(policy=POLICIES[policy], token_budget=budget), COUNT)
    assert context.tokens <= budget
    assert COUNT(context.text) <= context.tokens
    check(material, context)


def test_they_come_before_other_notes_and_go_beyond_their_share() -> None:
    standing = tuple((f'- ada said: "Always say zebra{n}, whatever the question is."') for n in range(14))
    lines = tuple(f'- "Note {n}."' for n in range(80))
    material = Material(turn_count=0, owner="ada", standing=standing, memory_lines=lines)
    context = pack_context(material, Options(token_budget=1_000), COUNT)
    shown = context.messages[0]["content"].splitlines()
    assert shown[1] == "Standing wishes, as they were said:"
    assert shown[2:16] == list(standing)
    assert context.explain().blocks[0].tokens > 120


def test_a_policy_without_memory_shows_none() -> None:
    material = Material(turn_count=1, owner="ada", tail=(turn(0, "Hi."),), standing=("- x",))
    assert "- x" not in pack_context(material, Options(policy=POLICIES["last-20"], token_budget=1_000), COUNT).text
