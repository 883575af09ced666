"""Which turns belong together: sessions, neighbours, and how early in a session a person speaks. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

HOUR = 3_600_000_000  # microseconds
ADJACENT = 2  # positions: at most one turn that cannot be recalled lies between
FEW = 32  # up to this many new turns are added one by one; more than that, and all links are computed again

Ints = NDArray[np.int64]
Codes = NDArray[np.int32]
Flags = NDArray[np.bool_]


class Places(NamedTuple):
    """Where turns are in their conversations, and whether they can be recalled."""

    conversation: Ints
    position: Ints
    created: Ints  # microseconds
    assistant: Flags
    searchable: Flags


class Links(NamedTuple):
    """The session and the neighbours of each turn.

    `session` numbers stretches of one conversation without a pause of an hour. `before` and `after` are the indices of
    the searchable neighbours in the same session, -1 if there is none. `nth` counts the turns of people in their
    session from 0; it is -1 for every other turn.
    """

    session: Codes
    before: Ints
    after: Ints
    nth: Codes


def link_turns(places: Places, *, sparse: bool = False) -> Links:
    """Compute the links of all these turns.

    If they are `sparse`, turns between them are missing: only turns that are next to each other are neighbours, and how
    many turns of people came before is not known.
    """
    n = len(places.created)
    links = Links(np.empty(n, np.int32), np.full(n, -1), np.full(n, -1), np.full(n, -1, np.int32))
    order = _sort_by_position(places)
    conversation, created = places.conversation[order], places.created[order]
    starts = np.ones(n, bool)
    starts[1:] = (conversation[1:] != conversation[:-1]) | (np.abs(np.diff(created)) >= HOUR)
    links.session[order] = np.cumsum(starts) - 1
    searchable = order[places.searchable[order]]
    _join_neighbours(links, searchable, places.position[searchable] if sparse else None)
    if sparse:
        return links
    _count_people(links, order[(places.searchable & ~places.assistant)[order]])
    return links


def _join_neighbours(links: Links, searchable: Ints, positions: Ints | None) -> None:
    together = links.session[searchable[1:]] == links.session[searchable[:-1]]
    if positions is not None:
        together &= np.diff(positions) <= ADJACENT
    links.before[searchable[1:][together]] = searchable[:-1][together]
    links.after[searchable[:-1][together]] = searchable[1:][together]


def _count_people(links: Links, people: Ints) -> None:
    session = links.session[people]
    links.nth[people] = np.arange(len(people)) - np.searchsorted(session, session)


def _sort_by_position(places: Places) -> Ints:
    """Return the indices in order of conversation and position; they nearly always are in order."""
    conversation, position = places.conversation, places.position
    is_later = conversation[1:] > conversation[:-1]
    if bool((is_later | ((conversation[1:] == conversation[:-1]) & (position[1:] > position[:-1]))).all()):
        return np.arange(len(conversation))
    return np.lexsort((position, conversation))


# ---- a few more turns ----------------------------------------------------------------------------------------------


def extend_links(known: Links, places: Places) -> Links:
    """Compute the links of all these turns, given those of the first ones.

    Most often a few turns were added at the end of a conversation; these are linked one by one.
    """
    n, more = len(known.session), len(places.created) - len(known.session)
    if more > FEW:
        return link_turns(places)
    links = Links(*(np.concatenate((column, np.full(more, -1, column.dtype))) for column in known))
    end: _End | None = None
    for i in (n + np.lexsort((places.position[n:], places.conversation[n:]))).tolist():
        if end is None or places.conversation[end.last] != places.conversation[i]:
            end = _end_of(int(places.conversation[i]), known, places)
        if end.last >= 0 and places.position[i] <= places.position[end.last]:
            return link_turns(places)  # it belongs between known turns
        _append(i, links, places, end)
    return links


@dataclass(slots=True)
class _End:
    """The end of a conversation: its last turn, the last searchable one of that session, and how often people spoke."""

    last: int
    searchable: int
    people: int


def _end_of(conversation: int, known: Links, places: Places) -> _End:
    own = np.flatnonzero(places.conversation[: len(known.session)] == conversation)
    if not len(own):
        return _End(-1, -1, 0)
    last = _latest(own, places)
    session = own[known.session[own] == known.session[last]]
    searchable = session[places.searchable[session]]
    return _End(last, _latest(searchable, places), int((known.nth[session] >= 0).sum()))


def _latest(indices: Ints, places: Places) -> int:
    return int(indices[places.position[indices].argmax()]) if len(indices) else -1


def _append(i: int, links: Links, places: Places, end: _End) -> None:
    """Link turn `i` to the end of its conversation, which it becomes."""
    if end.last >= 0 and abs(places.created[i] - places.created[end.last]) < HOUR:
        links.session[i] = links.session[end.last]
    else:
        links.session[i] = links.session.max() + 1
        end.searchable, end.people = -1, 0
    end.last = i
    if not places.searchable[i]:
        return
    links.before[i] = end.searchable
    if end.searchable >= 0:
        links.after[end.searchable] = i
    end.searchable = i
    if not places.assistant[i]:
        links.nth[i] = end.people
        end.people += 1
