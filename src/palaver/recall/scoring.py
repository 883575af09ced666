"""The score of each turn for a question: words, meaning, dates, people and neighbours together. Pure.

Every part is on an absolute scale. The lexical part is the share of the score that a perfect match of all words would
attain, so that a question whose words do not occur is decided by its meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import log1p

import numpy as np
from numpy.typing import NDArray

from palaver.recall.dates import nearness
from palaver.recall.query import Query
from palaver.recall.turn_arrays import Profile

Floats = NDArray[np.float32]
Indices = NDArray[np.int64]
Hits = tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int32]]

LOWEST = float(np.finfo(np.float32).min)
TINY = 1e-6  # in place of a standard deviation of 0
FEW = 32  # turns: fewer say little about the distribution of a scope
# How many times as long as people's turns the assistant's are, from which on it stands back: not at all, and fully.
ALIKE_LENGTHS, FULL_LENGTHS = 1.5, 4.0
FEW_LENGTHS = 4  # turns of a side: fewer say little about how it writes, and the assistant stands back


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of the parts of a score; docs/explanation/recall.md has the measurements behind them."""

    lexical: float = 1.0
    dense: float = 1.0
    date: float = 0.3
    neighbour: float = 0.3  # the better of the turns before and after
    second_neighbour: float = 0.1  # the better of the turns before and after those, where something is asked
    session: float = 0.2
    speaker: float = 0.25
    length: float = 0.05  # per doubling beyond `ordinary` tokens
    ordinary: int = 50
    remark_length: float = 0.1  # the same where nothing is asked: more short turns are worth more than a long one
    remark_ordinary: int = 30
    feedback: float = 0.3  # of the best turns' mean that is added to a question for several things
    feedback_turns: int = 3
    standing: float = 0.1
    assistant: float = 0.4
    opening: float = 0.3  # an overview begins with the first turns of each session; fades over `openings` turns
    openings: float = 5.0
    spread: float = 0.1  # the standard deviation to which every embedder's cosines are scaled
    common: float = 0.5  # see `aim`
    foreign_lexical: float = 1.5  # times, where the embedder does not know the language of the question
    foreign_dense: float = 0.5
    k1: float = 1.2
    b: float = 0.75


DEFAULT = Weights()
ALONE = replace(DEFAULT, neighbour=0.0, second_neighbour=0.0)  # the turns around a turn do not count


@dataclass(slots=True)
class Lexical:
    """Occurrences of a question's stems: for each stem, one entry per passage that contains it.

    An entry is the index of the turn, the size of the passage in stems, and how often it contains the stem. `passages`
    and `mean_size` are over the whole scope. If only some of the passages were read, `holding` says for each stem how
    many of the scope contain it.
    """

    stems: tuple[str, ...]
    hits: dict[str, Hits]
    passages: int
    mean_size: float
    holding: Mapping[str, int] | None = None

    def count(self, stem: str) -> int:
        """Return how many passages of the scope contain a stem."""
        if self.holding is not None:
            return self.holding.get(stem, 0)
        return len(self.hits[stem][0]) if stem in self.hits else 0


@dataclass(slots=True)
class Scores:
    """The scores of all turns. `total` is minus infinity for a turn that cannot be recalled.

    `relevance` is between 0 and 1, and means the same in every scope; see `palaver.recall.relevance`.
    """

    total: Floats
    named: dict[str, Floats] = field(default_factory=dict)
    relevance: Floats = field(default_factory=lambda: np.zeros(0, np.float32))

    def parts(self, i: int) -> dict[str, float]:
        """Return the parts of one turn's total."""
        return {name: round(float(values[i]), 4) for name, values in self.named.items()}


def score(
    profile: Profile,
    query: Query,
    lexical: Lexical,
    cosines: Floats | None,
    weights: Weights = DEFAULT,
    *,
    sample: Floats | None = None,
) -> Scores:
    """Score every turn of the profile. `cosines` has NaN for a turn without a vector; None if there is no embedder.

    If only the nearest turns have a cosine, `sample` holds the cosines of some others, as a scale.
    """
    w = _for_language(weights, query)
    own = {
        "lexical": w.lexical * lexical_share(len(profile), lexical, w),
        "dense": w.dense * scale_cosines(len(profile), cosines, sample, w.spread),
        "date": w.date * nearness(query.dates, profile.created),
        "length": _length(profile, query, w),
        "standing": w.standing * ((profile.standing > 0) & profile.has_assistant),
    }
    relevance = _sum(own)
    named = own | _score_context(profile, query, relevance, w)
    total = _sum(named)
    return Scores(np.where(profile.searchable, total, np.float32(-np.inf)), named)


