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
LONG = 10_000  # turns that are summarised for longer than the measuring takes


async def run(bench: Bench) -> list[Result]:
    async with AsyncExitStack() as stack:
        talks = {turns: await _open(bench, stack, turns) for turns in bench.sizes.histories}
        raws = {turns: await _open_raw(bench, stack, turns) for turns in bench.sizes.histories}
        limit = await enough(talks[bench.sizes.histories[0]])
        rounds = await in_turns(bench.sizes.slices, _readers(bench, talks, raws, limit))
    figures = _figures(bench, rounds, limit)
    if bench.sizes.histories[-1] >= LONG:
        figures.append(await _beside_the_worker(bench, limit, at_rest=figures[len(talks) - 1].value))
    return list(figures)


async def enough(talk: palaver.Conversation) -> int:
    """Return how many of the last turns have 4,000 tokens."""
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
    def bare(raw: Raw) -> Slice:
        async def read(_: object) -> None:
            for _ in range(bench.sizes.reads):
                raw.last(limit)

        return read

    return {f"ours-{turns}": _reader(bench, talk, limit) for turns, talk in talks.items()} | {
        f"raw-{turns}": bare(raw) for turns, raw in raws.items()
    }


def _reader(bench: Bench, talk: palaver.Conversation, limit: int) -> Slice:
    async def read(_: object) -> None:
        for _ in range(bench.sizes.reads):
            await talk.history(limit=limit)

    return read


async def _beside_the_worker(bench: Bench, limit: int, at_rest: float) -> Figure:
    """Measure the same while this process summarises the longest conversation, which takes longer."""
    turns = bench.sizes.histories[-1]
    async with palaver.open(_url(bench, turns), embedder=None) as store:
        talk = await store.conversation("long")
        while not await talk.summaries():  # noqa: ASYNC110  # the worker begins when nobody writes
            await asyncio.sleep(0.05)
        rounds = await in_turns(bench.sizes.slices, {"ours": _reader(bench, talk, limit)})
    each = rounds.seconds("ours") / bench.sizes.reads * 1_000
    what = f"last {limit} turns of {turns:,}, which are being summarised"
    return Figure("read", what, each, "ms", at_rest, "at rest")


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
    # Without a worker: five of them in one process, each with a backlog, would be measured instead.
    store = await stack.enter_async_context(palaver.open(_url(bench, turns), embedder=None, worker=False))
    talk = await store.conversation("long")
    await fill(bench, talk, turns)
    await settle(store)
    return talk


def _url(bench: Bench, turns: int) -> str:
    return bench.url(f"read-{turns}.db", "NORMAL")


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
