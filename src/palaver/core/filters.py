"""Filters: conditions on the metadata, the speaker, the role and the time of turns and conversations.

A condition on metadata becomes intervals of values, which both engines look up in an index: equality is an interval of
one value, a list of values is several intervals, a range is one with or without ends.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal, NamedTuple, TypedDict

from palaver.core.turn_options import Moment
from palaver.core.validation import clean_moment, clean_name, clean_role, clean_text, did_you_mean
from palaver.errors import InvalidInput
from palaver.model import Role

MAX_TEXT = 256  # characters of a key or of a text that can be compared; longer ones are not in the index
MAX_NUMBER = 1e300
MAX_CONDITIONS = 20
MAX_VALUES = 200  # in a list
OTHER_CONDITIONS: Final = {
    "after": "since",
    "before": "until",
    "start": "since",
    "end": "until",
    "from": "since",
    "to": "until",
}

MetadataValue = str | int | float | bool
MetadataCondition = TypedDict(
    "MetadataCondition",
    {
        "eq": MetadataValue,
        "in": Sequence[MetadataValue],
        "gt": str | int | float,
        "gte": str | int | float,
        "lt": str | int | float,
        "lte": str | int | float,
    },
    total=False,
)
MetadataCondition.__doc__ = """A condition on one value of metadata.

- `eq`: the value is equal to this one.
- `in`: the value is equal to one of these, at most 200.
- `gt`, `gte`, `lt`, `lte`: the value is greater, greater or equal, less, less or equal. The two ends of a range must
  both be numbers, or both be texts.

