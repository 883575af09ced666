"""Budgets of tenants, users and API keys: their limits, their periods, and what a call adds to them. Pure.

Money is counted in millionths of a dollar, so that sums are exact.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, TypedDict

from palaver.core.identity import from_json
from palaver.core.validation import clean_name
from palaver.errors import InvalidInput
from palaver.model import BudgetKind, BudgetMeasure, BudgetPeriod, Scope

KINDS: tuple[BudgetKind, ...] = ("tenant", "user", "key")
WINDOW = "0rate/"  # the beginning of a period that is a window of a rate limit; an account has one at a time
MEASURES: tuple[BudgetMeasure, ...] = ("requests", "tokens", "dollars", "bytes", "conversations")
DOLLAR = 1_000_000  # units of money that are counted
MAX_LIMIT = 2**53
OUTPUT_TOKENS = 4_096  # reserved for an answer whose request names no maximum

LIMITS: Mapping[str, tuple[BudgetMeasure, BudgetPeriod]] = {
    "requests_per_day": ("requests", "day"),
    "requests_per_month": ("requests", "month"),
    "tokens_per_day": ("tokens", "day"),
    "tokens_per_month": ("tokens", "month"),
    "dollars_per_day": ("dollars", "day"),
    "dollars_per_month": ("dollars", "month"),
    "storage_bytes": ("bytes", "total"),
    "conversations": ("conversations", "total"),
}


class BudgetLimits(TypedDict, total=False):
    """The limits of one budget. There is no limit for keys that you leave out. Days and months are in UTC.

    - `requests_per_day`, `requests_per_month`: the maximum number of calls to models, including those of background
      work.
    - `tokens_per_day`, `tokens_per_month`: the maximum number of tokens, of prompts and answers together.
    - `dollars_per_day`, `dollars_per_month`: the highest cost in US dollars, computed with the `price` of each model.
      A model without a price cannot be used.
    - `storage_bytes`: the maximum number of bytes of contents of turns and files.
    - `conversations`: the maximum number of conversations.
    """

    requests_per_day: int
    requests_per_month: int
    tokens_per_day: int
    tokens_per_month: int
    dollars_per_day: float
    dollars_per_month: float
    storage_bytes: int
    conversations: int


class BudgetOptions(TypedDict, total=False):
    """Budgets of a store, for `palaver.open(budgets=…)`.

    - `tenant`, `user`, `key`: the limits of each tenant, user or API key that has no limits of its own; see
      `BudgetLimits`.
    - `output_tokens`: the maximum number of tokens of an answer, if tokens or money are limited and the request sets no
      maximum; 4,096 by default. They are reserved before the call, and sent to the provider as the maximum.
    """

    tenant: BudgetLimits
    user: BudgetLimits
    key: BudgetLimits
    output_tokens: int


@dataclass(frozen=True, slots=True)
class BudgetDefaults:
    """The checked options."""

    limits: Mapping[BudgetKind, Mapping[str, float]] = field(default_factory=dict)
    output_tokens: int = OUTPUT_TOKENS


def clean_options(given: object) -> BudgetDefaults:
    """Check the option `budgets`."""
    if given is None:
        return BudgetDefaults()
    if not isinstance(given, Mapping):
        raise InvalidInput("budgets", "must be a mapping")
    known = (*KINDS, "output_tokens")
    for name in given:
        if name not in known:
            raise InvalidInput(f"budgets.{name}", f"is unknown; the options are {', '.join(known)}")
    output = given.get("output_tokens", OUTPUT_TOKENS)
    if isinstance(output, bool) or not isinstance(output, int) or not 0 < output <= 10_000_000:
        raise InvalidInput("budgets.output_tokens", "must be a whole number, 1 or more")
    limits = {kind: clean_limits(f"budgets.{kind}", given[kind]) for kind in KINDS if kind in given}
    return BudgetDefaults(limits, output)


def clean_limits(field: str, given: object) -> dict[str, float]:
    """Check the limits of one budget."""
    if not isinstance(given, Mapping):
        raise InvalidInput(field, "must be a mapping")
    for name, value in given.items():
        if name not in LIMITS:
            raise InvalidInput(f"{field}.{name}", f"is unknown; the limits are {', '.join(LIMITS)}")
        whole = not name.startswith("dollars")
        is_number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= value <= MAX_LIMIT:
            raise InvalidInput(f"{field}.{name}", f"must be {'a whole number' if whole else 'an amount'}, 0 or more")
    return dict(given)


def read_limits(text: str) -> dict[str, float] | None:
    """Return stored limits; None if the row is damaged or was written by something else than Palaver."""
    try:
        return clean_limits("limits", from_json(text))
    except ValueError:
        return None


def clean_subject(kind: object, name: object) -> tuple[BudgetKind, str]:
    """Check the owner of a budget: its kind and its name. The tenant's budget has no name."""
    found = next((one for one in KINDS if one == kind), None)
    if found is None:
        raise InvalidInput("kind", f"must be one of {', '.join(KINDS)}")
    if found == "tenant":
        if name not in (None, ""):
            raise InvalidInput("name", "must be empty for the tenant")
        return found, ""
    return found, clean_name("name", name)


@dataclass(frozen=True, slots=True)
class Payer:
    """The user, key and tenant whose budgets a call counts for."""

    tenant: str
    user: str | None = None
    key: str | None = None

    def subjects(self) -> Iterator[tuple[BudgetKind, str]]:
        yield "tenant", ""
        if self.user:
            yield "user", self.user
        if self.key:
            yield "key", self.key


def payer_of(scope: Scope, owner: str = "") -> Payer:
    """Return who pays for a call: the caller's user; if the application calls, the owner of the conversation."""
    return Payer(scope.tenant, scope.user or owner or None, scope.key)


# ---- periods -------------------------------------------------------------------------------------------------------


def period_name(period: BudgetPeriod, now: datetime) -> str:
    """Return the name of the current period, as it is stored: 2026-11-18, 2026-11 or total."""
    day = now.astimezone(UTC).date().isoformat()
    return {"day": day, "month": day[:7], "total": "total"}[period]


def period_end(period: BudgetPeriod, now: datetime) -> datetime | None:
    """Return when the period ends; None for one that never does."""
    midnight = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "day":
        return midnight + timedelta(days=1)
    if period == "month":
        return (midnight.replace(day=1) + timedelta(days=32)).replace(day=1)
    return None


# ---- amounts -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Amounts:
    """The amounts that a call adds to a budget, or that were added so far. `dollars` are millionths."""

    requests: int = 0
    tokens: int = 0
    dollars: int = 0
    bytes: int = 0
    conversations: int = 0

    def minus(self, other: Amounts) -> Amounts:
        return Amounts(**{name: getattr(self, name) - getattr(other, name) for name in MEASURES})

    @property
    def is_zero(self) -> bool:
        return self == Amounts()


def stored_limit(name: str, value: float) -> int:
    """Return a limit in the units that are counted."""
    return math.floor(value * DOLLAR + 1e-6) if name.startswith("dollars") else int(value)


def shown(measure: BudgetMeasure, amount: int) -> float:
    """Return an amount in the units that people see."""
    return amount / DOLLAR if measure == "dollars" else amount


def cost_in_units(dollars: float) -> int:
    """Return a cost in the units that are counted, rounded up."""
    return math.ceil(dollars * DOLLAR - 1e-6)


def max_output_of(body: Mapping[str, Any]) -> int | None:
    """Return the maximum of an answer that a request names."""
    for name in ("max_completion_tokens", "max_tokens", "max_output_tokens"):
        value = body.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None
