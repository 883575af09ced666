"""Compaction end to end, on a conversation of 10,000 turns."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import palaver
from palaver.context.explain import Explanation
from palaver.memory.compaction import FAN_OUT
from tests.support.memory import Watched, spans, talk_on, url

pytestmark = [pytest.mark.costly, pytest.mark.both_engines, pytest.mark.usefixtures("engine")]

TURNS = 10_000
PROBES = {7: "The cellar key hangs behind the blue clock.", 5_001: "My aunt Wilhelmina keeps nine llamas."}


def accounted_for(explanation: Explanation) -> set[int]:
    """The positions that are word for word in the prompt, in a summary that is in it, or in a named omission."""
    found: set[int] = set()
    for part in (*explanation.blocks, *explanation.left_out):
        if part.from_seq is not None and part.through_seq is not None and getattr(part, "kind", "") != "recalled":
            found.update(range(part.from_seq, part.through_seq))
    return found


@pytest.mark.long_on_postgres
async def test_ten_thousand_turns_end_to_end(tmp_path: Path) -> None:
    writer = Watched()
    options: dict[str, Any] = {"summarizer": writer, "model_calls_per_day": None}
    async with palaver.open(url(tmp_path), embedder=None, worker=False, **options) as store:
        talk = await store.conversation()
        await talk_on(talk, 4)
        for position, text in sorted(PROBES.items()):
            await talk_on(talk, position - (await talk.refresh()).next_seq)
            await talk.append("user", text)
        await talk_on(talk, TURNS - (await talk.refresh()).next_seq)
        await store.settle()
        found = await talk.summaries()
        levels = max(one.level for one in found) + 1

        # Nothing is summarised twice, and seldom enough.
        assert len(writer.read) <= TURNS / 25 * 1.1
        assert sorted(writer.read) == spans(found)
        assert TURNS - spans(found)[-1][1] < 50

        for budget in (500, 1_500, 4_000, 20_000):
            ctx = await talk.build_context(budget, query="Where is the cellar key?")
            explanation = ctx.explain()
            assert ctx.tokens <= budget
            assert accounted_for(explanation) == set(range(TURNS)), f"a hole, with {budget} tokens"
            shown = re.findall(r"SUMMARY of (\d+) to (\d+)", ctx.text)
            assert 0 < len(shown) <= FAN_OUT * levels
            assert "blue clock" in ctx.text
            assert explanation.turns_total == TURNS

        # Half-way through it: the window starts inside the widest summary, and there is still no hole.
        ctx = await talk.build_context(150_000, semantic_recall=False)
        assert accounted_for(ctx.explain()) == set(range(TURNS))
        assert len(re.findall(r"SUMMARY of", ctx.text)) <= FAN_OUT * levels
        await store.settle()
        assert len(writer.read) == len(set(writer.read)), "no span was summarised twice"


@pytest.mark.parametrize("budget", [400, 4_000])
async def test_the_summaries_of_a_context_grow_with_the_logarithm_of_the_thread(tmp_path: Path, budget: int) -> None:
    writer = Watched()
    options: dict[str, Any] = {"summarizer": writer, "model_calls_per_day": None}
    async with palaver.open(url(tmp_path), embedder=None, worker=False, **options) as store:
        talk = await store.conversation()
        for _ in range(6):
            await talk_on(talk, 300)
            await store.settle()
            levels = max(one.level for one in await talk.summaries()) + 1
            ctx = await talk.build_context(budget, semantic_recall=False)
            assert len(re.findall("SUMMARY of", ctx.text)) <= FAN_OUT * levels
