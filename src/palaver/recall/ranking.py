"""The best turns for a question, from what the engine and the embedder found. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from palaver.model import Fact
from palaver.recall.query import Query
from palaver.recall.scoring import Indices, Lexical, Scores, rank, scale_cosines, score
from palaver.recall.terms import terms
from palaver.recall.turn_arrays import IndexedProfile, Profile
from palaver.recall.vectors import Nearness, decode

STANDING_INSTRUCTION = 2  # the mark in a profile; 1 is a preference


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Bounds of the turns to rank: created in [since, until) in microseconds, position up to `through`."""

    since: int | None = None
    until: int | None = None
    through: int | None = None

    def excluded(self, profile: Profile) -> Indices | None:
        """Return the indices of the turns outside the bounds. None if there are no bounds."""
        if self.since is None and self.until is None and self.through is None:
            return None
        outside = np.zeros(len(profile), bool)
        if self.since is not None:
            outside |= profile.created < self.since
        if self.until is not None:
            outside |= profile.created >= self.until
        if self.through is not None:
            outside |= profile.position > self.through
        return np.flatnonzero(outside)


@dataclass(frozen=True, slots=True)
class RankedTurn:
    """A turn that was found, without its text: that is read when it is quoted, so that a deleted turn is gone."""

    tid: int
    score: float
    parts: dict[str, float]
    standing: bool = False
    turn_id: str | None = None  # to recognise the turn later: numbers are used again after a deletion


@dataclass(frozen=True, slots=True)
class Ranking:
    """The best turns, best first, as indices into the profile."""

    profile: Profile
    scores: Scores
    order: Indices
    note: str  # how they were found
    near: Nearness

    def standing(self, most: int) -> list[int]:
        """Return the standing instructions, best first; none where no assistant takes part to follow them."""
        if not self.profile.has_assistant:
            return []
        found = (self.profile.standing == STANDING_INSTRUCTION).nonzero()[0][::-1]
        found = found[(-self.scores.total[found]).argsort(kind="stable")]
        return [int(i) for i in found[:most] if self.profile.searchable[i]]

    def offer(self, tokens: int, threshold: float | None, standing: int) -> tuple[RankedTurn, ...]:
        """Return the best turns that fit into `tokens`, and up to `standing` standing instructions."""
        fitting = self.profile.tokens[self.order].cumsum().searchsorted(tokens, "right")
        best = self.order[:fitting]
        if threshold is not None:
            best = best[self.scores.total[best] >= threshold]
        instructions = self.standing(standing)
        chosen = list(dict.fromkeys([*best.tolist(), *instructions]))
        named = self.scores.named
        parts = zip(*(values[chosen].round(4).tolist() for values in named.values()), strict=True)
        columns = (chosen, self.profile.tid[chosen].tolist(), self.scores.total[chosen].tolist(), parts)
        return tuple(
            RankedTurn(tid, total, dict(zip(named, values, strict=True)), i in instructions)
            for i, tid, total, values in zip(*columns, strict=True)
        )


def rank_turns(
    profile: Profile, query: Query, lexical: Lexical, near: Nearness, most: int, bounds: Filter
) -> tuple[Scores, Indices]:
    """Score every turn, and return the best `most` of those within the bounds."""
    scores = score(profile, query, lexical, near.cosines, sample=near.sample)
    return scores, rank(scores, most, exclude=bounds.excluded(profile))


def count_words(
    known: IndexedProfile,
    query: Query,
    postings: Mapping[str, tuple[Sequence[int], Sequence[int]]],
    *,
    passages: int,
    words: int,
) -> Lexical:
    """Find the postings' turns in the profile. `passages` and `words` are the numbers of all in the scope."""
    hits = {}
    for stem, (tids, sizes) in postings.items():
        indices, is_known = known.find(np.asarray(tids, np.int64))
        hits[stem] = (indices, np.asarray(sizes, np.int32)[is_known], np.ones(len(indices), np.int32))
    return Lexical(query.stems, hits, max(1, passages), max(1.0, words / max(1, passages)))


def score_facts(facts: Sequence[Fact], text: str, near: Mapping[str, float]) -> list[tuple[Fact, dict[str, float]]]:
    """Score facts by the share of the question's stems that each holds, and by how near it is (`compare_facts`)."""
    stems = set(terms(text))
    return [(fact, {"lexical": _share(fact, stems), "dense": near.get(fact.id, 0.0)}) for fact in facts]


def compare_facts(stored: Mapping[str, bytes], near: Nearness) -> dict[str, float]:
    """Return how much nearer each fact's vector is to the question than the turns of the scope are."""
    if not stored or near.question is None:
        return {}
    cosines = decode(list(stored.values()), len(near.question)) @ near.question
    return dict(zip(stored, scale_cosines(len(stored), cosines, near.distribution()).tolist(), strict=True))


def _share(fact: Fact, stems: set[str]) -> float:
    held = stems.intersection(terms(f"{fact.subject} {fact.predicate} {fact.object}"))
    return len(held) / len(stems) if stems else 0.0
