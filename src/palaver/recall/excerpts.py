"""The parts of a long text that fit a question, with their neighbours. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import sqrt

from palaver.core.strides import between_strides
from palaver.recall.languages import recognise
from palaver.recall.terms import index_terms

Span = tuple[int, int]

MAX_READ = 100_000  # characters of a text; what comes behind them is left out as a whole
MAX_PIECE = 500  # characters; a longer sentence is cut at a space
LEAST = 20  # characters; a shorter piece is not worth its gap
REPEATED = 0.25  # the weight of a word that a chosen piece has already
BESIDE = 0.35  # of the gain of the better neighbour: a passage is understood from its surroundings
LEAD = 1.0  # the weight of the first sentence, as of one word that is in the question: it says what a text is about
CODE = 0.3  # program code seldom answers a question
PROSE = 0.05  # the weight of a sentence without any of the words: prose is quoted before code
_SENTENCE_END = re.compile(r"(?<![\d\W])[.!?]+[\"'”’)\]*]*\s+(?=\S)")
_FENCE = re.compile(r"\s*(?:```|~~~)")


@dataclass(slots=True)
class _Piece:
    start: int
    end: int
    stems: frozenset[str]
    is_code: bool = False


def find_excerpt(text: str, rarity: Mapping[str, float], room: int) -> tuple[Span, ...]:
    """Return the parts of `text` that fit the question best, in order: about `room` characters.

    `rarity` says how much each stem of the question counts. Words that are shown already count less, so that the parts
    complement each other. Without any of the words, it is the beginning of the text.
    """
    pieces = _read(text[:MAX_READ], rarity)
    chosen = _choose(pieces, rarity, room)
    return _merge(text, [(pieces[index].start, pieces[index].end) for index in sorted(chosen)])


def _read(text: str, rarity: Mapping[str, float]) -> list[_Piece]:
    pieces, language = [], recognise(text)
    for start, end, is_code in _split(text):
        stems = frozenset(rarity).intersection(index_terms(text[start:end], language))
        pieces.append(_Piece(start, end, stems, is_code))
        between_strides()
    return pieces


def _split(text: str) -> Iterator[tuple[int, int, bool]]:
    """Cut a text into sentences and lines; every line of a block of code is marked as such."""
    at, is_code = 0, False
    for line in text.splitlines(keepends=True):
        is_fence = _FENCE.match(line) is not None
        if line.strip():
            cuts = [] if is_code or is_fence else [match.end() for match in _SENTENCE_END.finditer(line)]
            for start, end in _bounded(line, [0, *cuts, len(line)]):
                yield at + start, at + end, is_code or is_fence
        is_code ^= is_fence
        at += len(line)


def _bounded(line: str, cuts: Sequence[int]) -> Iterator[Span]:
    for start, stop in pairwise(cuts):
        while stop - start > MAX_PIECE:
            space = line.rfind(" ", start + 1, start + MAX_PIECE)
            cut = space + 1 if space > 0 else start + MAX_PIECE
            yield start, cut
            start = cut
        yield start, stop


def _choose(pieces: Sequence[_Piece], rarity: Mapping[str, float], room: int) -> set[int]:
    chosen: set[int] = set()
    shown: frozenset[str] = frozenset()
    ranking = _rank(pieces, rarity, shown)
    while ranking and room >= LEAST:
        best = ranking.pop(0)
        size = pieces[best].end - pieces[best].start
        if size > room:
            continue
        chosen.add(best)
        room -= size
        if not pieces[best].stems <= shown:
            shown |= pieces[best].stems
            left = frozenset(ranking)
            ranking = [index for index in _rank(pieces, rarity, shown) if index in left]
        between_strides()
    return chosen


def _rank(pieces: Sequence[_Piece], rarity: Mapping[str, float], shown: frozenset[str]) -> list[int]:
    """Return the pieces that are worth quoting besides those with the words `shown`, best first."""
    own = [_gain(piece, rarity, shown) for piece in pieces]
    if own:
        own[0] += LEAD * (sum(rarity.values()) / len(rarity) if rarity else 1.0)
    worth = [_worth(index, own, pieces) for index in range(len(pieces))]
    return sorted((index for index in range(len(pieces)) if worth[index] > 0), key=lambda index: -worth[index])


def _gain(piece: _Piece, rarity: Mapping[str, float], shown: frozenset[str]) -> float:
    found = sum(rarity[stem] * (REPEATED if stem in shown else 1.0) for stem in piece.stems)
    return CODE * found if piece.is_code else found + PROSE


def _worth(index: int, own: Sequence[float], pieces: Sequence[_Piece]) -> float:
    """Return the gain of a piece for its length, with a part of its neighbours'."""
    beside = max(own[index - 1] if index else 0.0, own[index + 1] if index + 1 < len(own) else 0.0)
    return (own[index] + BESIDE * beside) / sqrt(max(1, pieces[index].end - pieces[index].start))


def _merge(text: str, spans: Sequence[Span]) -> tuple[Span, ...]:
    """Join parts with nothing but white space between them."""
    merged: list[Span] = []
    for start, end in spans:
        if merged and not text[merged[-1][1] : start].strip():
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return tuple(merged)
