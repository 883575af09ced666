"""Routes of budgets: what is left of them, and setting them."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query
from starlette.responses import Response

from palaver.model import BudgetLine
from palaver.server import wire
from palaver.server.dependencies import StoreDep, reply_items
from palaver.server.rest import schemas

Name = Annotated[str | None, Query(max_length=512, min_length=1)]


async def list_budgets(
    store: StoreDep,
    user: Annotated[Name, Query(description="The id of a user.")] = None,
    key: Annotated[Name, Query(description="The id of an API key.")] = None,
) -> Response:
    """List the limits that apply to the caller, and how much of each is used.

    With `user` or `key`, list the budget of another user or of an API key. This needs the right `admin`.
    """
    return reply_items([_shown(line) for line in await store.budgets(user=user, key=key)])


async def set_budget(store: StoreDep, body: schemas.NewBudget) -> Response:
    """Set the limits of one user or key, instead of the defaults. Without limits, the defaults apply again.

    Needs the right `admin`. The tenant's own budget cannot be set with a key or a JWT.
    """
    limits = body.limits.model_dump(exclude_unset=True, exclude_none=True)
    await store.set_budget(body.kind, body.name, **limits)
    lines = await store.budgets(
        user=body.name if body.kind == "user" else None, key=body.name if body.kind == "key" else None
    )
    return reply_items([_shown(line) for line in lines if line.kind == body.kind])


def _shown(line: BudgetLine) -> dict[str, object]:
    return {**wire.plain(line), "left": line.left}
