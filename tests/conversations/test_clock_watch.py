"""A clock that jumps ahead for a moment makes nothing expire."""

from __future__ import annotations

from pathlib import Path

import palaver
from palaver.conversations.clock_watch import CONFIRM_SECONDS
from palaver.testing import FakeClock


class MachineClock(FakeClock):
    """A machine whose clock can be set, without changing its count of elapsed seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds = 0.0

    def elapsed(self) -> float:
        return self.seconds

    def wait(self, seconds: float) -> None:
        self.advance(seconds)
        self.seconds += seconds


async def test_a_jump_during_a_sweep_deletes_nothing_that_is_not_due(tmp_path: Path) -> None:
    clock = MachineClock()
    async with palaver.open(f"sqlite:///{tmp_path}/a.db", clock=clock, embedder="none", worker=False) as store:
        talk = await store.conversation("k", ttl=1_800)
        await talk.append("user", "hello")
        kept = await store.conversation("kept")
        old = await kept.append("user", "not old enough")
        clock.wait(60)
        clock.advance(3_600)
        assert await store.expire() == []
        swept = await store.sweep(retention_minutes=30)
        assert (swept.conversations, swept.turns) == ((), 0)
        clock.advance(-3_600)
        assert (await store.sweep(retention_minutes=30)).conversations == ()
        assert len(await talk.history()) == 1
        assert await kept.history() == [old]
        clock.wait(1_800)
        assert await store.expire() == [talk.id]


async def test_a_clock_that_stays_where_it_jumped_is_believed(tmp_path: Path) -> None:
    clock = MachineClock()
    async with palaver.open(f"sqlite:///{tmp_path}/a.db", clock=clock, embedder="none", worker=False) as store:
        talk = await store.conversation("k", ttl=1_800)
        clock.advance(86_400)
        assert await store.expire() == []
        clock.wait(CONFIRM_SECONDS)
        assert await store.expire() == [talk.id]
