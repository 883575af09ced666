"""A second look at the best turns, now that their texts are read: what raises one of them above the others. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence
from math import log
from statistics import median

from palaver.core.strides import between_strides
from palaver.recall.terms import terms

MAX_READ = 1_500  # characters of a turn
EVENTS_READ = 600  # the same, for its verbs
COMPARED = 100  # of the best turns are compared with each other
BEST = 15  # of them say what the question is about
SHARED_WORDS = 10  # that the best have in common, and that are rare among the others
COMMON = 0.3  # a word in more of the compared turns than this does not distinguish them
SHARED, EVENTS = 0.2, 0.03  # weights; docs/explanation/recall.md has the measurements behind them
# English. Verbs in the past tense, besides those that end in "ed": something happened.
_PAST = frozenset(
    "was were had did got went made took came said saw found gave met won wrote read bought brought began ran left"
    " felt kept held built sent taught thought lost paid".split()
)
_WORD = re.compile(r"[a-z]+")


def count_shared_words(texts: Sequence[str], asked: Collection[str]) -> list[float]:
    """Return for each text, best first, how many it has of the words that the best ones share; at most `SHARED`.

    A question for several things seldom names them. Turns about the same kind of thing have words in common that the
    question does not have.
    """
    held = [_stems(text) for text in texts[:COMPARED]]
    weights = _weigh_words(held, frozenset(asked))
    total = sum(weights.values())
    if not total:
        return [0.0] * len(texts)
    usual = max(1.0, median(map(len, held)))
    found = [
        SHARED * sum(weights[stem] for stem in stems & weights.keys()) / total / _length(len(stems), usual)
        for stems in held
    ]
    return found + [0.0] * (len(texts) - len(found))


def _stems(text: str) -> frozenset[str]:
    between_strides()
    return frozenset(terms(text[:MAX_READ]))


def _weigh_words(held: Sequence[frozenset[str]], asked: frozenset[str]) -> dict[str, float]:
    """Return the words that more than one of the best turns has: the more of these and the fewer others, the better."""
    everywhere = Counter(stem for stems in held for stem in stems)
    among_best = Counter(stem for stems in held[:BEST] for stem in stems - asked)
    weights = {
        stem: count * log(len(held) / everywhere[stem])
        for stem, count in among_best.items()
        if count > 1 and everywhere[stem] <= COMMON * len(held)
    }
    return dict(sorted(weights.items(), key=lambda item: (-item[1], item[0]))[:SHARED_WORDS])


def _length(size: int, usual: float) -> float:
    """Return by what the share of a long turn is divided: it has more words of every kind."""
    return (1 + max(size / usual, 1.0)) / 2


def count_events(texts: Sequence[str]) -> list[float]:
    """Return for each text how much it reports events: `EVENTS` times the log of its verbs in the past tense."""
    return [EVENTS * log(1 + _count_past(text[:EVENTS_READ].lower())) for text in texts]


def _count_past(text: str) -> int:
    return sum(word in _PAST or (word.endswith("ed") and len(word) > 3) for word in _WORD.findall(text))
