"""While a worker computes, the threads of a process take turns more often, so that an append does not wait for it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

import palaver
from palaver.memory.worker.throttle import SWITCH_SECONDS, QuickSwitches
from palaver.testing import HashEmbedder


class RecordingEmbedder(HashEmbedder):
    """Records how often threads take turns while it is called."""

    def __init__(self) -> None:
        super().__init__()
        self.intervals: list[float] = []
        self.called = asyncio.Event()

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.intervals.append(sys.getswitchinterval())
        self.called.set()
        return await super().embed(texts)


async def test_threads_take_turns_more_often_while_jobs_run(tmp_path: Path) -> None:
    before, embedder = sys.getswitchinterval(), RecordingEmbedder()
    async with palaver.open(f"sqlite:///{tmp_path / 'a.db'}", embedder=embedder) as store:
        await (await store.conversation()).append("user", "Hello there.")
        async with asyncio.timeout(60):
            await embedder.called.wait()
    assert max(embedder.intervals) <= SWITCH_SECONDS + 1e-6
    assert sys.getswitchinterval() == before


def test_the_interval_is_put_back_by_the_last_worker() -> None:
    before, switches = sys.getswitchinterval(), QuickSwitches()
    with switches:
        with switches:
            pass
        assert sys.getswitchinterval() < before
    assert sys.getswitchinterval() == before