def _for_language(weights: Weights, query: Query) -> Weights:
    if not query.words_first:
        return weights
    lexical, dense = weights.lexical * weights.foreign_lexical, weights.dense * weights.foreign_dense
    return replace(weights, lexical=lexical, dense=dense)


def _length(profile: Profile, query: Query, w: Weights) -> Floats:
    """Return what a turn loses for its length."""
    weight, ordinary = (w.length, w.ordinary) if query.is_question else (w.remark_length, w.remark_ordinary)
    return (-weight * np.log2(np.maximum(profile.tokens / np.float32(ordinary), 1))).astype(np.float32)


def _sum(parts: Mapping[str, Floats]) -> Floats:
    total = np.zeros(len(next(iter(parts.values()))), np.float32)
    for part in parts.values():
        total += part
    return total


def _score_context(profile: Profile, query: Query, relevance: Floats, w: Weights) -> dict[str, Floats]:
    """Score a turn for its surroundings and its speaker.

    A question about one thing prefers neighbours of relevant turns; an overview prefers the openings of sessions.
    """
    none = np.zeros(len(profile), np.float32)
    return {
        "neighbour": none if query.overview else _score_neighbours(profile, query, relevance, w),
        "session": none if query.overview else w.session * _best_in_session(profile, relevance),
        "opening": w.opening * _openings(profile, w.openings) if query.overview else none,
        "speaker": w.speaker * np.isin(profile.actor, list(query.named)) if query.named else none,
        "role": none if query.asks_assistant else -w.assistant * _stands_back(profile, query) * profile.assistant,
    }


def _stands_back(profile: Profile, query: Query) -> float:
    """Return how much what the assistant said stands back behind what people said, between 0 and 1.

    An assistant that writes several times as much as people do explains and repeats. One that writes as they do is a
    person's partner: what it said counts as much. Nor does it stand back if the question names it.
    """
    theirs, ours = (profile.tokens[profile.searchable & side] for side in (profile.assistant, ~profile.assistant))
    if not len(theirs) or not len(ours):
        return 1.0
    if query.named and np.isin(profile.actor[profile.assistant], list(query.named)).any():
        return 0.0
    ratio = float(theirs.mean()) / max(float(ours.mean()), 1.0)
    measured = float(np.clip(np.log2(ratio / ALIKE_LENGTHS) / np.log2(FULL_LENGTHS / ALIKE_LENGTHS), 0, 1))
    known = min(len(theirs), len(ours))
    return (known * measured + FEW_LENGTHS) / (known + FEW_LENGTHS)


# ---- words ---------------------------------------------------------------------------------------------------------


def lexical_share(n: int, lexical: Lexical, w: Weights) -> Floats:
    """Return for each turn the BM25 of its best passage, as a share of the most that the question could attain."""
    rarity = {stem: idf(lexical, stem) for stem in lexical.stems}
    top = sum(rarity.values()) * (w.k1 + 1)
    found = [
        _gains(rarity[stem], lexical.hits[stem], lexical.mean_size, w) for stem in lexical.stems if stem in lexical.hits
    ]
    best = np.zeros(n, np.float32)
    if found and top:
        passages, gains = (np.concatenate(column) for column in zip(*found, strict=True))
        passages, inverse = np.unique(passages, return_inverse=True)
        np.maximum.at(best, passages >> 20, (np.bincount(inverse, gains) / top).astype(np.float32))
    return best


def idf(lexical: Lexical, stem: str) -> float:
    """Return how rare a stem is among the passages of the scope."""
    holding = lexical.count(stem)
    return log1p((max(lexical.passages, holding) - holding + 0.5) / (holding + 0.5))


def _gains(rarity: float, hits: Hits, mean_size: float, w: Weights) -> tuple[Indices, NDArray[np.float64]]:
    """Return what a stem adds to each passage. Turn and size identify it: a turn rarely has two of one size."""
    turns, sizes, tf = hits
    norm = w.k1 * (1 - w.b + w.b * sizes / (mean_size or 1))
    return turns.astype(np.int64) << 20 | sizes, rarity * tf * (w.k1 + 1) / (tf + norm)


