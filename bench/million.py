"""`python -m bench.million FILE`: the whole of `recall()` on SQLite with 100,000 and with 1,000,000 turns in scope.

The file is made if it does not exist, which takes minutes: one tenant with 1,000,000 turns, each with a generated
vector in groups, as turns about the same things are. One owner has 100,000 turns in 100 conversations, another has
100,000 in one. The question's vector is generated, too; the time of the encoder is not part of it. Warm figures are
medians of 15 questions, in wall-clock time and processor time of the whole process; cold is the first question after
opening.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import palaver
from bench.texts import Texts
from palaver import Conversation, Scope, Store
from palaver.conversations.internals import engine_of
from palaver.ports.recall import Embedded

OWNERS = {"a": (800, 1_000), "b": (100, 1_000), "c": (1, 100_000)}  # conversations, and turns of each
CASES = (
    ("100,000 turns of an owner, 100 conversations", "b", "owner"),
    ("100,000 turns of one conversation", "c", "conversation"),
    ("1,000,000 turns of a tenant, 901 conversations", "a", "tenant"),
)
BATCH, QUESTIONS, GROUPS, NOISE = 1_000, 15, 5_000, 0.7
Floats = NDArray[np.float32]


class Generated:
    """An embedder whose vectors have nothing to do with the text."""

    name, dimensions, typical_cosine = "generated-384", 384, 0.2

    def __init__(self, seed: int = 5) -> None:
        self.centres = np.random.default_rng(1).standard_normal((GROUPS, self.dimensions)).astype(np.float32)
        self.chance = np.random.default_rng(seed)

    def some(self, count: int) -> Floats:
        moved = self.centres[self.chance.integers(0, GROUPS, count)]
        moved += self.chance.standard_normal(moved.shape).astype(np.float32) * np.float32(NOISE)
        unit: Floats = moved / np.linalg.norm(moved, axis=1, keepdims=True)
        return unit

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        listed: list[list[float]] = self.some(len(texts)).tolist()
        return listed


def _open(file: Path) -> Any:
    return palaver.open(f"sqlite:///{file}?synchronous=NORMAL", embedder=Generated(), worker=False)


async def make(file: Path) -> None:
    texts = Texts()
    async with _open(file) as store:
        for owner, (conversations, turns) in OWNERS.items():
            mine = store.scoped(Scope.of(store.scope.tenant, owner))
            for number in range(conversations):
                talk = await mine.conversation(f"{owner}/{number}")
                for _ in range(0, turns, BATCH):
                    roles = ("user", "assistant")
                    said = enumerate(texts.messages(BATCH))
                    await talk.append_many({"role": roles[n % 2], "content": text} for n, text in said)
        await engine_of(store).index_all()
        await _embed(store)


async def _embed(store: Store) -> None:
    made = Generated(seed=1)
    while batch := await engine_of(store).to_embed(made.name, 4_000):
        halves = made.some(len(batch)).astype(np.float16)
        vectors = tuple((one.pid, one.tid, one.part, half.tobytes()) for one, half in zip(batch, halves, strict=True))
        passages = tuple((one.pid, one.turn) for one in batch)
        await engine_of(store).put_embedded(made.name, Embedded(passages=passages, vectors=vectors))


async def ask(talk: Conversation, texts: Texts, scope: str) -> tuple[float, float]:
    question = " ".join(texts.message(120).split()[:8]) + "?"
    wall, used = time.perf_counter(), time.process_time()
    await talk.recall(question, k=10, scope=scope)  # type: ignore[arg-type]
    return (time.perf_counter() - wall) * 1_000, (time.process_time() - used) * 1_000


def resident() -> int:
    """Return the resident memory of this process in MB."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) // 1_024


async def measure(file: Path) -> None:
    turns = sum(conversations * each for conversations, each in OWNERS.values())
    print(f"{file.stat().st_size / turns:,.0f} bytes per turn in the file")
    for what, owner, scope in CASES:
        async with _open(file) as store:
            talk = await store.scoped(Scope.of(store.scope.tenant, owner)).conversation(f"{owner}/0")
            texts, before = Texts(9), resident()
            cold, _ = await ask(talk, texts, scope)
            await ask(talk, texts, scope)
            wall, used = zip(*[await ask(talk, texts, scope) for _ in range(QUESTIONS)], strict=True)
            print(
                f"{what}: {statistics.median(wall):.0f} ms of wall-clock time (fastest {min(wall):.0f}), "
                f"{statistics.median(used):.0f} ms of processor time; cold {cold / 1_000:.1f} s; "
                f"{resident() - before} MB more"
            )


if __name__ == "__main__":
    chosen = Path(sys.argv[1])
    if not chosen.exists():
        asyncio.run(make(chosen))
    asyncio.run(measure(chosen))
