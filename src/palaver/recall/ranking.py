"""The best turns for a question, from what the engine and the embedder found. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from palaver.model import Fact
from palaver.recall.query import Query
from palaver.recall.relevance import Alikeness, estimate, estimate_single
from palaver.recall.scoring import (
    ALONE,
    DEFAULT,
    Hits,
    Indices,
    Lexical,
    Scores,
    Weights,
    idf,
    rank,
    scale_cosines,
    score,
)
from palaver.recall.sessions import Flags
from palaver.recall.terms import terms
from palaver.recall.turn_arrays import IndexedProfile, Profile
from palaver.recall.vectors import Nearness, decode, has_length

STANDING_INSTRUCTION = 2  # the mark in a profile; 1 is a preference


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Bounds of the turns to rank: created in [since, until) in microseconds, position up to `through`.

    `asked` is the turn that is the question itself, by its time and position: it would be the best answer to itself.
    `tids` are the numbers of the only turns to rank, `actors` and `roles` the only speakers and roles. With
    `unrelated`, the turns are items of a list, so neighbours do not count.
    """

    since: int | None = None
    until: int | None = None
    through: int | None = None
    asked: tuple[int, int] | None = None
    tids: Indices | None = None
    actors: tuple[str, ...] | None = None
    roles: tuple[str, ...] | None = None
    unrelated: bool = False

    @property
    def has_bounds(self) -> bool:
        bounds = (self.since, self.until, self.through, self.tids, self.actors, self.roles)
        return any(one is not None for one in bounds)

    def excluded(self, profile: Profile) -> Flags | None:
        """Return which turns are outside the bounds. None if there are no bounds."""
        if not self.has_bounds:
            return None
        outside = np.zeros(len(profile), bool)
        if self.since is not None:
            outside |= profile.created < self.since
        if self.until is not None:
            outside |= profile.created >= self.until
        if self.through is not None:
            outside |= profile.position > self.through
        return outside | self._filtered(profile)

    def _filtered(self, profile: Profile) -> Flags:
        """Return which turns a filter excludes."""
        outside = np.zeros(len(profile), bool)
        if self.tids is not None:
            outside |= ~np.isin(profile.tid, self.tids)
        if self.actors is not None:
            codes = [code for code, name in enumerate(profile.actors) if name in self.actors]
            outside |= ~np.isin(profile.actor, codes)
        if self.roles is not None:  # only turns of users and assistants can be found
            outside |= np.where(profile.assistant, "assistant" not in self.roles, "user" not in self.roles)
        return outside

    @property
    def weights(self) -> Weights:
        return replace(ALONE, session=0.0, opening=0.0) if self.unrelated else DEFAULT

    def hide_question(self, profile: Profile) -> Profile:
        """Return the profile without the question's own turn."""
        if self.asked is None:
            return profile
        created, position = self.asked
        return profile.hide((profile.created == created) & (profile.position == position))


@dataclass(frozen=True, slots=True)
class RankedTurn:
    """A turn that was found, without its text: that is read when it is quoted, so that a deleted turn is gone."""

    tid: int
    score: float
    parts: dict[str, float]
    standing: bool = False
    turn_id: str | None = None  # to recognise the turn later: numbers are used again after a deletion
    relevance: float = 0.0
    place: int = 0  # in the ranking, from 0
    spans: tuple[tuple[int, int], ...] | None = None  # that the last prompt for the same message quoted


@dataclass(frozen=True, slots=True)
class Hints:
    """Hints of the question for quoting turns: how much each of its stems counts, and what it asks for."""

    rarity: Mapping[str, float] = field(default_factory=dict)
    asks_assistant: bool = False
    collects: bool = False
    past: bool = False

    @classmethod
    def of(cls, query: Query, lexical: Lexical) -> Hints:
        rarity = {stem: idf(lexical, stem) for stem in lexical.stems}
        others = {other: rarity[stem] for stem, others in query.others.items() for other in others}
        stems = rarity if query.language is None else others | rarity
        return cls(stems, query.asks_assistant, query.collects, query.past)


@dataclass(frozen=True, slots=True)
class Ranking:
    """The best turns, best first, as indices into the profile."""

    profile: Profile
    scores: Scores
    order: Indices
    note: str  # how they were found
    near: Nearness
    is_sparse: bool = False  # only candidates of the scope were ranked
    hints: Hints = field(default_factory=Hints)

    def standing(self, most: int) -> list[int]:
        """Return the standing instructions, best first; none where no assistant takes part to follow them."""
        if not self.profile.has_assistant:
            return []
        found = (self.profile.standing == STANDING_INSTRUCTION).nonzero()[0][::-1]
        found = found[(-self.scores.total[found]).argsort(kind="stable")]
        return [int(i) for i in found[:most] if self.profile.searchable[i]]

    def offer(self, tokens: int, longest: int, threshold: float | None, standing: int) -> tuple[RankedTurn, ...]:
        """Return the best turns that fit into `tokens`, and up to `standing` standing instructions.

        Of a longer turn than `longest` only a part has to fit. `threshold` is the least relevance, except of the
        standing instructions.
        """
        relevance = self.scores.relevance
        order = self.order if threshold is None else self.order[relevance[self.order] >= threshold]
        sizes = np.minimum(self.profile.tokens[order], longest)
        best = order[: sizes.cumsum().searchsorted(tokens, "right")]
        instructions = self.standing(standing)
        chosen = list(dict.fromkeys([*best.tolist(), *instructions]))
        named = self.scores.named
        parts = zip(*(values[chosen].round(4).tolist() for values in named.values()), strict=True)
        numbers = (column[chosen].tolist() for column in (self.profile.tid, self.scores.total, relevance.round(4)))
        return tuple(
            RankedTurn(tid, total, dict(zip(named, values, strict=True)), i in instructions, None, relevant, place)
            for place, (i, values, tid, total, relevant) in enumerate(zip(chosen, parts, *numbers, strict=True))
        )

    @property
    def best_relevance(self) -> float:
        """The relevance of the best turn; 0 if there is none."""
        return float(self.scores.relevance.max(initial=0.0))