# ---- meaning -------------------------------------------------------------------------------------------------------


def aim(query: Floats, mean: Floats, count: int, weights: Weights = DEFAULT) -> Floats:
    """Remove from the query's vector half of its component along the mean of the scope's `count` vectors.

    That component is common to all turns, so it does not distinguish them, and puts the few turns about something else
    at a disadvantage. A scope of few turns has no meaningful mean yet, so less is removed.
    """
    size = float(mean @ mean)
    if not count or not size:
        return query
    share = weights.common * count / (count + FEW)
    return (query - share * float(query @ mean) / size * mean).astype(np.float32)


def widen(question: Floats, nearest: Floats, weights: Weights = DEFAULT) -> Floats:
    """Move a question for several things towards the mean of the best turns' vectors.

    The first items that are found say more about the others than the question does.
    """
    mean = nearest.mean(axis=0)
    moved = question + weights.feedback * mean / max(float(np.linalg.norm(mean)), TINY)
    unit: Floats = (moved / max(float(np.linalg.norm(moved)), TINY)).astype(np.float32)
    return unit


def scale_cosines(
    n: int, cosines: Floats | None, sample: Floats | None = None, spread: float = DEFAULT.spread
) -> Floats:
    """Shift and scale cosines: the median becomes 0, the standard deviation `spread`; 0 for a turn without a vector.

    Embedders differ in the range of their cosines, so the scale comes from the scope's own distribution (or from
    `sample`). The fewer values there are, the less they are scaled.
    """
    known = np.empty(0, np.float32) if cosines is None else cosines[~np.isnan(cosines)]
    known = known if sample is None or not len(known) else sample
    if cosines is None or not len(known):
        return np.zeros(n, np.float32)
    trust = len(known) / (len(known) + FEW)
    scale = (spread / max(float(known.std()), TINY)) ** trust
    level: Floats = (cosines - np.median(known)) * np.float32(scale)
    return np.nan_to_num(level)


# ---- neighbours ----------------------------------------------------------------------------------------------------


def _score_neighbours(profile: Profile, query: Query, relevance: Floats, w: Weights) -> Floats:
    """Score a turn for the better of the turns around it, and where something is asked, of the turns around those.

    Where two people talk alternately, the second neighbours are by the same person, and often about the same thing.
    In a chat with an assistant that writes at length, they belong to another request.
    """
    floor = relevance[profile.searchable].min(initial=0.0)
    # Index -1 means no neighbour, and is the last element. A hidden turn counts as none.
    padded = np.append(np.where(profile.searchable, relevance, floor), floor).astype(np.float32)
    best: Floats = np.maximum(padded[profile.before], padded[profile.after])
    if not query.is_question:
        return w.neighbour * best
    before, after = np.append(profile.before, -1), np.append(profile.after, -1)
    second: Floats = np.maximum(padded[before[profile.before]], padded[after[profile.after]])
    weight = w.second_neighbour * (1 - _stands_back(profile, query) if profile.has_assistant else 1)
    return w.neighbour * best + weight * second


def _best_in_session(profile: Profile, relevance: Floats) -> Floats:
    best = np.full(int(profile.session.max(initial=-1)) + 1, -np.inf, np.float32)
    np.maximum.at(best, profile.session[profile.searchable], relevance[profile.searchable])
    spread: Floats = np.nan_to_num(best, neginf=0.0)[profile.session]
    return spread


def _openings(profile: Profile, fades: float) -> Floats:
    """Return 1 for the first turn of a person in a session, and less for later ones."""
    return np.where(profile.nth >= 0, np.exp(profile.nth / np.float32(-fades)), 0)


# ---- choosing ------------------------------------------------------------------------------------------------------


def rank(
    scores: Scores, k: int | None = None, threshold: float | None = None, exclude: Iterable[int] | None = None
) -> Indices:
    """Return turns, best first: at most `k`, none below `threshold`, none of `exclude`. Ties: the newer first."""
    total = scores.total
    if exclude is not None:
        total = total.copy()
        total[np.fromiter(exclude, np.int64)] = -np.inf
    fit = np.flatnonzero(total > -np.inf if threshold is None else total >= max(threshold, LOWEST))[::-1]
    if k is not None and k < len(fit):
        fit = fit[total[fit] >= np.partition(total[fit], len(fit) - k)[len(fit) - k]] if k > 0 else fit[:0]
    return fit[np.argsort(-total[fit], kind="stable")][:k]
