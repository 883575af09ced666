"""Reading the last 4,000 tokens of conversations that are short, long and very long."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import palaver
from bench.measure import Bench, Figure, Goal, Result, Rounds, Slice, in_turns, settle
from bench.raw import Raw

TOKENS = 4_000
BATCH = 1_000  # as many as one call takes
FLAT = Goal(2.0, at_least=False)


async def run(bench: Bench) -> list[Result]:
    async with AsyncExitStack() as stack:
        talks = {turns: await _open(bench, stack, turns) for turns in bench.sizes.histories}
        raws = {turns: await _open_raw(bench, stack, turns) for turns in bench.sizes.histories}
        limit = await enough(talks[bench.sizes.histories[0]])
        rounds = await in_turns(bench.sizes.slices, _readers(bench, talks, raws, limit))
    return list(_figures(bench, rounds, limit))


async def enough(talk: palaver.Conversation) -> int:
    """How many of the last turns hold 4,000 tokens."""
    tokens = 0
    turns = await talk.history(limit=TOKENS)
    for count, turn in enumerate(reversed(turns), 1):
        tokens += turn.token_count
        if tokens >= TOKENS:
            return count
    return max(len(turns), 1)


def _readers(
    bench: Bench, talks: dict[int, palaver.Conversation], raws: dict[int, Raw], limit: int
) -> dict[str, Slice]:
    def ours(talk: palaver.Conversation) -> Slice:
        async def read(_: object) -> None:
            for _ in range(bench.sizes.reads):
                await talk.history(limit=limit)

        return read

    def bare(raw: Raw) -> Slice:
        async def read(_: object) -> None:
            for _ in range(bench.sizes.reads):
                raw.last(limit)

        return read

    return {f"ours-{turns}": ours(talk) for turns, talk in talks.items()} | {
        f"raw-{turns}": bare(raw) for turns, raw in raws.items()
    }


def _figures(bench: Bench, rounds: Rounds, limit: int) -> list[Figure]:
    figures = []
    for turns in bench.sizes.histories:
        ours, bare = f"ours-{turns}", f"raw-{turns}"
        each, raw_each = (rounds.seconds(name) / bench.sizes.reads * 1_000 for name in (ours, bare))
        paired = rounds.times(ours, bare)
        what = f"last {limit} turns of {turns:,}"
        figures.append(Figure("read", what, each, "ms", raw_each, "raw select", paired=paired))
    slowest, fastest = max(figures, key=lambda one: one.value), min(figures, key=lambda one: one.value)
    what = f"flat from {bench.sizes.histories[0]:,} to {bench.sizes.histories[-1]:,}"
    return [*figures, Figure("read", what, slowest.value, "ms", fastest.value, "the fastest of these", FLAT)]


# ---- filling -------------------------------------------------------------------------------------------------------


async def _open(bench: Bench, stack: AsyncExitStack, turns: int) -> palaver.Conversation:
    store = await stack.enter_async_context(palaver.open(bench.url(f"read-{turns}.db", "NORMAL"), embedder=None))
    talk = await store.conversation("long")
    await fill(bench, talk, turns)
    await settle(store)
    return talk


async def fill(bench: Bench, talk: palaver.Conversation, turns: int) -> None:
    for start in range(0, turns, BATCH):
        contents = bench.texts.messages(min(BATCH, turns - start))
        await talk.append_many({"role": "user", "content": content} for content in contents)


async def _open_raw(bench: Bench, stack: AsyncExitStack, turns: int) -> Raw:
    raw = Raw(bench.folder / f"raw-{turns}.db", "NORMAL")
    stack.callback(raw.close)
    await asyncio.to_thread(fill_raw, bench, raw, turns)
    return raw


def fill_raw(bench: Bench, raw: Raw, turns: int) -> None:
    for start in range(0, turns, BATCH):
        raw.append_many(bench.texts.messages(min(BATCH, turns - start)))
