"""Budgets as they travel to an engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from palaver.core.budgets import Amounts
from palaver.model import BudgetKind, BudgetMeasure, Scope


@dataclass(frozen=True, slots=True)
class Account:
    """The count of one budget in one period."""

    kind: BudgetKind
    name: str
    period: str  # 2026-11-18, 2026-11 or total


@dataclass(frozen=True, slots=True)
class Charge:
    """Amounts for one account. If it would then be over one of the limits, nothing is counted for any account."""

    account: Account
    amounts: Amounts
    limits: Mapping[BudgetMeasure, int] = field(default_factory=dict)

    def overrun(self, used: Amounts) -> Overrun | None:
        """Return the limit that this charge would exceed, after what is used already."""
        for measure, limit in self.limits.items():
            before, added = getattr(used, measure), getattr(self.amounts, measure)
            if added > 0 and before + added > limit:
                return Overrun(self.account, measure, before)
        return None


@dataclass(frozen=True, slots=True)
class Overrun:
    """The first limit that stands in the way of some charges."""

    account: Account
    measure: BudgetMeasure
    used: int


@dataclass(frozen=True, slots=True)
class StoredBudget:
    """The limits of one tenant, user or key, in place of the defaults."""

    kind: BudgetKind
    name: str
    limits: Mapping[str, float]


class BudgetStore(Protocol):
    """Budgets and what was spent of them, for all processes. The caller's rights have been checked."""

    async def budgets(self, tenant: str) -> list[StoredBudget]: ...
    async def put_budget(self, scope: Scope, budget: StoredBudget) -> None:
        """Store the limits of a tenant, user or key. Without limits, the defaults hold again."""
        ...

    async def spend(self, tenant: str, charges: list[Charge]) -> Overrun | None:
        """Count charges in one transaction; all of them, or none if one would go over its limit."""
        ...

    async def spent(self, tenant: str, accounts: list[Account]) -> dict[Account, Amounts]: ...
    async def measure_storage(self, tenant: str, kind: BudgetKind, name: str) -> Amounts:
        """Measure the bytes and conversations of a tenant or user, and store them in its account `total`."""
        ...
