"""Whole conversations: verifying and exporting. For information."""

from __future__ import annotations

import asyncio
import hashlib
import json

import palaver
from bench.measure import Bench, Result, in_turns, settle
from bench.raw import Raw
from bench.read import fill, fill_raw
from palaver.interchange.jsonl import export_lines


async def run(bench: Bench) -> list[Result]:
    turns = bench.sizes.file_turns
    raw = Raw(bench.folder / "whole-raw.db", "NORMAL")
    fill_raw(bench, raw, turns)
    async with palaver.open(bench.url("whole.db", "NORMAL"), embedder=None) as store:
        talk = await store.conversation("whole")
        await fill(bench, talk, turns)
        await settle(store)
        rounds = await in_turns(
            max(bench.sizes.slices // 3, 1),
            {
                "verify": lambda _: talk.verify(),
                "export": lambda _: _export(talk),
                "hash": lambda _: asyncio.to_thread(_hash, raw),
                "dump": lambda _: asyncio.to_thread(_dump, raw),
            },
        )
    raw.close()
    hashed, dumped = "raw scan, one SHA-256 per row", "raw scan, one JSON line per row"
    return [
        rounds.speed("whole", "verify", turns, "verify", "hash", unit="turns/s", than=hashed),
        rounds.speed("whole", "export", turns, "export", "dump", unit="turns/s", than=dumped),
    ]


async def _export(talk: palaver.Conversation) -> None:
    async for _ in export_lines(talk):
        pass


def _hash(raw: Raw) -> None:
    for row in raw.everything():
        hashlib.sha256(repr(row).encode()).digest()


def _dump(raw: Raw) -> None:
    for row in raw.everything():
        json.dumps(row)
