"""Throttling of background work: it waits until nobody writes, and sleeps between short steps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from palaver.core.concurrency import Pause, no_pause
from palaver.ports.engine import JobStore


@dataclass(slots=True)
class CooperativePause:
    """Sleeps for as long as the thread worked since the last sleep, once that was at least `step` seconds.

    It never sleeps for more than ten steps.
    """

    step: float = 0.001
    clock: Callable[[], float] = time.perf_counter
    sleep: Callable[[float], None] = time.sleep
    _resumed: float = field(init=False)

    def __post_init__(self) -> None:
        self._resumed = self.clock()

    def __call__(self) -> None:
        worked = self.clock() - self._resumed
        if worked >= self.step:
            self.sleep(min(worked, 10 * self.step))
            self._resumed = self.clock()


@dataclass(slots=True)
class BackgroundThrottle:
    """Throttle of one worker. It does not yield while a caller is waiting in `settle()`.

    Work starts once nobody has written for `idle_seconds`, or after `patience_seconds` of waiting for that. When work
    has been left over for `pressing_seconds`, it takes a quarter of the time, so that it does not fall behind for ever.
    """

    engine: JobStore
    idle_seconds: float = 0.25
    patience_seconds: float = 10.0
    pressing_seconds: float = 60.0
    make_pause: Callable[[], Pause] = CooperativePause
    _waiting_callers: int = 0
    _busy_since: float = field(default_factory=time.monotonic)
    _resumed: float = field(default_factory=time.monotonic)

    @contextmanager
    def caller_waits(self) -> Iterator[None]:
        """Work without yielding for the duration of the block."""
        self._waiting_callers += 1
        try:
            yield
        finally:
            self._waiting_callers -= 1

    def mark_idle(self) -> None:
        """Note that no work is left over."""
        self._busy_since = time.monotonic()

    async def let_writers_go_first(self) -> None:
        """Wait for a moment without writes: memory work takes processor time that an append would wait for."""
        until = time.monotonic() + self._longest_wait()
        while not self._waiting_callers and self.engine.quiet_seconds() < self.idle_seconds:
            if (left := until - time.monotonic()) <= 0:
                break
            await asyncio.sleep(min(left, self.idle_seconds))
        self._resumed = time.monotonic()

    def _longest_wait(self) -> float:
        now = time.monotonic()
        if now - self._busy_since <= self.pressing_seconds:
            return self.patience_seconds
        return min(3 * (now - self._resumed), self.patience_seconds)

    def pause(self) -> Pause:
        """Return the pause for work in a thread, while other threads serve requests."""
        return no_pause if self._waiting_callers else self.make_pause()
