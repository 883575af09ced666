"""Bytes on disk per turn, everything included: rows, text index, log."""

from __future__ import annotations

import palaver
from bench.append import append_each
from bench.measure import Bench, Figure, Goal, Result
from bench.raw import Raw, bytes_of
from bench.read import fill, fill_raw
from bench.texts import MESSAGE_BYTES

SMALL = Goal(1_000, at_least=False, of="value")


async def run(bench: Bench) -> list[Result]:
    turns = bench.sizes.file_turns
    raw = Raw(bench.folder / "size-raw.db", "NORMAL")
    fill_raw(bench, raw, turns)
    raw.close()
    bare = bytes_of(raw.path) / turns
    async with palaver.open(bench.url("size-one.db", "NORMAL"), embedder=None) as store:
        await append_each([await store.conversation("one")], bench.texts.messages(turns))
    async with palaver.open(bench.url("size-many.db", "NORMAL"), embedder=None) as store:
        await fill(bench, await store.conversation("many"), turns)
    return [
        Figure(
            "size", f"{turns:,} turns of {MESSAGE_BYTES} bytes, {how}", bytes_of(bench.folder / file) / turns,
            "B/turn", bare, "raw table", SMALL, "closed file",
        )
        for how, file in (("one append each", "size-one.db"), ("in batches", "size-many.db"))
    ]  # fmt: skip
