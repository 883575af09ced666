"""The conditions of a filter: intervals, and the same answer from both engines for any values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import palaver
from palaver.cli.filters import build_where
from palaver.core.filters import clean_where, meets, read_where
from palaver.errors import InvalidInput

VALUES = st.one_of(
    st.booleans(),
    st.integers(-(10**18), 10**18),
    st.floats(-1e12, 1e12, allow_nan=False).map(lambda value: value or 0.0),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5),
)
NUMBERS = st.one_of(st.integers(-1000, 1000), st.floats(-1e6, 1e6))


def test_a_range_is_between_its_bounds() -> None:
    wanted = clean_where({"metadata": {"n": {"gt": 1, "lte": 3}}}).metadata
    assert [n for n in range(5) if meets(wanted, {"n": n})] == [2, 3]
    assert not meets(wanted, {"n": "2"})
    assert not meets(wanted, {"n": True})
    assert meets(wanted, {"n": [9, 2]})


def test_text_that_is_not_json_is_named() -> None:
    assert read_where(None) is None
    with pytest.raises(InvalidInput, match="is not JSON"):
        read_where("topic=billing")


def test_options_of_the_command_line() -> None:
    given = build_where(
        ["topic=billing", "priority>=3", "priority<10", "tag=a,b", 'id="42"'], ["ada"], None, "2026-01-01"
    )
    assert given == {
        "metadata": {
            "topic": {"eq": "billing"},
            "priority": {"gte": 3, "lt": 10},
            "tag": {"in": ["a", "b"]},
            "id": {"eq": "42"},
        },
        "actor": ["ada"],
        "since": "2026-01-01",
    }
    assert build_where(None) is None


@pytest.mark.costly
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stored=st.lists(VALUES, min_size=1, max_size=8), asked=VALUES, low=NUMBERS, high=NUMBERS)
async def test_both_engines_decide_as_the_model_does(
    database_url: str, stored: list[Any], asked: Any, low: float, high: float
) -> None:
    async with palaver.open(database_url, embedder=None, worker=False) as store:
        talk = await store.conversation()
        for value in stored:
            await talk.append("user", "x", metadata={"v": value})
        for where in ({"v": asked}, {"v": stored[0]}, {"v": {"gte": low, "lt": high}}, {"v": {"in": [asked, low]}}):
            wanted = clean_where({"metadata": where}).metadata
            found = [turn.metadata["v"] for turn in await talk.history(where={"metadata": where})]
            assert found == [value for value in stored if meets(wanted, {"v": value})], where
