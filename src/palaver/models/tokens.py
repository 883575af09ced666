"""Counting tokens: exact, offline, with tables that come inside a wheel."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any


@dataclass(frozen=True, slots=True)
class BpeCounter:
    """Counts with one of OpenAI's public tables. The table is read at the first count, not at import."""

    name: str = "o200k_base"

    def __call__(self, text: str) -> int:
        count: int = _table(self.name).count(text)
        return count


@lru_cache(maxsize=4)
def _table(name: str) -> Any:
    from rs_bpe import openai

    return getattr(openai, name)()
