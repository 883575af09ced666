"""A token counter that remembers what it counted. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

from palaver.context.costs import Count
from palaver.core.bounded_dict import BoundedDict

CACHED_COUNTS = 50_000


@dataclass(slots=True)
class CachedCounter:
    """Counts a text once: most of a prompt is as it was last time. Keeps lengths and hashes, never a text."""

    name: str
    count: Count
    _counts: BoundedDict[tuple[int, int], int] = field(default_factory=lambda: BoundedDict(CACHED_COUNTS))

    def __call__(self, text: str) -> int:
        key = (len(text), hash(text))
        count = self._counts.get(key)
        if count is None:
            count = self._counts[key] = self.count(text)
        return count
