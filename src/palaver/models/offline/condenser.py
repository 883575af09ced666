"""Condense summaries and turns while a context is built: by rules, with the last results kept."""

from __future__ import annotations

from palaver.core.bounded_dict import BoundedDict
from palaver.model import Turn
from palaver.models.offline import summarizer
from palaver.ports.models import Counter

KEPT_RESULTS = 256


class RuleCondenser:
    """Condenses by the rules of the offline summariser. Merging is asked for the same summaries again and again."""

    def __init__(self, count: Counter) -> None:
        self._count = count
        self._merged: BoundedDict[tuple[tuple[str, ...], int], str] = BoundedDict(KEPT_RESULTS)

    def merge(self, texts: tuple[str, ...], most: int) -> str:
        """Return the most informative lines of several summaries, in order, within `most` tokens."""
        found = self._merged.get((texts, most))
        if found is None:
            found = summarizer.merge([(text, None) for text in texts], budget=most, count=self._count)
            self._merged[texts, most] = found
        return found

    def summarise(self, turns: tuple[Turn, ...], most: int) -> str:
        """Return the most informative sentences of turns, within `most` tokens."""
        return summarizer.summarize(turns, budget=most, count=self._count) or f"[{len(turns)} short messages]"
