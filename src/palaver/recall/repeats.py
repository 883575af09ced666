"""Texts that say the same as an earlier one of a list: restatements and boilerplate. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from palaver.core.strides import between_strides
from palaver.recall.terms import terms

MAX_READ = 4_000  # characters of a text that are compared
FEWEST = 6  # stems: shorter texts are cheap to quote, and alike by chance
SAME = 0.9  # of the stems of both
_NEGATION = re.compile(
    r"\b(?:not|no|never|none|nicht|kein\w*|nie|pas|jamais|non|nunca|mai|não)\b|n['’]t\b", re.IGNORECASE
)


def find_repeats(texts: Sequence[str]) -> set[int]:
    """Return the indices of texts that have nearly the same words as one before them, and as many negations.

    Other numbers make another text.
    """
    known: dict[str, list[frozenset[str]]] = {}
    repeats: set[int] = set()
    for index, text in enumerate(texts):
        stems = frozenset(terms(text[:MAX_READ]))
        if len(stems) < FEWEST:
            continue
        negations = len(_NEGATION.findall(text[:MAX_READ]))
        stems |= {f"not {negations}"}
        ends = (min(stems), max(stems))  # texts that are alike have one of them in common, with few exceptions
        if any(_are_alike(stems, one) for end in ends for one in known.get(end, ())):
            repeats.add(index)
            continue
        for end in ends:
            known.setdefault(end, []).append(stems)
        between_strides()
    return repeats


def _are_alike(one: frozenset[str], other: frozenset[str]) -> bool:
    if min(len(one), len(other)) < SAME * max(len(one), len(other)):
        return False
    difference = one ^ other
    if any(stem[0].isdigit() or stem.startswith("not ") for stem in difference):
        return False
    return len(difference) <= (1 - SAME) * len(one | other)
