"""The turns of a very large scope that may be among the best, so that only these are scored in full. Pure.

They are the nearest by meaning, those with most of the words, those of the dates that the question names, and the
newest standing instructions, with their neighbours; and some others, which stand for all the rest.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from palaver.recall.dates import nearness
from palaver.recall.query import Query
from palaver.recall.scoring import Floats, Indices, Lexical
from palaver.recall.sessions import Flags, Links
from palaver.recall.turn_arrays import Profile
from palaver.recall.vectors import Nearness, best_by_words

LARGE = 30_000  # turns; a smaller scope is scored as a whole
NEAREST = 2_000  # turns by meaning, by words and by dates each
INSTRUCTIONS = 300
SAMPLE = 1_000


class Narrowed(NamedTuple):
    """Some turns of a scope. `sample` says which of them stand for all."""

    profile: Profile
    lexical: Lexical
    near: Nearness
    sample: Flags
    indices: Indices  # in the profile of the whole scope


def narrow(profile: Profile, query: Query, lexical: Lexical, near: Nearness, outside: Flags | None) -> Narrowed:
    """Choose the turns to score; none of those `outside` the bounds counts as near."""
    typical = np.arange(0, len(profile), max(1, len(profile) // SAMPLE))
    best = _candidates(profile, query, lexical, near, outside)
    indices = np.unique(np.concatenate((best, _beside(profile, best, query), typical)))
    places = np.full(len(profile) + 1, -1)  # index -1 means no neighbour, and is the last element
    places[indices] = np.arange(len(indices))
    sample = np.zeros(len(indices), bool)
    sample[places[typical]] = True
    return Narrowed(
        _take(profile, indices, places),
        _take_words(lexical, places),
        _take_cosines(near, indices, typical),
        sample,
        indices,
    )


def _beside(profile: Profile, best: Indices, query: Query) -> Indices:
    """Return the neighbours of these turns, and their second neighbours where those count."""
    before, after = profile.before[best], profile.after[best]
    found = [before[before >= 0], after[after >= 0]]
    if query.is_question:
        found += [profile.before[found[0]], profile.after[found[1]]]
    beside = np.concatenate(found)
    return beside[beside >= 0]


def _candidates(profile: Profile, query: Query, lexical: Lexical, near: Nearness, outside: Flags | None) -> Indices:
    if outside is not None:
        inside = np.flatnonzero(profile.searchable & ~outside)
        if len(inside) <= NEAREST:  # a filter leaves so few that all of them are scored
            return inside
    weight = _closeness(profile, near, outside)
    found = [_largest(weight, NEAREST), best_by_words(len(profile), lexical, NEAREST)]
    found.append(np.flatnonzero(profile.standing == 2)[-INSTRUCTIONS:])
    if query.dates:
        fitting = np.flatnonzero(nearness(query.dates, profile.created))
        found.append(fitting[_largest(weight[fitting], NEAREST)])
    return np.unique(np.concatenate(found))


def _closeness(profile: Profile, near: Nearness, outside: Flags | None) -> Floats:
    """Return the cosines; the lowest value for turns that cannot be found, or that have none."""
    if near.cosines is None:
        return np.arange(len(profile), dtype=np.float32)  # without meaning, the newest
    hidden = ~profile.searchable if outside is None else ~profile.searchable | outside
    found: Floats = np.where(hidden | np.isnan(near.cosines), np.float32(-2), near.cosines)
    return found


def _largest(values: Floats, most: int) -> Indices:
    if len(values) <= most:
        return np.arange(len(values))
    return np.argpartition(values, len(values) - most)[len(values) - most :]


def _take(profile: Profile, indices: Indices, places: Indices) -> Profile:
    links = profile.links
    return replace(
        profile,
        **{name: getattr(profile, name)[indices] for name in _COLUMNS},
        links=Links(
            links.session[indices], places[links.before[indices]], places[links.after[indices]], links.nth[indices]
        ),
    )


_COLUMNS = ("tid", "conversation", "position", "created", "tokens", "assistant", "searchable", "actor", "standing")


def _take_words(lexical: Lexical, places: Indices) -> Lexical:
    hits = {}
    for stem, (turns, sizes, counts) in lexical.hits.items():
        kept = places[turns] >= 0
        hits[stem] = (places[turns[kept]], sizes[kept], counts[kept])
    return replace(lexical, hits=hits, holding={stem: lexical.count(stem) for stem in lexical.stems})


def _take_cosines(near: Nearness, indices: Indices, typical: Indices) -> Nearness:
    if near.cosines is None:
        return near
    sample = near.cosines[typical]
    return near._replace(cosines=near.cosines[indices], sample=sample[~np.isnan(sample)])
