"""The ratio between a provider's token counts and ours, learned per model from the usage that it reports."""

from __future__ import annotations

from dataclasses import dataclass, field

from palaver.model import Scope
from palaver.ports.engine import RequestStore
from palaver.ports.models import CounterBound

MIN_TOKENS = 64  # in a shorter prompt, the fixed cost per message outweighs the text
MIN_RATIO, MAX_RATIO = 0.25, 4.0  # a ratio beyond these means that the provider counts something else
DECAY = 0.05  # share of the distance by which the ratio falls after a lower count


@dataclass(slots=True)
class TokenRatios:
    """The ratios of one open store. A ratio rises at once and falls slowly, so that prompts stay within the budget."""

    engine: RequestStore
    _known: dict[tuple[str, str], CounterBound | None] = field(default_factory=dict)

    async def ratio(self, scope: Scope, model: str) -> float:
        """Return the provider's token count divided by ours, at least 1."""
        key = (scope.tenant, model)
        if key not in self._known:
            self._known[key] = await self.engine.counter_bound(scope, model)
        bound = self._known[key]
        return 1.0 if bound is None else max(1.0, bound.ratio)

    async def learn(self, scope: Scope, model: str, *, counted: int, reported: int) -> None:
        """Update the ratio from one prompt: our count, and the count that the provider reported."""
        if counted < MIN_TOKENS or reported <= 0:
            return
        await self.ratio(scope, model)
        before = self._known[scope.tenant, model]
        after = _update(before, model, min(MAX_RATIO, max(MIN_RATIO, reported / counted)))
        self._known[scope.tenant, model] = after
        if before is None or abs(after.ratio - before.ratio) > 0.001:
            await self.engine.put_counter_bound(scope, after)


def _update(before: CounterBound | None, model: str, seen: float) -> CounterBound:
    if before is None:
        return CounterBound(model=model, ratio=seen, samples=1)
    down = before.ratio - (before.ratio - seen) * DECAY
    return CounterBound(model=model, ratio=max(seen, down), samples=before.samples + 1)
