"""Words without the sentences that they come from: for memory of turns whose text retention will remove. Pure.

Keywords say what a text was about. They are in alphabetical order, never in the order in which they were said, so that
no sentence can be read from them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from palaver.recall.terms import terms

RUN = 4  # words in a row that make a quotation
MAX_WORD = 30  # characters; anything longer is not a word
_WORD = re.compile(r"[^\W_]+(?:['’][^\W\d_]+)*")
_SENTENCE_END = re.compile(r"(?<![.!?…])[.!?…]++\s|[。！？।؟]|\n")  # linear in the number of marks
# Words that recall ignores, and without which an instruction would say the opposite.
_KEPT = frozenset("no not never don't cannot can't without".split())


def words_of(text: str) -> list[str]:
    """Return the words of a text, in order, in lower case."""
    return [word.lower() for word in _WORD.findall(text.replace("’", "'"))]


def is_keyword(word: str) -> bool:
    """Return whether a word says what a text is about. Codes, numbers and unspaced scripts do not."""
    if len(word) > MAX_WORD or any(letter.isdigit() or _is_unspaced(letter) for letter in word):
        return False
    return word.lower() in _KEPT or (len(word) > 2 and bool(terms(word)))


def _is_unspaced(letter: str) -> bool:
    """Return whether a letter is of a script without spaces, where a whole sentence looks like one word."""
    return "\u0e00" <= letter <= "\u0eff" or "\u1000" <= letter <= "\u109f" or letter >= "\u2e80"


def keywords(text: str, most: int) -> str:
    """Return at most `most` keywords of a text, in an order in which no sentence of it can be read."""
    found = {word.lower(): word for word in reversed(_WORD.findall(text.replace("’", "'"))) if is_keyword(word)}
    return ", ".join(unlike(list(reversed(found.values()))[:most], [text]))


def unlike(words: Iterable[str], said: Sequence[str]) -> list[str]:
    """Reorder the words so that no four of them follow each other as in a text; drop words if that cannot be done."""
    order = sorted(words, key=str.lower)
    for arranged in (order, order[::-1], order[::2]):
        if not quotes(" ".join(arranged), said):
            return arranged
    return []


def quotes(made: str, said: Iterable[str]) -> bool:
    """Return whether a text has a run of words in common with one of the others, or one of their whole sentences."""
    own = words_of(made)
    runs = {tuple(own[at : at + RUN]) for at in range(len(own) - RUN + 1)}
    for text in said:
        theirs = words_of(text)
        if any(tuple(theirs[at : at + RUN]) in runs for at in range(len(theirs) - RUN + 1)):
            return True
        for sentence in _SENTENCE_END.split(text):
            short = words_of(sentence)
            if 1 < len(short) < RUN and _holds(own, short):
                return True
    return False


def _holds(words: Sequence[str], part: Sequence[str]) -> bool:
    return any(list(words[at : at + len(part)]) == list(part) for at in range(len(words) - len(part) + 1))
