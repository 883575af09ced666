"""Precision and recall of the rules for facts, on sentences of our own: python -m bench.facts [--misses]

The rules were tuned to the first half of bench/data/fact_sentences.txt; the second half was written before and is only
measured. One author wrote both halves and the rules, so it is not an independent sample.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from palaver.memory.facts import extract, is_over
from palaver.model import Turn
from palaver.recall.terms import terms

FILE = Path(__file__).parent / "data" / "fact_sentences.txt"
SPEAKER = "ada"


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence, and the facts that it states, as (predicate, stems of the object)."""

    part: str
    text: str
    facts: frozenset[tuple[str, frozenset[str]]]


def read() -> Iterator[Sentence]:
    part = ""
    for line in FILE.read_text().splitlines():
        if line.startswith("["):
            part = line.strip("[]")
        elif line and not line.startswith("#"):
            text, _, told = line.partition("=>")
            pairs = (one.partition(":") for one in told.split(";") if one.strip())
            facts = frozenset((name.strip().casefold(), _stems(object)) for name, _, object in pairs)
            yield Sentence(part, text.strip(), facts)


def _stems(text: str) -> frozenset[str]:
    return frozenset(terms(text) or [text.strip().casefold()])


def found_in(text: str) -> frozenset[tuple[str, frozenset[str]]]:
    turn = Turn("t", "c", 0, 0, "user", SPEAKER, text, datetime(2026, 5, 3, tzinfo=UTC))
    return frozenset(
        (f"{fact.subject.removeprefix(SPEAKER).removeprefix(chr(39) + 's')} {fact.predicate}".strip().casefold(),
         _stems(fact.object))
        for fact in extract([turn]) if not is_over(fact)  # the sentences are about what holds
    )  # fmt: skip


def main() -> None:
    for part in ("tuned", "held out"):
        right = wrong = missed = 0
        for one in read():
            if one.part != part:
                continue
            found = found_in(one.text)
            right += len(found & one.facts)
            wrong += len(found - one.facts)
            missed += len(one.facts - found)
            if "--misses" in sys.argv and found != one.facts:
                print(f"  {one.text}\n    stated {sorted(n for n, _ in one.facts)}, found {sorted(found)}")
        precision, recall = right / max(1, right + wrong), right / max(1, right + missed)
        print(f"{part}: precision {precision:.2f}, recall {recall:.2f} ({right} right, {wrong} wrong, {missed} missed)")


if __name__ == "__main__":
    main()
