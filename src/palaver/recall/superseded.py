"""Statements that a later turn of the same speaker replaced: another number, date or time for the same thing. Pure.

Only what the words show is found: the later sentence says that something changed ("now", "moved", "increased to"), both
have numbers, of which some differ, and both speak of the thing that the question asks about. A statement that was
replaced without any of that is not found.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from palaver.core.strides import between_strides
from palaver.recall.terms import terms

MAX_READ = 4_000  # characters of a turn
MAX_STATEMENTS = 40  # of a turn
AGREEMENT = 0.4  # the part of the question's words, weighted by rarity, that both statements have
NEAR = 3  # stems behind a number, or before it, that may be its unit
_GENERAL = frozenset(
    terms(
        "% am pm uhr jan feb mar apr may jun jul aug sep oct nov dec january february march april june july august"
        " september october november december"
    )
) | {"%"}
_SENTENCE = re.compile(r"(?<=[.!?\n])\s+|\n+")
_NUMBER = re.compile(r"\d[\d.,:/%-]*")
_CHANGE = re.compile(
    r"\b(?:now|new|newer|update\w*|chang\w+|mov(?:ed|ing)|resched\w+|postpon\w+|adjust\w+|increas\w+|decreas\w+"
    r"|improv\w+|extend\w+|reduc\w+|grew|grown|growth|rais\w+|lower\w+|reach\w+|instead|no longer|any ?more|actually"
    r"|correct\w+|recent\w*|switch\w+|replac\w+|another|added|total of|jetzt|nun|neu\w*|geändert|verschoben|statt\w*"
    r"|désormais|maintenant|changé|reporté|ahora|nuevo|cambi\w+|adesso|nuovo|spostat\w+|agora|novo|mud\w+)\b",
    re.IGNORECASE,
)


class Said(NamedTuple):
    """A turn of a person."""

    speaker: str
    created: datetime
    text: str


@dataclass(frozen=True, slots=True)
class _Statement:
    """A sentence with numbers, each by the stems next to it. `asked` are its words of the question."""

    values: Mapping[str, str]
    asked: frozenset[str]
    is_change: bool


def find_superseded(turns: Sequence[Said], rarity: Mapping[str, float]) -> dict[int, int]:
    """Return which turns a later one replaced, as far as the question is concerned: indices, old to new.

    `rarity` says how much each stem of the question counts.
    """
    asked = {stem: weight for stem, weight in rarity.items() if not stem[0].isdigit() and weight > 0}
    read = {index: statements for index, turn in enumerate(turns) if (statements := _read(turn.text, asked))}
    order = sorted(read, key=lambda index: turns[index].created)
    found: dict[int, int] = {}
    for place, old in enumerate(order):
        later = [new for new in order[place + 1 :] if turns[new].speaker == turns[old].speaker]
        rated = [(_agreement(read[new], read[old], asked), place, new) for place, new in enumerate(later)]
        best = max(rated, default=(0.0, 0, 0))
        if best[0] >= AGREEMENT:
            found[old] = best[2]
    return found


def _read(text: str, asked: Mapping[str, float]) -> list[_Statement]:
    """Find the sentences with numbers that are about what the question asks."""
    found = []
    needed = AGREEMENT * sum(asked.values())
    for sentence in _SENTENCE.split(text[:MAX_READ]):
        if not _NUMBER.search(sentence):
            continue
        words = frozenset(asked).intersection(terms(sentence))
        if words and sum(asked[stem] for stem in words) >= needed:
            found.append(_Statement(_values(sentence), words, _CHANGE.search(sentence) is not None))
    between_strides()
    return found[:MAX_STATEMENTS]


def _values(sentence: str) -> dict[str, str]:
    """Return the numbers of a sentence by the stems around them: "150 commits", "April 20", "5 %"."""
    values: dict[str, str] = {}
    for match in _NUMBER.finditer(sentence):
        number = match.group().rstrip(".,:/-")
        behind, before = terms(sentence[match.end() :][:60])[:NEAR], terms(sentence[: match.start()][-60:])[-1:]
        for unit in (*before, *behind, *(["%"] if "%" in number else [])):
            if not unit[0].isdigit():
                values.setdefault(unit, number)
    return values


def _agreement(new: Sequence[_Statement], old: Sequence[_Statement], asked: Mapping[str, float]) -> float:
    """Return which part of the question's words both have in a statement with another number; 0 if none has."""
    total = sum(asked.values()) or 1.0
    shared = [a.asked & b.asked for a in new if a.is_change for b in old if _is_other(a, b, asked)]
    return max((sum(asked[stem] for stem in stems) / total for stems in shared), default=0.0)


def _is_other(new: _Statement, old: _Statement, asked: Mapping[str, float]) -> bool:
    """Return whether two statements have different numbers of something that the question names, dates or times."""
    units = [unit for unit in new.values.keys() & old.values.keys() if unit in asked or unit in _GENERAL]
    return any(new.values[unit] != old.values[unit] for unit in units)
