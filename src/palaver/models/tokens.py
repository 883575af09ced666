"""Token counters: exact and offline if the tokenizer is public, otherwise with a margin.

A context is never over budget as measured by the counter in use, which its `name` identifies.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from palaver.core.strides import between_strides
from palaver.models.token_tables import Table, load_table

# OpenAI's own names, even behind a provider ("openai:gpt-4o", "azure/gpt-35-turbo") or a fine-tune ("ft:gpt-4o:…").
_CL100K = re.compile(r"(?:^|[:/.])(?:gpt-4(?![o.\d])|gpt-3\.?5|text-embedding-(?:3|ada-002))")
_O200K = re.compile(r"(?:^|[:/.])(?:gpt-(?:[4-9]|\d\d|oss)|chatgpt-|codex-|o\d(?!\w))|^offline(?:$|:)")

# Measured against the only other table that is available (legacy Claude): code starts at 4 % of these marks, chat has
# none; every language but English, accents or not, costs more than the prose margin.
_CODE_MARKS = b"{}()[]<>=;_/\\|&*#+$@`^~"
_CODE_SHARE = 0.04
_TYPOGRAPHIC = "‘’“”–—…"
_FOREIGN_SHARE = 0.02

MAX_WORDS, MAX_WORD_LENGTH = 32_768, 32  # words whose counts are cached
PIECE, HARD_PIECE = 16_384, 65_536  # characters that are counted in one stride
_CUT = re.compile(r"(?<=[A-Za-z0-9])(?= \S|\n)|(?<=[A-Za-z])(?=[0-9])|(?<=[0-9])(?=[A-Za-z])")
MAX_SPLIT_TEXT = 20_000  # characters; a longer text is rarely counted twice

Counter = Callable[[str], int]


@dataclass(frozen=True, slots=True)
class BpeCounter:
    """Counts exactly, with one of OpenAI's public tables, which is loaded at the first count, not at import.

    Time is linear in the length of the text. Names of special tokens are counted as plain text. A text is counted in
    pieces (`split_for_counting`), so that no stride is long.
    """

    name: str = "o200k_base"

    def __call__(self, text: str) -> int:
        if len(text) > PIECE:
            return sum(map(self._count_piece, split_for_counting(text)))
        return self._count_piece(text)

    def _count_piece(self, text: str) -> int:
        between_strides()
        return _make_counter(self.name)(text)


def split_for_counting(text: str, piece: int = PIECE, hard_piece: int = HARD_PIECE) -> Iterator[str]:
    """Split a text into pieces whose tokens are those of the text.

    The tables never join what stands before and after a single space, a line break after a letter or digit, or the
    place between a letter and a digit. Where none of them comes within `HARD_PIECE` characters, the text is cut there:
    the count may then be larger by a token or two for each cut, never smaller than what is sent.
    """
    at = 0
    while len(text) - at > piece:
        cut = _CUT.search(text, at + piece, at + hard_piece)
        end = cut.start() if cut else min(at + hard_piece, len(text))
        yield text[at:end]
        at = end
    yield text[at:]


class _Words(dict[str, int]):
    """A cache of the token counts of words, each with `before` in front of it."""

    def __init__(self, table: Table, before: str, limit: int = MAX_WORDS) -> None:
        self.table, self.before, self.limit = table, before, limit

    def __missing__(self, word: str) -> int:
        count = self.table.count(self.before + word)
        if len(word) <= MAX_WORD_LENGTH:
            if len(self) >= self.limit:
                self.clear()
            self[word] = count
        return count


@lru_cache(maxsize=4)
def _make_counter(name: str) -> Counter:
    """Make a counting function that looks up words.

    The tables never join two words across a single space, so a text has as many tokens as its words, each with the
    space before it. Looking those up touches far less memory than the table does.
    """
    table = load_table(name)
    first, later = _Words(table, "").__getitem__, _Words(table, " ").__getitem__

    def count(text: str) -> int:
        words = () if len(text) > MAX_SPLIT_TEXT or "\n" in text else text.split()
        if not words or " ".join(words) != text:  # other whitespace, or more than one space
            return table.count(text)
        return first(words[0]) + sum(map(later, words[1:]))

    return count


@dataclass(frozen=True, slots=True)
class MarginCounter:
    """Estimates the count of a tokenizer that is not public: that of `table` plus a margin, rounded up.

    Each text gets the margin of its kind, `prose` or `dense` (code, and writing beyond ASCII), in percent. It is a
    margin, not a bound: scripts that a tokenizer spells out byte by byte can cost more.
    """

    table: str = "o200k_base"
    prose: int = 115
    dense: int = 140

    @property
    def name(self) -> str:
        return f"{self.table}×{self.prose / 100:g}/{self.dense / 100:g}"

    def __call__(self, text: str) -> int:
        percent = self.dense if is_dense(text) else self.prose
        return -(-BpeCounter(self.table)(text) * percent // 100)


@dataclass(frozen=True, slots=True)
class CharCounter:
    """Counts characters (code points), for budgets in characters."""

    name: str = "characters"

    def __call__(self, text: str) -> int:
        return len(text)


def counter_for(model: str | None) -> BpeCounter | MarginCounter:
    """Return the counter for a model by its name, with or without a provider: "openai:gpt-5", "anthropic:claude-…".

    OpenAI's models get their own table; no model, and "offline", get o200k_base; any other name gets the margin,
    because overestimating is the safe mistake.
    """
    name = (model or "offline").strip().lower()
    if _CL100K.search(name):
        return BpeCounter("cl100k_base")
    if _O200K.search(name):
        return BpeCounter()
    return MarginCounter()


def is_dense(text: str) -> bool:
    """Return whether a text is code or mostly not ASCII, by its share of such characters without whitespace."""
    plain = text.encode("ascii", "ignore")
    blanks = len(plain) - len(plain.translate(None, b" \t\r\n"))
    inked = len(text) - blanks
    marks = len(plain) - len(plain.translate(None, _CODE_MARKS))
    return marks > _CODE_SHARE * inked or _foreign(text, plain) > _FOREIGN_SHARE * inked


def _foreign(text: str, plain: bytes) -> int:
    """Count the characters that are not ASCII, without the quotes and dashes of typeset English."""
    beyond = len(text) - len(plain)
    return beyond and beyond - sum(text.count(mark) for mark in _TYPOGRAPHIC)