def rank_turns(
    profile: Profile,
    query: Query,
    lexical: Lexical,
    near: Nearness,
    most: int,
    bounds: Filter,
    sample: Flags | None = None,
    wider: Nearness | None = None,
) -> tuple[Scores, Indices]:
    """Score every turn, and return the best `most` of those within the bounds.

    `sample` says which turns stand for all, if the profile holds only candidates. `wider` is how near the turns are to
    the question as `widen` changed it; whether the scope is about it is still judged by the question itself.
    """
    profile = bounds.hide_question(profile)
    scores = score(profile, query, lexical, (wider or near).cosines, bounds.weights, sample=near.sample)
    outside = bounds.excluded(profile)
    allowed = profile.searchable if outside is None else profile.searchable & ~outside
    scores.relevance = estimate(
        profile,
        query,
        lexical,
        near.cosines,
        near.alike,
        scores,
        allowed,
        complete=near.sample is not None,
        sample=sample,
    )
    return scores, rank(scores, most, exclude=None if outside is None else np.flatnonzero(outside))


def count_words(
    known: IndexedProfile,
    query: Query,
    postings: Mapping[str, tuple[Sequence[int], Sequence[int]]],
    *,
    passages: int,
    words: int,
) -> Lexical:
    """Find the postings' turns in the profile. `passages` and `words` are the numbers of all in the scope."""
    hits: dict[str, Hits] = {}
    for stem, (tids, sizes) in postings.items():
        indices, is_known = known.find(np.asarray(tids, np.int64))
        hits[stem] = (indices, np.asarray(sizes, np.int32)[is_known], np.ones(len(indices), np.int32))
    hits = {stem: _with_others(query, stem, hits) for stem in query.stems if stem in hits}
    return Lexical(query.stems, hits, max(1, passages), max(1.0, words / max(1, passages)))


def _with_others(query: Query, stem: str, hits: Mapping[str, Hits]) -> Hits:
    """Return where a word of the question occurs, by any of its stems.

    If the language of the question is not known, its other stems count only where nothing has the word itself.
    """
    own, others = hits[stem], [hits[other] for other in query.others.get(stem, ()) if other in hits]
    if not others or (query.language is None and len(own[0])):
        return own
    turns, sizes, counts = (np.concatenate(column) for column in zip(own, *others, strict=True))
    _, first = np.unique(turns.astype(np.int64) << 20 | sizes, return_index=True)
    return turns[first], sizes[first], counts[first]


class ScoredFact(NamedTuple):
    """A fact with the parts of its score, and its relevance."""

    fact: Fact
    parts: dict[str, float]
    relevance: float


class FactCosine(NamedTuple):
    """The cosine of a fact and the question, as it is and scaled as those of turns are."""

    cosine: float
    scaled: float


def score_facts(
    facts: Sequence[Fact], query: Query, cosines: Mapping[str, FactCosine], alike: Alikeness
) -> list[ScoredFact]:
    """Score facts by the share of the question's stems that each holds, and by how near it is (`compare_facts`)."""
    stems = set(terms(query.text))
    found = []
    for fact in facts:
        share, near = _share(fact, stems), cosines.get(fact.id)
        parts = {"lexical": share, "dense": near.scaled if near else 0.0}
        relevance = estimate_single(query, share, near.cosine if near else None, alike)
        found.append(ScoredFact(fact, parts, relevance))
    return found


def compare_facts(stored: Mapping[str, bytes], near: Nearness) -> dict[str, FactCosine]:
    """Return how near each fact's vector is to the question, and how much nearer than the turns of the scope are."""
    if near.question is None:
        return {}
    stored = {id: half for id, half in stored.items() if has_length(half, len(near.question))}
    if not stored:
        return {}
    cosines = decode(list(stored.values()), len(near.question)) @ near.question
    scaled = scale_cosines(len(stored), cosines, near.distribution())
    return dict(zip(stored, map(FactCosine, cosines.tolist(), scaled.tolist()), strict=True))


def _share(fact: Fact, stems: set[str]) -> float:
    held = stems.intersection(terms(f"{fact.subject} {fact.predicate} {fact.object}"))
    return len(held) / len(stems) if stems else 0.0
