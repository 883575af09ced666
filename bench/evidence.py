"""Figures of recall over questions, with confidence intervals: whether the evidence was in the context."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import log2

import numpy as np

from palaver.recall.terms import terms

SUPERSEDED = "[superseded on "  # the mark behind a turn that a later one replaced
_PIECE = re.compile(r"[^.!?\n]+[.!?\n]*")
_DATE = re.compile(r"\[(\d{4}-\d\d-\d\d)\]")
_FEW_WORDS = 3  # shorter pieces of a turn are found anywhere
_MANY_WORDS = 10
_NEAR = 40  # characters behind a turn within which its mark begins


@dataclass(slots=True)
class Answered:
    """The result of a system for one question. Each figure is between 0 and 1."""

    data: str
    kind: str
    headline: bool
    figures: dict[str, float] = field(default_factory=dict)


def found(ranking: Sequence[str], gold: frozenset[str], k: int = 10) -> dict[str, float]:
    """Return R@k and NDCG@k of a ranking, best first."""
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


@dataclass(frozen=True, slots=True)
class Shown:
    """A context as one text, without the marks of quotations, and which turns it reports as included."""

    text: str
    reported: frozenset[str]

    def has(self, turn: str, proof: str) -> bool:
        """Whether a turn is there, word for word."""
        return quoted(proof, self.text, turn in self.reported)

    def has_answer(self, turn: str, proof: str, answer: str) -> bool:
        """Whether every word of the answer that the turn holds is in what is shown of it; without any, all of it."""
        if self.has(turn, proof):
            return True
        wanted = frozenset(terms(answer)).intersection(terms(proof))
        return bool(wanted) and wanted <= frozenset(terms(" ".join(pieces_in(proof, self.text))))

    def has_dated(self, turn: str, proof: str, date: str) -> bool:
        """Whether a turn is there, and the last date before it is its own."""
        return self.has(turn, proof) and any(self._date_at(start) == date for start, _ in self._places(proof))

    def is_stale(self, proof: str) -> bool:
        """Whether a turn that a later one replaced is quoted without saying so."""
        ends = [end for _, end in self._places(proof)]
        return bool(ends) and not any(SUPERSEDED in self.text[end : end + _NEAR] for end in ends)

    def _places(self, proof: str) -> list[tuple[int, int]]:
        """Where the turn begins and ends; of a long one that is not there as a whole, its middle."""
        proof = plain(proof)
        words = proof.split(" ")
        is_part = proof not in self.text and len(words) >= _MANY_WORDS
        wanted = " ".join(words[len(words) // 5 : -len(words) // 5]) if is_part else proof
        return [match.span() for match in re.finditer(re.escape(wanted), self.text)]

    def _date_at(self, place: int) -> str | None:
        dates = _DATE.findall(self.text, 0, place)
        return dates[-1] if dates else None


def pieces_in(proof: str, context: str) -> list[str]:
    """The sentences and lines of a turn that are in a context."""
    pieces = (plain(piece) for piece in _PIECE.findall(proof))
    return [piece for piece in pieces if piece.count(" ") + 1 >= _FEW_WORDS and piece in context]


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
    """Return for how many questions ours was better, and for how many worse."""
    pairs = list(zip(ours, theirs, strict=True))
    return sum(a > b for a, b in pairs), sum(a < b for a, b in pairs)


def by_kind(answers: Sequence[Answered]) -> Mapping[str, list[Answered]]:
    """Return the overall figures first, then those of each kind of question."""
    groups = {"all": [one for one in answers if one.headline]}
    for one in answers:
        groups.setdefault(one.kind, []).append(one)
    return groups
