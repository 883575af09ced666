"""Detects that the clock of the machine jumped ahead, so that a sweep deletes nothing too early."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, runtime_checkable

from palaver.ports.clock import Clock

_log = logging.getLogger("palaver.sweeper")

JUMP_SECONDS = 60.0  # more than any clock is corrected in one step while it is kept in time
CONFIRM_SECONDS = 300.0  # how long the clock must stay where it is


@runtime_checkable
class ElapsedTime(Protocol):
    """A clock that also counts elapsed seconds. Setting the time does not change that count."""

    def elapsed(self) -> float: ...


@dataclass(slots=True)
class ClockWatch:
    """Compares the clock with the seconds that have passed since it was last looked at."""

    clock: Clock
    seen: tuple[datetime, float] | None = None  # the time and the seconds of the last look without a jump
    doubted: float | None = None  # when the clock began to be in doubt, in seconds

    def __post_init__(self) -> None:
        self.is_steady()  # the first look

    def is_steady(self) -> bool:
        """False after the clock jumped ahead, until it has stayed there for five minutes."""
        if not isinstance(self.clock, ElapsedTime):
            return True
        now, passed = self.clock.now(), self.clock.elapsed()
        if self.seen is not None and not self._is_confirmed(now, passed):
            return False
        self.seen, self.doubted = (now, passed), None
        return True

    def _is_confirmed(self, now: datetime, passed: float) -> bool:
        assert self.seen is not None
        ahead = (now - self.seen[0]).total_seconds() - (passed - self.seen[1])
        if ahead <= JUMP_SECONDS:
            return True
        if self.doubted is None:
            _log.warning("the clock jumped ahead by %d s: nothing expires until it has stayed there", ahead)
            self.doubted = passed
        return passed - self.doubted >= CONFIRM_SECONDS
