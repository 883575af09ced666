"""Calls of an embedder that is paid for: counted in the budgets before they are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from palaver.core.budgets import Payer
from palaver.models.budgets import FREE, Budgets
from palaver.models.prices import Price
from palaver.models.registry import ModelRegistry
from palaver.models.tokens import counter_for
from palaver.ports.models import Embedder

PROVIDER = "openai:"  # how the names of a provider's embedders begin


def price_of(embedder: Embedder, models: ModelRegistry | None) -> Price | None:
    """Return the price of an embedder: its own `price`, or that of its name in `models`; None if it is not known.

    An embedder that neither has a price nor belongs to a provider is free: the local one, and those of applications.
    """
    own = getattr(embedder, "price", None)
    if own is not None:
        return Price.of(embedder.name, own)
    if not embedder.name.startswith(PROVIDER):
        return FREE
    return None if models is None else models.price(embedder.name)


@dataclass(frozen=True, slots=True)
class EmbeddingBudget:
    """Counts the calls of one embedder."""

    budgets: Budgets
    embedder: Embedder
    price: Price | None

    @classmethod
    def of(
        cls, embedder: Embedder | None, budgets: Budgets | None, models: ModelRegistry | None
    ) -> EmbeddingBudget | None:
        """Return the budget of an embedder; None if it is free."""
        if embedder is None or budgets is None:
            return None
        price = price_of(embedder, models)
        return None if price is FREE else cls(budgets, embedder, price)

    async def take(self, payer: Payer, texts: Sequence[str]) -> None:
        """Count texts before they are embedded. Raises BudgetExceeded."""
        if await self.budgets.limits_of(payer):
            tokens = sum(map(counter_for(self.embedder.name), texts))
            await self.budgets.take_embedding(payer, self.embedder.name, tokens, self.price)
