"""The cost of a call, for models whose price is in the settings. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from palaver.errors import InvalidInput
from palaver.ports.models import Usage

MILLION = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Dollars per million tokens. `cached` is the price of cached input tokens; by default that of `input`."""

    input: float
    output: float
    cached: float | None = None

    @classmethod
    def of(cls, called: str, given: object) -> Price:
        known = cls.__dataclass_fields__.keys()
        if not isinstance(given, Mapping) or given.keys() - known or not {"input", "output"} <= given.keys():
            raise InvalidInput(f"models.{called}.price", "needs input and output, and may have cached")
        if not all(_is_amount(value) for value in given.values()):
            raise InvalidInput(f"models.{called}.price", "must be dollars per million tokens")
        return cls(**given)

    def cost(self, usage: Usage) -> float | None:
        """Return the cost in dollars, or None if the provider did not report usage."""
        if usage.prompt is None and usage.completion is None:
            return None
        cached = min(usage.cached or 0, usage.prompt or 0)
        fresh = (usage.prompt or 0) - cached
        rate = self.input if self.cached is None else self.cached
        return (fresh * self.input + cached * rate + (usage.completion or 0) * self.output) / MILLION


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
