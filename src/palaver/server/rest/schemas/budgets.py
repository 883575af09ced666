"""Bodies of budgets."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from palaver import model
from palaver.core.budgets import MAX_LIMIT
from palaver.server.rest.schemas.base import NUMBER, Count, RequestBody, ResponseBody, mirrors

Amount = Annotated[float, Field(ge=0, le=MAX_LIMIT), NUMBER]


@mirrors(model.BudgetLine)
class BudgetLine(ResponseBody):
    name: str = Field(description="The user, or the id of the key; empty for the tenant.")
    limit: float = Field(description="In requests, tokens, dollars, bytes or conversations, as `measure` says.")
    left: float = Field(description="The rest of the limit.")


class Budgets(ResponseBody):
    items: list[BudgetLine]


class BudgetLimits(RequestBody):
    requests_per_day: Count | None = None
    requests_per_month: Count | None = None
    tokens_per_day: Count | None = None
    tokens_per_month: Count | None = None
    dollars_per_day: Amount | None = None
    dollars_per_month: Amount | None = None
    storage_bytes: Count | None = None
    conversations: Count | None = None


class NewBudget(RequestBody):
    kind: model.BudgetKind = Field(description="Whose budget it is.")
    name: Annotated[str, Field(min_length=1, max_length=512)] | None = Field(
        None, description="The id of the user or of the key. Leave it out for the tenant."
    )
    limits: BudgetLimits = Field(description="The limits. Without any, the defaults of the server apply again.")
