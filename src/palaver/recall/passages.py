"""The passages of a long text that fit a question. Pure, and needs no index."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import log

from palaver.recall.terms import MAX_QUERY, segments, terms

MAX_PASSAGE = 2_000  # characters; a text without spaces is cut here
MAX_RANKED = 200  # passages; more never fit a prompt


def passage_ends(text: str) -> tuple[int, ...]:
    """Return where each passage of `text` ends. Passages are those of the index, except that none is very long."""
    ends: list[int] = []
    at = 0
    for piece in segments(text):
        end = at + len(piece)
        ends += [*range(at + MAX_PASSAGE, end, MAX_PASSAGE), end]
        at = end
    return tuple(ends)


def rank_passages(passages: Sequence[str], question: str) -> tuple[int, ...]:
    """Return the indices of the passages that hold words of the question, best first.

    A word counts the more, the fewer passages hold it; one that is in all of them counts nothing.
    """
    wanted = frozenset(terms(question[:MAX_QUERY]))
    held = [wanted.intersection(terms(passage)) for passage in passages] if wanted else []
    frequency = Counter(stem for stems in held for stem in stems)
    weights = {stem: log(len(passages) / count) for stem, count in frequency.items()}
    scores = [sum(weights[stem] for stem in stems) for stems in held]
    fitting = [index for index, score in enumerate(scores) if score > 0]
    return tuple(sorted(fitting, key=lambda index: (-scores[index], index))[:MAX_RANKED])
