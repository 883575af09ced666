"""Budgets, what was used of them, and leases of work for one process, on Postgres. Each method is one transaction.

All run as the application: budgets hold whatever rights the caller has.
"""

from __future__ import annotations

from datetime import timedelta

from palaver.core.budgets import MEASURES, Amounts, read_limits
from palaver.core.identity import canonical_json
from palaver.engines.postgres.rpc import EnginePart, application_scope
from palaver.engines.postgres.transports import as_json
from palaver.model import BudgetKind, Scope
from palaver.ports.budgets import Account, Charge, Overrun, StoredBudget

KEPT = timedelta(days=400)  # for which old periods are kept


class PostgresBudgets(EnginePart):
    async def budgets(self, tenant: str) -> list[StoredBudget]:
        rows = await self.write("budgets", application_scope(tenant))
        read = [(row["kind"], row["name"], read_limits(row["limits"])) for row in rows]
        return [StoredBudget(kind, name, limits) for kind, name, limits in read if limits is not None]

    async def put_budget(self, scope: Scope, budget: StoredBudget) -> None:
        limits = canonical_json(dict(budget.limits)) if budget.limits else None
        await self.write("put_budget", scope, kind=budget.kind, name=budget.name, limits=limits)

    async def spend(self, tenant: str, charges: list[Charge]) -> Overrun | None:
        given = [
            {
                **_account(one.account),
                "amounts": {name: getattr(one.amounts, name) for name in MEASURES},
                "limits": one.limits,
            }
            for one in charges
        ]
        rows = await self.write("spend", application_scope(tenant), charges=as_json(given))
        if not rows:
            return None
        (row,) = rows
        account = Account(row["over_kind"], row["over_name"], row["over_period"])
        return Overrun(account, row["measure"], row["used"])

    async def spent(self, tenant: str, accounts: list[Account]) -> dict[Account, Amounts]:
        given = as_json([_account(one) for one in accounts])
        rows = await self.write("spent", application_scope(tenant), accounts=given)
        return {
            Account(row["kind"], row["name"], row["period"]): Amounts(**{name: row[name] for name in MEASURES})
            for row in rows
        }

    async def measure_storage(self, tenant: str, kind: BudgetKind, name: str) -> Amounts:
        args = {"kind": kind, "name": name, "before": (self.clock.now() - KEPT).date().isoformat()}
        owner = None if kind == "tenant" else name
        (row,) = await self.write("measure_storage", application_scope(tenant), **args, owner=owner)
        return Amounts(bytes=row["bytes"], conversations=row["conversations"])

    async def take_lease(self, tenant: str, name: str, micros: int) -> bool:
        (row,) = await self.write("take_lease", application_scope(tenant), name=name, micros=micros)
        return bool(row["taken"])


def _account(account: Account) -> dict[str, str]:
    return {"kind": account.kind, "name": account.name, "period": account.period}
