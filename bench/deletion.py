"""Deleting a long conversation while others write: how long their appends take, compared with the same run before it.

On SQLite, and on Postgres where a server can be started.

Another task of the same process and another process append a short turn every few milliseconds, first alone for several
rounds, then during the deletion. What is compared is the longest append of each, over a similar time; the longest of
each round is printed. PALAVER_BENCH_FILE names an SQLite file with a conversation `big`, which is copied instead of
filling a new one; PALAVER_BENCH_WAY is `forget` (the default), `reset`, `expire` or `sweep`.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import time
from asyncio.subprocess import PIPE
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import quantiles

import palaver
from bench import postgres
from bench.measure import Bench, Figure, Goal, Result, Skipped
from palaver import Conversation, Store

FILE, WAY = "PALAVER_BENCH_FILE", "PALAVER_BENCH_WAY"
PAUSE = 0.01  # between two appends of a writer
ROUNDS = 5  # before the deletion
ROUND_SECONDS, SHORT_ROUND_SECONDS = 10.0, 1.0  # the second where few turns are deleted, which takes a few seconds
MANY = 500_000  # turns
EXTRA_MILLISECONDS = 50.0  # how much longer than before an append may take
HIDDEN = Goal(50, at_least=False, of="value")


@dataclass(slots=True)
class Latencies:
    """How long appends took, in milliseconds, and when each began."""

    found: list[tuple[float, float]] = field(default_factory=list)

    def between(self, start: float, end: float) -> list[float]:
        return [took for at, took in self.found if start <= at < end] or [0.0]

    def longest(self, start: float, end: float, seconds: float) -> list[float]:
        """Return the longest one of each round of so many seconds."""
        starts = [start + seconds * n for n in range(max(1, round((end - start) / seconds)))]
        return [max(self.between(one, min(one + seconds, end))) for one in starts]


def spread(values: list[float]) -> str:
    cuts = quantiles(values, n=100) if len(values) > 1 else values * 99
    return f"p50 {cuts[49]:.1f}, p99 {cuts[98]:.1f}, max {max(values):.1f} ms of {len(values)}"


async def keep_appending(talk: Conversation, latencies: Latencies) -> None:
    while True:
        start = time.perf_counter()
        await talk.append("user", "a short turn of another conversation")
        latencies.found.append((time.time(), (time.perf_counter() - start) * 1_000))
        await asyncio.sleep(PAUSE)


async def append_from_here(url: str) -> None:
    """Append until the standard input ends, then print the latencies. This is the other process."""
    latencies = Latencies()
    async with palaver.open(url, embedder="none", worker=False) as store:
        writer = asyncio.create_task(keep_appending(await store.conversation("other process"), latencies))
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)
        writer.cancel()
        with suppress(asyncio.CancelledError):
            await writer
    print(json.dumps(latencies.found))


async def fill(store: Store, turns: int) -> None:
    talk = await store.conversation("big")
    for first in range(0, turns, 1_000):
        batch = [
            {"role": "user", "content": f"turn number {n} about topic {n % 997}"} for n in range(first, first + 1_000)
        ]
        await talk.append_many(batch[: turns - first])
    await talk.search("topic")  # the text index is complete


async def delete(store: Store, way: str) -> float:
    """Delete the long conversation in one of the ways. Returns after how many milliseconds it could not be read."""
    talk = await store.conversation("big")
    if way == "expire":
        await talk.update(ttl=0.001)
        await asyncio.sleep(0.01)
    start = time.perf_counter()
    work = {
        "forget": talk.forget,
        "reset": talk.reset,
        "expire": store.expire,
        "sweep": lambda: store.sweep(retention_minutes=0.00001),
    }[way]()
    task = asyncio.ensure_future(work)
    hidden = 0.0
    with suppress(palaver.PalaverError):
        while not task.done() and way != "sweep":
            await talk.history(limit=1)
            hidden = (time.perf_counter() - start) * 1_000
            await asyncio.sleep(0.001)
    await task
    return hidden


@dataclass(frozen=True, slots=True)
class Run:
    """Each writer's latencies, when the baseline and the deletion began and when that ended."""

    writers: dict[str, Latencies]
    start: float
    begun: float
    end: float
    hidden: float  # how long the conversation could be read, in milliseconds


async def measured(url: str, turns: int, way: str) -> Run:
    async with palaver.open(url, embedder="none", worker=False) as store:
        if not (await store.conversations(limit=1)).items:
            await fill(store, turns)
        command = [sys.executable, "-m", "bench.deletion", url]
        other = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, limit=2**30)
        assert other.stdout is not None
        await other.stdout.readline()
        here, there = Latencies(), Latencies()
        task = asyncio.create_task(keep_appending(await store.conversation("other task"), here))
        start = time.time()
        await asyncio.sleep(ROUNDS * round_seconds(turns))
        begun = time.time()
        hidden = await delete(store, way)
        end = time.time()
        task.cancel()
        out, _ = await other.communicate(b"")
        there.found = json.loads(out)
    return Run({"task": here, "process": there}, start, begun, end, hidden)


def round_seconds(turns: int) -> float:
    return ROUND_SECONDS if turns >= MANY else SHORT_ROUND_SECONDS


async def run(bench: Bench) -> list[Result]:
    turns, way = max(bench.sizes.histories), os.environ.get(WAY, "forget")
    path = bench.folder / "deletion.db"
    if FILE in os.environ:
        shutil.copy(Path(os.environ[FILE]), path)
    results = await _figures("SQLite", f"sqlite:///{path}", turns, way)
    try:
        async with postgres.database() as made:
            return [*results, *await _figures("Postgres", made.url, turns, way)]
    except postgres.NoServer as reason:
        return [*results, Skipped("deletion on Postgres", str(reason))]


async def _figures(engine: str, url: str, turns: int, way: str) -> list[Result]:
    run = await measured(url, turns, way)
    suite = f"deletion on {engine}"
    results: list[Result] = []
    for name, one in run.writers.items():
        before, during = one.between(run.start, run.begun), one.between(run.begun, run.end)
        print(f"{engine}, {way}, other {name}: before {spread(before)}; during {spread(during)}", file=sys.stderr)
        for when, start, end in (("before", run.start, run.begun), ("during", run.begun, run.end)):
            rounds = one.longest(start, end, round_seconds(turns))
            print(f"  longest of each round {when}: {', '.join(f'{ms:.0f}' for ms in rounds)} ms", file=sys.stderr)
        extra = max(during) - max(before)
        goal = Goal(EXTRA_MILLISECONDS, at_least=False, of="value")
        results.append(
            Figure(suite, f"longest append of another {name}, beyond its own before", extra, "ms", goal=goal)
        )
    results.append(Figure(suite, "visible after the call", run.hidden, "ms", goal=HIDDEN))
    results.append(Figure(suite, f"{way} of {turns:,} turns", run.end - run.begun, "s"))
    return results


if __name__ == "__main__":
    asyncio.run(append_from_here(sys.argv[1]))
