"""Relevance: how likely it is that a scope has what a question asks about, and each turn's part of that. Pure.

Scores depend on the conversation: in some, every turn resembles every question. The signals here do not: how near the
best turn is beyond what turns of this scope are to each other, which part of the question's words the scope knows, and
whether the question refers to the conversation or to people in it. The fit and its figures
are in docs/explanation/recall.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp
from typing import NamedTuple

import numpy as np

from palaver.recall.query import Query
from palaver.recall.scoring import FEW, Floats, Lexical, Scores, idf
from palaver.recall.sessions import Flags
from palaver.recall.turn_arrays import Profile

ALIKE = 0.2  # the cosine of two turns of a conversation, as long as there are too few to measure it
KNOWN = 0.9  # the share of turns with a vector from which on meaning alone decides
STRONG_MATCH = 0.8  # of a question's words in one turn: rare for an unrelated question
COMMON_WORD = 2.0  # the least weight of a word, as of one that every eighth turn has
CERTAIN = 3.0  # log-odds: "sum up our conversation" is about the conversation
ORDINARY_GAP = 0.6  # between the best score and a typical one, as long as there are few turns


class Alikeness(NamedTuple):
    """The mean cosine of two passages of a scope, and the share of their common part that a question is without."""

    cosine: float = ALIKE
    removed: float = 0.0
    is_known: bool = False  # the scale of the embedder's cosines is known

    def on_scale(self, typical: float) -> Alikeness:
        """Bound what was measured by twice what is typical: the turns of a log are alike for another reason."""
        return self._replace(cosine=min(self.cosine, 2 * typical), is_known=True)


@dataclass(frozen=True, slots=True)
class Evidence:
    """The weights of one kind of evidence in log-odds: of its best match, and of the words that the scope knows."""

    best: float
    known_words: float
    constant: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """A logistic model. `meaning` and `words` were fitted; the others are set by hand, because one data set alone has
    the cue that each of them stands for.
    """

    meaning: Evidence = Evidence(best=15.2, known_words=2.75, constant=-5.8)
    words: Evidence = Evidence(best=9.9, known_words=1.75, constant=-3.9)
    refers: float = 3.0  # names a participant, or asks what the assistant said
    overview: float = 1.0
    recollects: float = 1.0  # "did I", "have we"
    date: float = 1.0  # names a time from which there are turns
    question: float = -3.0  # a question is nearer to its evidence than a statement is to what it alludes to


DEFAULT = Calibration()


def estimate(
    profile: Profile,
    query: Query,
    lexical: Lexical,
    cosines: Floats | None,
    alike: Alikeness,
    scores: Scores,
    allowed: Flags,
    *,
    complete: bool = False,
    sample: Flags | None = None,
    calibration: Calibration = DEFAULT,
) -> Floats:
    """Return the relevance of each turn, between 0 and 1; 0 for those that are not `allowed`.

    The best turn's is the probability that the scope holds evidence for the question. The others' are lower, as their
    score is, down to 0 for a turn with a typical score. `complete` says that no cosine is missing that would be high,
    `sample` which turns stand for all of the scope, if these are only its best ones.
    Words count too where a turn has most of them, cosines are missing, or the scale of the embedder is not known. They
    alone count where the embedder does not know the language of the question.
    """
    if not allowed.any():
        return np.zeros(len(profile), np.float32)
    words = _match_words(lexical, allowed)
    by_words = _odds(calibration.words, words.in_one_turn, words.known)
    best = None if query.words_first else _best_cosine(cosines, allowed)
    if best is None:
        odds = by_words
    else:
        odds = _odds(calibration.meaning, _closeness(best, alike), words.known)
        is_reliable = alike.is_known and (complete or _mostly_known(cosines, allowed))
        if not is_reliable or words.in_one_turn >= STRONG_MATCH:
            odds = max(odds, by_words)
    odds += _cues(query, scores, allowed, calibration)
    if query.overview and not query.topic:
        odds = max(odds, CERTAIN)
    return np.where(allowed, _sigmoid(odds) * _part_of_best(scores.total, allowed, sample), 0).astype(np.float32)


def estimate_single(query: Query, lexical_share: float, cosine: float | None, alike: Alikeness) -> float:
    """Return the relevance of one thing that is not a turn, such as a fact, by its share of the question's words."""
    cosine = None if query.words_first else cosine
    evidence = DEFAULT.words if cosine is None else DEFAULT.meaning
    best = lexical_share if cosine is None else _closeness(cosine, alike)
    odds = _odds(evidence, best, lexical_share)
    return _sigmoid(odds + DEFAULT.refers * _refers(query) + DEFAULT.question * query.is_question)


