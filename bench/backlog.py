"""`python -m bench.backlog [TURNS]`: how long an append takes while a backlog is embedded and summarised.

Turns are stored without a worker. Then a store with one is opened, and a message is appended every half second: often
enough to measure, seldom enough that the worker does not wait for the writer. The same appends to a store without any
backlog, in the same minute, are the baseline. The last figure is the backlog's own speed.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import palaver
from bench.texts import Texts
from palaver.conversations.internals import engine_of
from palaver.core.validation import MAX_BATCH

TURNS, SECONDS, EVERY, CONVERSATIONS = 5_000, 20.0, 0.5, 10
NAME = "recall-minilm-l6-int8-v1"


async def fill(url: str, turns: int) -> None:
    texts = Texts()
    async with palaver.open(url, embedder=None, worker=False) as store:
        for number in range(CONVERSATIONS):
            talk = await store.conversation(f"backlog/{number}")
            for start in range(0, turns // CONVERSATIONS, MAX_BATCH):
                said = enumerate(texts.messages(min(MAX_BATCH, turns // CONVERSATIONS - start)))
                await talk.append_many({"role": ("user", "assistant")[n % 2], "content": text} for n, text in said)
        await engine_of(store).index_all()


async def appends(url: str, seconds: float) -> tuple[list[float], float]:
    """Append for some time. Returns the time of each append in ms, and passages embedded per processor second."""
    texts, taken = Texts(7), []
    async with palaver.open(url) as store:
        talk = await store.conversation("live")
        await talk.append("user", "The first one opens everything.")
        await asyncio.sleep(2)
        left, used, end = (
            await engine_of(store).embedding_backlog(NAME),
            time.process_time(),
            time.monotonic() + seconds,
        )
        while time.monotonic() < end:
            await asyncio.sleep(EVERY)
            started = time.perf_counter()
            await talk.append("user", texts.message())
            taken.append((time.perf_counter() - started) * 1_000)
        done = left - await engine_of(store).embedding_backlog(NAME)
        speed = done / (time.process_time() - used)
    return taken, speed


async def main(turns: int) -> None:
    with TemporaryDirectory() as folder:
        busy = f"sqlite:///{Path(folder) / 'busy.db'}"
        await fill(busy, turns)
        for name, url in {"idle": f"sqlite:///{Path(folder) / 'idle.db'}", f"backlog of {turns:,} turns": busy}.items():
            taken, speed = await appends(url, SECONDS)
            ranked = sorted(taken)
            print(
                f"{name}: {statistics.median(ranked):.2f} ms in the median, "
                f"{ranked[len(ranked) * 9 // 10]:.2f} ms for nine of ten; "
                f"{max(speed, 0):.0f} passages embedded per second of processor time"
            )


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else TURNS))
