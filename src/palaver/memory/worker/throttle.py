"""How memory work behaves beside those who write and read: it waits for their pauses, and rests between strides."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from palaver.core.concurrency import Pause, no_pause
from palaver.ports.engine import Engine

STRIDE = 0.001  # seconds
QUIET_SECONDS = 0.25  # so long must nobody have written
PATIENCE_SECONDS = 10.0  # for that
PRESSING_SECONDS = 60.0  # after so long without a pause long enough for all that there is to do


@dataclass(slots=True)
class Breath:
    """To be called now and then: after a millisecond of work it rests for as long, ten at most."""

    _since: float = field(default_factory=time.perf_counter)

    def __call__(self) -> None:
        worked = time.perf_counter() - self._since
        if worked >= STRIDE:
            time.sleep(min(worked, 10 * STRIDE))
            self._since = time.perf_counter()


@dataclass(slots=True)
class Manners:
    """Of one worker. Nobody is let go first while somebody waits for it to be done."""

    engine: Engine
    _awaited: int = 0  # by so many
    _busy_since: float = field(default_factory=time.monotonic)
    _resumed: float = field(default_factory=time.monotonic)

    @contextmanager
    def awaited(self) -> Iterator[None]:
        self._awaited += 1
        try:
            yield
        finally:
            self._awaited -= 1

    def nothing_left(self) -> None:
        self._busy_since = time.monotonic()

    async def let_writers_go_first(self) -> None:
        """Memory work takes processor time that an append would wait for: it is done in the pauses, or now and then.

        Where there are no pauses it would fall behind for ever: after a minute it takes a quarter of the time.
        """
        now = time.monotonic()
        is_pressing = now - self._busy_since > PRESSING_SECONDS
        until = now + (min(3 * (now - self._resumed), PATIENCE_SECONDS) if is_pressing else PATIENCE_SECONDS)
        while not self._awaited and self.engine.quiet_seconds() < QUIET_SECONDS:
            if (left := until - time.monotonic()) <= 0:
                break
            await asyncio.sleep(min(left, QUIET_SECONDS))
        self._resumed = time.monotonic()

    def breath(self) -> Pause:
        """For work in a thread, beside others that answer somebody."""
        return no_pause if self._awaited else Breath()