# ---- the scope -----------------------------------------------------------------------------------------------------


def _odds(evidence: Evidence, best: float, known_words: float) -> float:
    return evidence.best * best + evidence.known_words * known_words + evidence.constant


def _best_cosine(cosines: Floats | None, allowed: Flags) -> float | None:
    if cosines is None:
        return None
    known = cosines[allowed]
    known = known[~np.isnan(known)]
    return float(known.max()) if len(known) else None


def _mostly_known(cosines: Floats | None, allowed: Flags) -> bool:
    return cosines is not None and float((~np.isnan(cosines[allowed])).mean()) >= KNOWN


def _closeness(cosine: float, alike: Alikeness) -> float:
    """Return how much nearer the best turn is than two turns of the scope are, as a share of the most possible.

    Embedders differ in the range of their cosines; this is 0 for what is common to all turns, and 1 for the same text.
    """
    return (cosine - alike.cosine * (1 - alike.removed)) / max(1 - alike.cosine, 0.05)


class WordMatch(NamedTuple):
    """The part of the question's words, weighted by their rarity, that one turn holds, and that all turns hold."""

    in_one_turn: float
    known: float


def _match_words(lexical: Lexical, allowed: Flags) -> WordMatch:
    held = np.zeros(len(allowed), np.float32)
    known = total = 0.0
    for stem in lexical.stems:
        # A word that all turns have does not distinguish them, but it says that the question fits this conversation.
        weight = max(idf(lexical, stem), COMMON_WORD)
        total += weight
        if not lexical.count(stem):
            continue
        has_stem = np.zeros(len(allowed), bool)  # a turn may have it in several passages
        has_stem[lexical.hits[stem][0]] = True
        has_stem &= allowed
        if has_stem.any() or lexical.holding is not None:
            known += weight
            held[has_stem] += np.float32(weight)
    return WordMatch(float(held.max()) / total, known / total) if total else WordMatch(0.0, 0.0)


def _cues(query: Query, scores: Scores, allowed: Flags, calibration: Calibration) -> float:
    """Return the log-odds of what the question says of itself."""
    has_date = bool(scores.named["date"][allowed].max() > 0)
    return (
        calibration.refers * _refers(query)
        + calibration.overview * query.overview
        + calibration.recollects * query.recollects
        + calibration.date * has_date
        + calibration.question * query.is_question
    )


def _refers(query: Query) -> bool:
    return bool(query.named) or query.asks_assistant


def _sigmoid(odds: float) -> float:
    return 1 / (1 + exp(-odds)) if odds > -700 else 0.0


# ---- its turns -----------------------------------------------------------------------------------------------------


def _part_of_best(total: Floats, allowed: Flags, sample: Flags | None) -> Floats:
    """Return 1 for the best turn, less for lower scores, and 0 for the median. Few turns have no meaningful median."""
    best = float(total[allowed].max())
    held = total[allowed] if sample is None else total[allowed & sample]
    trust = len(held) / (len(held) + FEW)
    gap = trust * (best - float(np.median(held))) + (1 - trust) * ORDINARY_GAP if len(held) else ORDINARY_GAP
    part: Floats = np.sqrt(np.clip(1 - (best - total) / np.float32(max(gap, 1e-6)), 0, 1))
    return part
