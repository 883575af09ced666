"""Argument checks that methods of stores and conversations share."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TypeVar

from palaver.core.turn_options import Moment
from palaver.core.validation import clean_limit, clean_moment, clean_name, did_you_mean
from palaver.errors import InvalidInput
from palaver.model import Turn
from palaver.ports.queries import EventQuery

T = TypeVar("T")
MAX_READ = 100_000  # turns, events or rows that one call returns at most


def turn_id(field: str, turn: object) -> str:
    """Return the id of a turn that is given as a turn or as its id; sequence numbers are refused."""
    if isinstance(turn, Turn):
        return turn.id
    if isinstance(turn, str):
        return clean_name(field, turn)
    raise InvalidInput(field, f"must be a turn or its id, not {type(turn).__name__}")


def optional_turn_id(field: str, turn: object) -> str | None:
    return None if turn is None else turn_id(field, turn)


def optional_moment(field: str, moment: object) -> int | None:
    return None if moment is None else clean_moment(field, moment)


def clean_names(field: str, values: Iterable[str]) -> tuple[str, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InvalidInput(field, "must be a list of names")
    return tuple(clean_name(field, value) for value in values)


def optional_names(field: str, values: Iterable[str] | None) -> tuple[str, ...] | None:
    return None if values is None else clean_names(field, values)


def check_keywords(
    given: Mapping[str, object],
    known: Collection[str],
    what: str,
    named: Collection[str] = (),
    place: Callable[[str], str] = lambda _: "",
) -> None:
    """Reject unknown keywords, so that a typo is not ignored.

    For the hint: `named` are other parameters of the call, and `place` returns where else a name belongs.
    """
    for name in given:
        if name not in known:
            hint = place(name) or did_you_mean(name, [*known, *named])
            raise InvalidInput(name, f"is not {what}{hint}; known names: {', '.join(known)}")


def event_query(
    after: int,
    limit: int,
    kinds: Iterable[str] | None,
    actors: Iterable[str] | None,
    turn: Turn | str | None,
    since: Moment | None,
    until: Moment | None,
) -> EventQuery:
    return EventQuery(
        after=clean_limit("after", after, 2**53),
        limit=clean_limit("limit", limit, MAX_READ),
        kinds=optional_names("kinds", kinds),
        actors=optional_names("actors", actors),
        turn=optional_turn_id("turn", turn),
        since=optional_moment("since", since),
        until=optional_moment("until", until),
    )


def one_of(field: str, given: T | None, filtered: T | None) -> T | None:
    """Return the argument or the same condition of `where`; both at once are refused."""
    if given is not None and filtered is not None:
        raise InvalidInput(f"where.{field}", f"is given twice: as {field}= and in where=; leave one out")
    return filtered if given is None else given
