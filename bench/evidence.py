"""Was the evidence there? Figures over questions, with their confidence intervals."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import log2

import numpy as np


@dataclass(slots=True)
class Answered:
    """What a system brought for one question. Each figure is between 0 and 1."""

    data: str
    kind: str
    headline: bool
    figures: dict[str, float] = field(default_factory=dict)


def found(ranking: Sequence[str], gold: frozenset[str], k: int = 10) -> dict[str, float]:
    """R@k and NDCG@k of a ranking, best first."""
    gains = [1 / log2(place + 2) for place, name in enumerate(ranking[:k]) if name in gold]
    ideal = sum(1 / log2(place + 2) for place in range(min(k, len(gold))))
    return {f"R@{k}": len(gains) / len(gold), f"NDCG@{k}": sum(gains) / ideal}


def plain(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def quoted(proof: str, context: str, reported: bool) -> bool:
    """Whether a turn is in a context: all its words; or, when it is reported as included, four fifths in a row."""
    proof, context = plain(proof), plain(context)
    if proof in context:
        return True
    words = proof.split(" ")
    size = -(-len(words) * 4 // 5)
    return reported and any(" ".join(words[at : at + size]) in context for at in range(len(words) - size + 1))


def mean(values: Iterable[float]) -> float:
    held = list(values)
    return sum(held) / len(held) if held else float("nan")


def interval(values: Sequence[float], draws: int = 2000) -> tuple[float, float]:
    """The middle 95 % of the means of resampled questions."""
    held = np.asarray(values)
    means = np.random.default_rng(0).choice(held, (draws, len(held))).mean(axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return float(low), float(high)


def sign_test(ours: Sequence[float], theirs: Sequence[float]) -> tuple[int, int]:
    """How often ours was better, and how often worse, question by question."""
    pairs = list(zip(ours, theirs, strict=True))
    return sum(a > b for a, b in pairs), sum(a < b for a, b in pairs)


def by_kind(answers: Sequence[Answered]) -> Mapping[str, list[Answered]]:
    """The headline first, then each kind of question."""
    groups = {"all": [one for one in answers if one.headline]}
    for one in answers:
        groups.setdefault(one.kind, []).append(one)
    return groups
