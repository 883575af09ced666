"""The tokenizer of BERT (uncased): from a text to the numbers of its word pieces. Pure."""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping
from functools import lru_cache

LONGEST_WORD = 100  # characters; a longer one is unknown
UNKNOWN, START, END = "[UNK]", "[CLS]", "[SEP]"
SPECIAL = ("[PAD]", UNKNOWN, START, END, "[MASK]")
_CACHED_WORDS = 50_000
# Blocks of Chinese characters: each is a word of its own.
_CHINESE = (
    (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F), (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
)  # fmt: skip


class WordPieces:
    """A vocabulary, and how texts are split into its pieces."""

    def __init__(self, vocabulary: bytes) -> None:
        self.numbers: Mapping[str, int] = json.loads(vocabulary)["model"]["vocab"]
        self._split = lru_cache(_CACHED_WORDS)(self._split_word)

    def encode(self, text: str, most: int) -> list[int]:
        """Return the numbers of at most `most` pieces, with those for the start and the end of a text."""
        found = [self.numbers[START]]
        for word in _words(text):
            found += self._split(word)
            if len(found) >= most:
                break
        return [*found[: most - 1], self.numbers[END]]

    def _split_word(self, word: str) -> tuple[int, ...]:
        """Split a word into the longest pieces that are known, from its beginning on."""
        if word in SPECIAL:
            return (self.numbers[word],)
        if len(word) > LONGEST_WORD:
            return (self.numbers[UNKNOWN],)
        found: list[int] = []
        start = 0
        while start < len(word):
            mark = "##" if start else ""
            end = next((end for end in range(len(word), start, -1) if mark + word[start:end] in self.numbers), None)
            if end is None:
                return (self.numbers[UNKNOWN],)
            found.append(self.numbers[mark + word[start:end]])
            start = end
        return tuple(found)


def _words(text: str) -> list[str]:
    """Split a text at spaces and punctuation, in lower case and without accents; special pieces stay as they are."""
    words: list[str] = []
    for index, plain in enumerate(_apart(text)):
        words += [plain] if index % 2 else "".join(map(_letter, _without_accents(plain))).split()
    return words


def _apart(text: str) -> list[str]:
    """Split a text at special pieces such as [SEP]: every second element is one."""
    if "[" not in text:
        return [text]
    found, at = [], 0
    while (place := min(_places(text, at), default=None)) is not None:
        start, piece = place
        found += [text[at:start], piece]
        at = start + len(piece)
    return [*found, text[at:]]


def _places(text: str, at: int) -> list[tuple[int, str]]:
    return [(start, piece) for piece in SPECIAL if (start := text.find(piece, at)) >= 0]


def _without_accents(text: str) -> str:
    if text.isascii():
        return text.lower()
    text = "".join(_clean(letter) for letter in text).replace("Σ", "σ")  # letter by letter: not ς at the end of a word
    return "".join(one for one in unicodedata.normalize("NFD", text) if unicodedata.category(one) != "Mn").lower()


def _clean(letter: str) -> str:
    """Return a space for white space, spaces around a Chinese character, and nothing for a control character."""
    code = ord(letter)
    if letter in "\t\n\r":
        return " "
    if code in (0, 0xFFFD) or unicodedata.category(letter) in ("Cc", "Cf", "Co"):
        return ""
    if letter.isspace():
        return " "
    return f" {letter} " if any(low <= code <= high for low, high in _CHINESE) else letter


@lru_cache(4_096)
def _letter(letter: str) -> str:
    """Return a letter; spaces around it if it is punctuation, and nothing for a control character."""
    code = ord(letter)
    if letter in "\t\n\r ":
        return " "
    if code < 32 or code == 127:
        return ""
    is_symbol = 33 <= code <= 47 or 58 <= code <= 64 or 91 <= code <= 96 or 123 <= code <= 126
    return f" {letter} " if is_symbol or unicodedata.category(letter).startswith("P") else letter
