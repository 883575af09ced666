"""Readiness: the database responds, its schema is the expected one, background work keeps up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from palaver.errors import PalaverError
from palaver.memory.worker.loop import Worker
from palaver.ports.engine import StatsStore
from palaver.ports.jobs import Health


@dataclass(frozen=True, slots=True)
class ReadinessCheck:
    """The result of one check. `problems` say why the server is not ready; they contain no data."""

    health: Health | None
    problems: Mapping[str, str]
    at: float


@dataclass(slots=True)
class Readiness:
    """Checks the database for all probes together."""

    engine: StatsStore
    worker: Worker  # jobs that it cannot run wait for another process, and do not count
    longest_lag: float  # seconds; 0: any
    closing: bool = False
    timeout: float = 5.0  # seconds for the database to respond
    fresh_seconds: float = 1.0  # a result is reused for this time, however many probes there are
    _latest: ReadinessCheck | None = None
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def check(self) -> ReadinessCheck:
        async with self._lock:
            if self._latest is None or time.monotonic() - self._latest.at > self.fresh_seconds:
                self._latest = await self._check_database()
            return self._latest

    async def _check_database(self) -> ReadinessCheck:
        try:
            async with asyncio.timeout(self.timeout):
                health = await self.engine.health(self.worker.kinds)
        except (PalaverError, TimeoutError) as problem:
            return ReadinessCheck(None, {"database": f"does not respond ({type(problem).__name__})"}, time.monotonic())
        return ReadinessCheck(health, describe_problems(health, self.longest_lag), time.monotonic())


def describe_problems(health: Health, longest_lag: float) -> dict[str, str]:
    found = {}
    if not health.compatible:
        advice = "run `palaver migrate`" if health.schema < health.schema_known else "upgrade Palaver"
        found["schema"] = f"is {health.schema}, this version needs {health.schema_known}: {advice}"
    if longest_lag and health.lag > longest_lag:
        found["worker"] = f"is {health.lag:.0f} seconds behind; the limit is {longest_lag:.0f}"
    return found
