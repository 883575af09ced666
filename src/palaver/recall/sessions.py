"""Which turns belong together: sessions, neighbours, and who speaks how early in a session. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

HOUR = 3_600_000_000  # microseconds
FEW = 32  # turns: so many are added one by one

Ints = NDArray[np.int64]
Codes = NDArray[np.int32]
Flags = NDArray[np.bool_]


class Places(NamedTuple):
    """Where turns stand, and whether their words count."""

    conversation: Codes
    position: Ints
    created: Ints  # microseconds
    assistant: Flags
    searchable: Flags


class Links(NamedTuple):
    """`session` names stretches without a pause of an hour inside one conversation. `before` and `after` are the
    indices of the searchable neighbours in the same session, -1 where there is none. `nth` counts the turns of people
    in their session from 0; it is -1 for every other turn."""

    session: Codes
    before: Ints
    after: Ints
    nth: Codes


def linked(places: Places) -> Links:
    """The links of all these turns."""
    n = len(places.created)
    links = Links(np.empty(n, np.int32), np.full(n, -1), np.full(n, -1), np.full(n, -1, np.int32))
    order = _order(places)
    conversation, created = places.conversation[order], places.created[order]
    starts = np.ones(n, bool)
    starts[1:] = (conversation[1:] != conversation[:-1]) | (np.abs(np.diff(created)) >= HOUR)
    links.session[order] = np.cumsum(starts) - 1
    _join(links, order[places.searchable[order]])
    _number(links, order[(places.searchable & ~places.assistant)[order]])
    return links


def _join(links: Links, heard: Ints) -> None:
    together = links.session[heard[1:]] == links.session[heard[:-1]]
    links.before[heard[1:][together]] = heard[:-1][together]
    links.after[heard[:-1][together]] = heard[1:][together]


def _number(links: Links, people: Ints) -> None:
    session = links.session[people]
    links.nth[people] = np.arange(len(people)) - np.searchsorted(session, session)


def _order(places: Places) -> Ints:
    """The indices in order of conversation and position; nearly always they are so already."""
    conversation, position = places.conversation, places.position
    later = conversation[1:] > conversation[:-1]
    if bool((later | ((conversation[1:] == conversation[:-1]) & (position[1:] > position[:-1]))).all()):
        return np.arange(len(conversation))
    return np.lexsort((position, conversation))


# ---- a few more ----------------------------------------------------------------------------------------------------


def followed(known: Links, places: Places) -> Links:
    """The links of all these turns, of which the first are known: most often, a few came to the end of a
    conversation."""
    n, more = len(known.session), len(places.created) - len(known.session)
    if more > FEW:
        return linked(places)
    links = Links(*(np.concatenate((column, np.full(more, -1, column.dtype))) for column in known))
    end: _End | None = None
    for i in (n + np.lexsort((places.position[n:], places.conversation[n:]))).tolist():
        if end is None or places.conversation[end.last] != places.conversation[i]:
            end = _end_of(int(places.conversation[i]), known, places)
        if end.last >= 0 and places.position[i] <= places.position[end.last]:
            return linked(places)  # it belongs in between
        _add(i, links, places, end)
    return links


@dataclass(slots=True)
class _End:
    """The end of a conversation: its last turn, the last one heard in that session, and how many people spoke there."""

    last: int
    heard: int
    people: int


def _end_of(conversation: int, known: Links, places: Places) -> _End:
    mine = np.flatnonzero(places.conversation[: len(known.session)] == conversation)
    if not len(mine):
        return _End(-1, -1, 0)
    last = _latest(mine, places)
    there = mine[known.session[mine] == known.session[last]]
    return _End(last, _latest(there[places.searchable[there]], places), int((known.nth[there] >= 0).sum()))


def _latest(indices: Ints, places: Places) -> int:
    return int(indices[places.position[indices].argmax()]) if len(indices) else -1


def _add(i: int, links: Links, places: Places, end: _End) -> None:
    if end.last >= 0 and abs(places.created[i] - places.created[end.last]) < HOUR:
        links.session[i] = links.session[end.last]
    else:
        links.session[i] = links.session.max() + 1
        end.heard, end.people = -1, 0
    end.last = i
    if not places.searchable[i]:
        return
    links.before[i] = end.heard
    if end.heard >= 0:
        links.after[end.heard] = i
    end.heard = i
    if not places.assistant[i]:
        links.nth[i] = end.people
        end.people += 1
