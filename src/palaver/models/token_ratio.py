"""Counting that learns: what a provider says a prompt weighed, against our own count, per model."""

from __future__ import annotations

from dataclasses import dataclass, field

from palaver.model import Scope
from palaver.ports.engine import RequestStore
from palaver.ports.models import CounterBound

FEWEST = 64  # tokens: in a shorter prompt the fixed costs of a message are most of it
LOWEST, HIGHEST = 0.25, 4.0  # beyond that, somebody counts something else
SLOWLY = 0.05  # of the way down, for each answer that weighed less than the bound


@dataclass(slots=True)
class TokenRatios:
    """The bounds of one open store. A bound goes up at once, and comes down slowly."""

    engine: RequestStore
    _known: dict[tuple[str, str], CounterBound | None] = field(default_factory=dict)

    async def ratio(self, scope: Scope, model: str) -> float:
        """By how much to mistrust our count of a text for this model: 1, or more."""
        key = (scope.tenant, model)
        if key not in self._known:
            self._known[key] = await self.engine.counter_bound(scope, model)
        bound = self._known[key]
        return 1.0 if bound is None else max(1.0, bound.ratio)

    async def learn(self, scope: Scope, model: str, *, counted: int, reported: int) -> None:
        """Take note of one prompt."""
        if counted < FEWEST or reported <= 0:
            return
        await self.ratio(scope, model)
        before = self._known[scope.tenant, model]
        after = _moved(before, model, min(HIGHEST, max(LOWEST, reported / counted)))
        self._known[scope.tenant, model] = after
        if before is None or abs(after.ratio - before.ratio) > 0.001:
            await self.engine.put_counter_bound(scope, after)


def _moved(before: CounterBound | None, model: str, seen: float) -> CounterBound:
    if before is None:
        return CounterBound(model=model, ratio=seen, samples=1)
    down = before.ratio - (before.ratio - seen) * SLOWLY
    return CounterBound(model=model, ratio=max(seen, down), samples=before.samples + 1)
