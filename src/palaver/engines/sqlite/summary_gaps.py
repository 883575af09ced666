"""Places in the sequence of summaries where one is missing."""

from __future__ import annotations

from typing import NamedTuple

from palaver.engines.sqlite.queries import Q
from palaver.engines.sqlite.transaction import Tx


class SummaryGap(NamedTuple):
    """Positions [`start`, `end`) of a level that no summary covers, though one should."""

    level: int
    start: int
    end: int

    @property
    def span(self) -> dict[str, int]:
        return {"from": self.start, "through": self.end}


def find_gaps(tx: Tx, cid: int) -> list[SummaryGap]:
    """Find the places where a summary is missing."""
    places = [(level, start, end) for _, level, start, end, _ in tx.all(Q.summary_places, cid=cid)]
    ends: dict[int, int] = {}
    found = []
    for level, start, end in places:
        if start > ends.get(level, 0):
            found.append(SummaryGap(level, ends.get(level, 0), start))
        ends[level] = max(end, ends.get(level, 0))
    position = tx.all(Q.expected, cid=cid)[0][-1]
    if ends.get(0, 0) < position:
        found.append(SummaryGap(0, ends.get(0, 0), position))
    return [gap for gap in found if _has_sources(tx, cid, gap, places)]


def _has_sources(tx: Tx, cid: int, gap: SummaryGap, places: list[tuple[int, int, int]]) -> bool:
    """Return whether a missing summary can be written: of turns, or of the summaries below it."""
    if gap.level:
        below = gap.level - 1
        return any(level == below and gap.start <= start and end <= gap.end for level, start, end in places)
    return tx.one(Q.has_turns, cid=cid, **gap.span) is not None
