"""Whether this server can do its work: the database answers, its schema is ours, memory work keeps up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from palaver.errors import PalaverError
from palaver.ports.engine import StatsStore
from palaver.ports.jobs import Health

LOOK_SECONDS = 5.0  # that the database has to answer
FRESH_SECONDS = 1.0  # however many ask, the database is asked once in this time


@dataclass(frozen=True, slots=True)
class Look:
    """What was found. `problems` say what keeps it from being ready, and nothing of what is in the database."""

    health: Health | None
    problems: Mapping[str, str]
    at: float


@dataclass(slots=True)
class Readiness:
    engine: StatsStore
    longest_lag: float  # seconds; 0: any
    closing: bool = False
    _latest: Look | None = None
    _looking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def look(self) -> Look:
        async with self._looking:
            if self._latest is None or time.monotonic() - self._latest.at > FRESH_SECONDS:
                self._latest = await self._look()
            return self._latest

    async def _look(self) -> Look:
        try:
            async with asyncio.timeout(LOOK_SECONDS):
                health = await self.engine.health()
        except (PalaverError, TimeoutError) as problem:
            return Look(None, {"database": f"does not answer ({type(problem).__name__})"}, time.monotonic())
        return Look(health, problems_of(health, self.longest_lag), time.monotonic())


def problems_of(health: Health, longest_lag: float) -> dict[str, str]:
    found = {}
    if health.schema != health.schema_known:
        advice = "run `palaver migrate`" if health.schema < health.schema_known else "upgrade Palaver"
        found["schema"] = f"is {health.schema}, and this version knows {health.schema_known}: {advice}"
    if longest_lag and health.lag > longest_lag:
        found["worker"] = f"is {health.lag:.0f} seconds behind, and {longest_lag:.0f} are allowed"
    return found