`eq` and `in` cannot be combined with other keys.
"""


class Where(TypedDict, total=False):
    """Conditions on turns. A turn must meet all of them.

    - `metadata`: at most 20 conditions, each under a key of the turn's metadata: the value to be equal to, or a
      `MetadataCondition`. If the turn has a list under this key, one element must meet the condition.
    - `actor`: the name of the speaker, or a list of at most 200 names of which one must match.
    - `role`: `user`, `assistant`, `system` or `tool`, or a list of roles of which one must match.
    - `since`, `until`: the turn was created at or after the first moment, and before the second one.
    """

    metadata: Mapping[str, MetadataValue | MetadataCondition]
    actor: str | Sequence[str]
    role: Role | Sequence[Role]
    since: Moment
    until: Moment


class ConversationWhere(TypedDict, total=False):
    """Conditions on conversations. A conversation must meet all of them.

    - `metadata`: conditions on the metadata of the conversation itself, as in `Where`.
    - `actor`: the name of the owner or of a participant, or a list of names of which one must match.
    - `since`, `until`: the last change was at or after the first moment, and before the second one.
    """

    metadata: Mapping[str, MetadataValue | MetadataCondition]
    actor: str | Sequence[str]
    since: Moment
    until: Moment


ValueKind = Literal["bool", "number", "text"]


class Interval(NamedTuple):
    """Values of one key of the metadata. `condition` numbers the condition: one of its intervals must have a value.

    A bound that is None does not exist. An open bound is not part of the interval.
    """

    condition: int
    key: str
    kind: ValueKind
    low: MetadataValue | None
    high: MetadataValue | None
    low_open: bool = False
    high_open: bool = False

    def holds(self, value: object) -> bool:
        """Return whether a value lies inside."""
        if _kind_of(value) != self.kind or (self.kind == "text" and len(str(value)) > MAX_TEXT):
            return False
        assert isinstance(value, str | int | float)
        low, high = self.low, self.high
        above = low is None or value > low or (value == low and not self.low_open)  # type: ignore[operator]
        below = high is None or value < high or (value == high and not self.high_open)  # type: ignore[operator]
        return above and below


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFilter:
    """A checked `Where`. None: no condition."""

    metadata: tuple[Interval, ...] = ()
    actors: tuple[str, ...] | None = None
    roles: tuple[str, ...] | None = None
    since: int | None = None
    until: int | None = None

    @property
    def conditions(self) -> int:
        """How many conditions on metadata there are."""
        return count_conditions(self.metadata)

    @property
    def is_empty(self) -> bool:
        return self == NO_FILTER


NO_FILTER: Final = TurnFilter()


def count_conditions(intervals: Sequence[Interval]) -> int:
    return len({one.condition for one in intervals})


def meets(intervals: Sequence[Interval], metadata: Mapping[str, object]) -> bool:
    """Return whether metadata meets all conditions, as the engines decide it by their index."""
    met = {one.condition for one in intervals if any(map(one.holds, _values(metadata.get(one.key))))}
    return len(met) == count_conditions(intervals)


def _values(value: object) -> Sequence[object]:
    return value if isinstance(value, list | tuple) else (value,)


# ---- checking ------------------------------------------------------------------------------------------------------


def clean_where(where: object) -> TurnFilter:
    """Check the conditions on turns."""
    given = _mapping("where", where, Where.__annotations__)
    return TurnFilter(
        metadata=_clean_metadata(given.get("metadata")),
        actors=_clean_list("where.actor", given.get("actor")),
        roles=_clean_roles(given.get("role")),
        since=_clean_moment("where.since", given.get("since")),
        until=_clean_moment("where.until", given.get("until")),
    )


def clean_conversation_where(where: object) -> TurnFilter:
    """Check the conditions on conversations. They have no role."""
    return clean_where(_mapping("where", where, ConversationWhere.__annotations__))


def read_where(text: str | None) -> Any:
    """Read conditions from JSON text, as a query parameter has them. Their content is checked by `clean_where`."""
    if text is None:
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidInput("where", 'is not JSON: write {"metadata": {"topic": "billing"}, "role": "user"}') from None


def where_json(where: Mapping[str, object]) -> dict[str, object]:
    """Return conditions with values that JSON has."""
    return {name: _plain(value) for name, value in where.items()}


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    return list(value) if isinstance(value, Sequence | set | frozenset) and not isinstance(value, str) else value


def _mapping(field: str, value: object, known: Mapping[str, object]) -> Mapping[str, object]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidInput(field, f"must be a mapping with any of {', '.join(known)}")
    for name in value:
        if name not in known:
            meant = OTHER_CONDITIONS.get(name)
            guess = f" (did you mean {meant!r}?)" if meant in known else did_you_mean(name, known)
            hint = f"{guess}; known conditions: {', '.join(known)}"
            raise InvalidInput(field, f"has no condition {str(name)[:50]!r}{hint}")
    return value


def _clean_moment(field: str, value: object) -> int | None:
    return None if value is None else clean_moment(field, value)


def _clean_list(field: str, value: object) -> tuple[str, ...] | None:
    if value is None:
        return None
    values = [value] if isinstance(value, str) else value
    if not isinstance(values, Sequence | set | frozenset):
        raise InvalidInput(field, "must be a name or a list of names")
    if len(values) > MAX_VALUES:
        raise InvalidInput(field, f"has {len(values)} names; the limit is {MAX_VALUES}")
    return tuple(clean_name(field, name) for name in values)


def _clean_roles(value: object) -> tuple[str, ...] | None:
    names = _clean_list("where.role", value)
    return None if names is None else tuple(clean_role(name) for name in names)


def _clean_metadata(value: object) -> tuple[Interval, ...]:
    if value is None:
        return ()
    if not isinstance(value, Mapping):
        raise InvalidInput("where.metadata", 'must be a mapping from keys to values, such as {"topic": "billing"}')
    if len(value) > MAX_CONDITIONS:
        raise InvalidInput("where.metadata", f"has {len(value)} conditions; the limit is {MAX_CONDITIONS}")
    return tuple(one for n, (key, wanted) in enumerate(value.items()) for one in _intervals(n, key, wanted))


def _intervals(n: int, key: object, wanted: object) -> list[Interval]:
    name = clean_name("where.metadata", key)
    field = f"where.metadata[{name!r}]"
    if len(name) > MAX_TEXT:
        raise InvalidInput("where.metadata", f"has a key of {len(name)} characters; the limit is {MAX_TEXT}")
    if not isinstance(wanted, Mapping):
        return [_exactly(n, name, _clean_value(field, wanted))]
    given = _mapping(field, wanted, MetadataCondition.__annotations__)
    if "eq" in given or "in" in given:
        if len(given) > 1:
            raise InvalidInput(
                field, "`eq` and `in` cannot be combined with other conditions; for a range, use gt, gte, lt or lte"
            )
        values = [given["eq"]] if "eq" in given else _clean_values(field, given["in"])
        return [_exactly(n, name, _clean_value(field, value)) for value in values]
    return [_range(n, name, field, {bound: _clean_value(field, value) for bound, value in given.items()})]


def _exactly(n: int, key: str, value: MetadataValue) -> Interval:
    return Interval(n, key, _kind_of(value) or "text", value, value)


def _clean_values(field: str, values: object) -> Sequence[object]:
    if isinstance(values, str) or not isinstance(values, Sequence | set | frozenset) or not values:
        raise InvalidInput(field, "`in` must be a list with at least one value")
    if len(values) > MAX_VALUES:
        raise InvalidInput(field, f"`in` has {len(values)} values; the limit is {MAX_VALUES}: use several calls")
    return list(values)


def _range(n: int, key: str, field: str, bounds: Mapping[str, MetadataValue]) -> Interval:
    if not bounds:
        raise InvalidInput(field, "is empty: give a value, `in`, or a range with gt, gte, lt or lte")
    if {"gt", "gte"} <= bounds.keys() or {"lt", "lte"} <= bounds.keys():
        raise InvalidInput(field, "has two bounds on one side: use gt or gte, and lt or lte")
    kinds = {_kind_of(value) for value in bounds.values()}
    if len(kinds) > 1 or "bool" in kinds:
        raise InvalidInput(field, "the bounds of a range must both be numbers, or both be texts")
    low, high = bounds.get("gt", bounds.get("gte")), bounds.get("lt", bounds.get("lte"))
    kind: ValueKind = "number" if "number" in kinds else "text"
    return Interval(n, key, kind, low, high, "gt" in bounds, "lt" in bounds)


def _clean_value(field: str, value: object) -> MetadataValue:
    kind = _kind_of(value)
    if kind is None:
        raise InvalidInput(field, "must be a text, a number or a boolean, or a condition such as {'gte': 3}")
    assert isinstance(value, str | int | float)
    if isinstance(value, str):
        if len(value) > MAX_TEXT:
            raise InvalidInput(field, f"has {len(value)} characters; the limit is {MAX_TEXT}")
        return clean_text(field, value)
    if not abs(value) < MAX_NUMBER:  # NaN is refused, too
        raise InvalidInput(field, "is not a finite number below 1e300")
    return value


def _kind_of(value: object) -> ValueKind | None:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, int | float):
        return "number"
    return "text" if isinstance(value, str) else None
