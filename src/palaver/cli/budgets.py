"""Budgets of the tenant, of users and of keys: budgets show, set, remove."""

from __future__ import annotations

from typing import Annotated

import typer

from palaver.cli.app import Call, app, command
from palaver.cli.database import existing
from palaver.cli.output import emit, say, size, table, wire
from palaver.core.budgets import LIMITS
from palaver.errors import InvalidInput
from palaver.model import BudgetKind, BudgetLine, Scope

PANEL = "Maintenance"
group = typer.Typer(no_args_is_help=True, help="Budgets of the tenant, its users and its keys: show, set, remove.")
app.add_typer(group, name="budgets", rich_help_panel=PANEL)

Key = Annotated[str | None, typer.Option("--key", help="Id of an API key.")]
Assignments = Annotated[
    list[str],
    typer.Argument(
        metavar="LIMIT=AMOUNT…",
        help=f"One or more of {', '.join(LIMITS)}. Other limits are removed.",
        show_default=False,
    ),
]


@command("show", group=group)
async def show(call: Call, key: Key = None) -> None:
    """Show the limits that are stored for the tenant, for --user and for --key, and how much of each is used.

    The default limits of a server are in its settings. `GET /api/budgets` shows them, too.

    Examples:

      palaver budgets show --user ada
      palaver budgets show --key 0f3a9c21d4e5 --json
    """
    async with existing(call) as store:
        lines = await store.scoped(Scope.of(store.scope.tenant, None)).budgets(user=call.user, key=key)
    if call.as_json:
        for line in lines:
            emit({**wire(line), "left": line.left})
    elif not lines:
        say("No budget is stored. The default limits of a server are in its settings.")
    else:
        table(("whose", "name", "what", "limit", "used", "resets"), [_row(line) for line in lines])


@command("set", group=group)
async def set_limits(call: Call, limits: Assignments, key: Key = None) -> None:
    """Set the budget of --user or --key; without either, of the tenant. Running servers apply it within seconds.

    Examples:

      palaver budgets set requests_per_day=200 dollars_per_month=5 --user ada
      palaver budgets set storage_bytes=1000000000 conversations=500
    """
    kind, name = _subject(call, key)
    async with existing(call) as store:
        app_store = store.scoped(Scope.of(store.scope.tenant, None))
        await app_store.set_budget(kind, name, **dict(_parse(one) for one in limits))  # type: ignore[arg-type]
    say("Set.")


@command("remove", group=group)
async def remove(call: Call, key: Key = None) -> None:
    """Remove the budget of --user or --key; without either, of the tenant. The default limits apply again.

    Example:

      palaver budgets remove --user ada
    """
    kind, name = _subject(call, key)
    async with existing(call) as store:
        await store.scoped(Scope.of(store.scope.tenant, None)).set_budget(kind, name)
    say("Removed.")


def _subject(call: Call, key: str | None) -> tuple[BudgetKind, str | None]:
    if key is not None and call.user is not None:
        raise InvalidInput("key", "give either --user or --key")
    return ("key", key) if key is not None else ("user", call.user) if call.user is not None else ("tenant", None)


def _parse(text: str) -> tuple[str, float]:
    name, equals, amount = text.partition("=")
    if not equals or name not in LIMITS:
        raise InvalidInput("limits", f"{text!r}: write LIMIT=AMOUNT, with one of {', '.join(LIMITS)}")
    try:
        return name, float(amount) if name.startswith("dollars") else int(amount.replace("_", ""))
    except ValueError:
        raise InvalidInput(name, "must be a number") from None


def _row(line: BudgetLine) -> tuple[str, ...]:
    what = line.measure if line.period == "total" else f"{line.measure} per {line.period}"
    resets = "-" if line.resets_at is None else f"{line.resets_at:%Y-%m-%d}"
    return (line.kind, line.name or "-", what, _amount(line, line.limit), _amount(line, line.used), resets)


def _amount(line: BudgetLine, value: float) -> str:
    if line.measure == "bytes":
        return size(int(value))
    return f"${value:,.4f}" if line.measure == "dollars" else f"{value:,.0f}"
