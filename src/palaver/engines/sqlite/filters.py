"""Filters as parameters of statements."""

from __future__ import annotations

from collections.abc import Sequence

from palaver.core.filters import Interval, TurnFilter, count_conditions
from palaver.core.identity import canonical_json
from palaver.engines.sqlite.transaction import SqlValue


def interval_params(intervals: Sequence[Interval]) -> dict[str, SqlValue]:
    """Return the parameters of `intervals` in queries.sql."""
    return {
        "intervals": canonical_json([list(one) for one in intervals]),
        "conditions": count_conditions(intervals),
    }


def filter_params(wanted: TurnFilter) -> dict[str, SqlValue]:
    """Return the parameters of `turn_filter` in queries.sql."""
    return {
        **interval_params(wanted.metadata),
        "roles": json_or_none(wanted.roles),
        "actors": json_or_none(wanted.actors),
        "since": wanted.since,
        "until": wanted.until,
    }


def json_or_none(names: Sequence[str] | None) -> str | None:
    return None if names is None else canonical_json(names)
