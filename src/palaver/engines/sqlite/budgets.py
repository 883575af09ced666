"""Budgets, what was used of them, and leases of work for one process. Each function is one transaction."""

from __future__ import annotations

from datetime import timedelta

from palaver.core.budgets import MEASURES, WINDOW, Amounts, read_limits
from palaver.core.identity import canonical_json, moment
from palaver.engines.rows import Row
from palaver.engines.sqlite.queries import Q
from palaver.engines.sqlite.transaction import Tx
from palaver.model import BudgetKind, Scope
from palaver.ports.budgets import Account, Charge, Overrun, StoredBudget

FARTHEST = 86_400_000_000  # microseconds; a lease further ahead was written before the clock was set back
KEPT = timedelta(days=400)  # for which old periods are kept


def budgets(tx: Tx, tenant: str) -> list[StoredBudget]:
    rows = [(kind, name, read_limits(text)) for kind, name, text in tx.all(Q.budgets, tenant=tenant)]
    return [StoredBudget(kind, name, limits) for kind, name, limits in rows if limits is not None]


def put_budget(tx: Tx, scope: Scope, budget: StoredBudget) -> None:
    place = {"tenant": scope.tenant, "kind": budget.kind, "name": budget.name}
    if budget.limits:
        tx.run(Q.put_budget, **place, limits=canonical_json(dict(budget.limits)))
    else:
        tx.run(Q.drop_budget, **place)


def spend(tx: Tx, tenant: str, charges: list[Charge]) -> Overrun | None:
    """Count charges, unless one goes over its limit."""
    for charge in charges:
        over = charge.overrun(_used(tx, tenant, charge.account)) if charge.limits else None
        if over is not None:
            return over
    for charge in charges:
        values = {name: getattr(charge.amounts, name) for name in MEASURES}
        tx.run(Q.add_to_budget, **_place(tenant, charge.account), **values)
        if charge.account.period.startswith(WINDOW):
            tx.run(Q.drop_old_windows, first=WINDOW, **_place(tenant, charge.account))
    return None


def spent(tx: Tx, tenant: str, accounts: list[Account]) -> dict[Account, Amounts]:
    return {account: _used(tx, tenant, account) for account in accounts}


def measure_storage(tx: Tx, tenant: str, kind: BudgetKind, name: str) -> Amounts:
    """Measure what is stored, on a reader: it may take long."""
    owner = None if kind == "tenant" else name
    (bytes, conversations) = tx.all(Q.measure_storage, tenant=tenant, owner=owner)[0]
    return Amounts(bytes=bytes, conversations=conversations)


def set_storage(tx: Tx, tenant: str, kind: BudgetKind, name: str, measured: Amounts) -> None:
    """Store a measurement, and drop periods that are long over."""
    place = _place(tenant, Account(kind, name, "total"))
    tx.run(Q.set_storage, **place, bytes=measured.bytes, conversations=measured.conversations)
    tx.run(Q.drop_old_use, tenant=tenant, before=(moment(tx.now) - KEPT).date().isoformat())


def take_lease(tx: Tx, tenant: str, name: str, micros: int) -> bool:
    values = {"now": tx.now, "until": tx.now + micros, "farthest": tx.now + max(micros, FARTHEST)}
    return tx.one(Q.take_lease, tenant=tenant, name=name, **values) is not None


def _used(tx: Tx, tenant: str, account: Account) -> Amounts:
    row: Row | None = tx.one(Q.budget_use, **_place(tenant, account))
    return Amounts() if row is None else Amounts(**dict(zip(MEASURES, row, strict=True)))


def _place(tenant: str, account: Account) -> dict[str, str]:
    return {"tenant": tenant, "kind": account.kind, "name": account.name, "period": account.period}
