"""Messages to store: English words, few of them often and many of them rarely, as people write. Seeded."""

from __future__ import annotations

import random
import re
from collections import Counter
from functools import lru_cache
from itertools import accumulate

MESSAGE_BYTES = 280
ZIPF_SHIFT = 2.7


@lru_cache(maxsize=1)
def vocabulary() -> tuple[str, ...]:
    """Return about three thousand words, the most frequent first, from Python's own manual: no file is needed."""
    from pydoc_data.topics import topics

    counted = Counter(re.findall(r"\b[a-z]{2,14}\b", " ".join(topics.values()).lower()))
    return tuple(word for word, _ in counted.most_common(4_000))


class Texts:
    """An endless supply of messages, all of the same size and no two alike."""

    def __init__(self, seed: int = 1) -> None:
        self._random = random.Random(seed)
        self._words = vocabulary()
        self._weights = list(accumulate(1 / (rank + ZIPF_SHIFT) for rank in range(len(self._words))))

    def message(self, size: int = MESSAGE_BYTES) -> str:
        out = ""
        while len(out) < size:
            out += self._sentence() + " "
        return out[: size - 1].rstrip().ljust(size - 1, "e") + "."

    def messages(self, count: int) -> list[str]:
        return [self.message() for _ in range(count)]

    def _sentence(self) -> str:
        words = self._random.choices(self._words, cum_weights=self._weights, k=self._random.randint(5, 18))
        return " ".join(words).capitalize() + "."
