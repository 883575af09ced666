"""The cost of a call."""

from __future__ import annotations

from typing import Any

import pytest

from palaver.errors import InvalidInput
from palaver.models.prices import Price
from palaver.models.registry import ModelRegistry
from palaver.ports.models import Usage

PRICE = Price(input=1.0, cached=0.1, output=8.0)


@pytest.mark.parametrize(
    ("usage", "dollars"),
    [
        (Usage(prompt=1_000_000, completion=500_000), 5.0),
        (Usage(prompt=1_000_000, completion=0, cached=1_000_000), 0.1),
        (Usage(prompt=1_000_000, completion=0, cached=400_000), 0.64),
        (Usage(completion=250_000), 2.0),
        (Usage(prompt=0, completion=0), 0.0),
        (Usage(), None),
    ],
)
def test_cached_tokens_have_a_price_of_their_own(usage: Usage, dollars: float | None) -> None:
    assert PRICE.cost(usage) == (None if dollars is None else pytest.approx(dollars))


def test_without_one_they_cost_what_others_do() -> None:
    assert Price(input=1.0, output=8.0).cost(Usage(prompt=100, completion=0, cached=90)) == pytest.approx(0.0001)


@pytest.mark.parametrize(
    "given",
    [1, {}, {"input": 1}, {"input": 1, "output": -1}, {"input": "1", "output": 1}, {"input": 1, "output": True}],
)
def test_a_price_that_is_none_is_refused_when_the_model_is_opened(given: Any) -> None:
    book = ModelRegistry(names={"chat": {"model": "openai:gpt-5-mini", "api_key": "none", "price": given}})
    with pytest.raises(InvalidInput, match="price"):
        book.chat("chat")


def test_a_name_that_stands_for_itself_has_none() -> None:
    book = ModelRegistry(names={"a": "b", "b": "a"})
    with pytest.raises(InvalidInput, match="refers to itself"):
        book.price("a")
