"""Durable appends: one writer, and sixteen at once, against bare inserts at the same durability."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import palaver
from bench.measure import Bench, Figure, Goal, Result, Rounds, Slice, in_turns, settle
from bench.raw import Raw
from bench.syncs import counted

ALONE = "1 writer"
SINGLE = Goal(0.5)
MANY = Goal(1.5)
SYNCS = Goal(0.15, at_least=False, of="value")


async def run(bench: Bench) -> list[Result]:
    *speeds, cost = await _speeds(bench, "FULL", (SINGLE, None, MANY, MANY))
    return [
        *speeds,
        cost,
        _fsync(bench, cost.baseline),
        *await _speeds(bench, "NORMAL", (None,) * 4),
        await _fsyncs(bench, writers=1),
        await _fsyncs(bench, bench.sizes.writers, SYNCS),
    ]


def _fsync(bench: Bench, raw: float | None) -> Figure:
    """Time one fsync of the disk, which every durable write waits for."""
    pages, page = 1_000, b"p" * 4_096
    taken: list[float] = []
    with open(bench.folder / "disk", "w+b", buffering=0) as file:
        file.write(page * pages)
        os.fsync(file.fileno())
        for number in range(pages):
            os.pwrite(file.fileno(), page, number * len(page))
            started = time.perf_counter()
            os.fdatasync(file.fileno())
            taken.append(time.perf_counter() - started)
    return Figure("append", "an fsync of this disk", statistics.median(taken) * 1_000_000, "µs", raw, "a raw insert")


async def _speeds(bench: Bench, synchronous: str, goals: Sequence[Goal | None]) -> list[Figure]:
    raw = Raw(bench.folder / f"raw-{synchronous}.db", synchronous)
    count = bench.sizes.slice
    async with palaver.open(bench.url(f"append-{synchronous}.db", synchronous), embedder=None) as store:
        ours = await _contestants(bench, store)
        rounds = await in_turns(
            bench.sizes.slices,
            {"raw": lambda messages: append_raw(raw, messages), **ours},
            material=lambda: bench.texts.messages(count),
            after=lambda: settle(store),
        )
    raw.close()
    than = f"raw inserts, {synchronous}, one writer"
    return [
        *(
            rounds.speed("append", f"{name}, {synchronous}", count, name, "raw", than=than, goal=goal)
            for name, goal in zip(ours, goals, strict=True)
        ),
        _cost(rounds, count, synchronous),
    ]


def _cost(rounds: Rounds, count: int, synchronous: str) -> Figure:
    """Show the cost of an append without the fsync: the ratio alone depends on the speed of the disk."""
    ours, bare = (rounds.seconds(name) / count * 1_000_000 for name in (ALONE, "raw"))
    return Figure(
        "append",
        f"{ALONE}, {synchronous}: time per append",
        ours,
        "µs",
        bare,
        "the same",
        note=f"of which {ours - bare:,.0f} µs are ours",
    )


async def _contestants(bench: Bench, store: palaver.Store) -> dict[str, Slice]:
    """Return the contestants. Each includes the work that the store postpones, except the one that says so."""
    writers = bench.sizes.writers
    alone = [await store.conversation("alone")]
    shared = [await store.conversation("shared")] * writers
    apart = [await store.conversation(f"apart/{number}") for number in range(writers)]
    return {
        ALONE: lambda messages: append_all(store, alone, messages),
        f"{ALONE}, until acknowledged": lambda messages: append_each(alone, messages),
        f"{writers} writers, 1 conversation": lambda messages: append_all(store, shared, messages),
        f"{writers} writers, {writers} conversations": lambda messages: append_all(store, apart, messages),
    }


async def _fsyncs(bench: Bench, writers: int, goal: Goal | None = None) -> Figure:
    """Count real fsync calls, checkpoints included. This is a separate pass, because counting takes time."""
    messages = bench.texts.messages(bench.sizes.slice * bench.sizes.slices // 2)
    bare = _raw_fsyncs(bench.folder / f"raw-syncs-{writers}.db", messages)
    with counted() as syncs:
        async with palaver.open(bench.url(f"syncs-{writers}.db"), embedder=None) as store:
            talks = [await store.conversation("shared")] * writers
            before = syncs.count
            await append_all(store, talks, messages)
            found = (syncs.count - before) / len(messages)
    commits = await _commits(bench.url(f"commits-{writers}.db"), writers, messages)
    what = f"fsyncs per append, {writers} writer{'s' if writers > 1 else ''}, FULL"
    note = f"counted in SQLite's file layer; without that layer in the way, {commits:.3f} commits per append"
    return Figure("append", what, found, "", bare, "raw inserts", goal, note)


async def _commits(url: str, writers: int, messages: Sequence[str]) -> float:
    """Count commits per append at full speed."""
    async with palaver.open(url, embedder=None) as store:
        talks = [await store.conversation("shared")] * writers
        before = (await store.stats()).storage["commits"]
        await append_all(store, talks, messages)
        return ((await store.stats()).storage["commits"] - before) / len(messages)


def _raw_fsyncs(path: Path, messages: Sequence[str]) -> float:
    with counted() as syncs:
        raw = Raw(path)
        before = syncs.count
        for message in messages:
            raw.append(message)
        found = (syncs.count - before) / len(messages)
        raw.close()
    return found


async def append_raw(raw: Raw, messages: Sequence[str]) -> None:
    for message in messages:
        raw.append(message)


async def append_all(store: palaver.Store, talks: Sequence[palaver.Conversation], messages: Sequence[str]) -> None:
    await append_each(talks, messages)
    await settle(store)


async def append_each(talks: Sequence[palaver.Conversation], messages: Sequence[str]) -> None:
    """Write all messages, with one task per given conversation."""

    async def write(talk: palaver.Conversation, share: Sequence[str]) -> None:
        for message in share:
            await talk.append("user", message)

    await asyncio.gather(*(write(talk, messages[number :: len(talks)]) for number, talk in enumerate(talks)))
