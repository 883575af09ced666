"""Words to search by: the same stems whichever database keeps them. Pure.

Stemming happens here and not in the database, so that SQLite and Postgres hold the same terms and rank alike.
"""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

import Stemmer

# Which rules made the words of an index. Another version of the stemmer makes other words.
ANALYZER = f"1/{Stemmer.version()}"
PASSAGE_WORDS = 90
# Nobody searches for a longer word, and an index must not be fed a megabyte without a space.
MAX_TERM = 64

STOP_WORDS = frozenset(
    """a about all also am an and any are as at be been but by can could did do does for from had has have he her him
    his how i if in into is it its just me more my no not of on or our out she so some than that the their them then
    there these they this to too up us was we were what when where which who why will with would you your
    d ll m re s t ve""".split()
)

_WORD = re.compile(r"\w+")
_SENTENCE = re.compile(r"[^.!?\n]+[.!?\n]*")
# Scripts written without spaces: a run of them is indexed as overlapping pairs.
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+")


@lru_cache(maxsize=1)
def _stemmer() -> Stemmer.Stemmer:
    return Stemmer.Stemmer("english", 0)


@lru_cache(maxsize=50_000)
def _stem(word: str) -> str:
    return _stemmer().stemWord(word) if word.isascii() else _plain(word)


def _plain(word: str) -> str:
    """The word without its accents, so that café is found by cafe."""
    letters = unicodedata.normalize("NFKD", word)
    bare = "".join(letter for letter in letters if not unicodedata.combining(letter))
    return _stemmer().stemWord(bare) if bare.isascii() else bare


def terms(text: str) -> list[str]:
    """The stems of `text`, in order, without stop words."""
    found = []
    for word in _WORD.findall(text.lower()):
        if word in STOP_WORDS:
            continue
        if word.isascii():
            found.append(_stem(word[:MAX_TERM]))
        else:
            found.extend(_foreign(word[:MAX_TERM]))
    return found


def _foreign(word: str) -> list[str]:
    if not _UNSPACED.search(word):
        return [_stem(word)]
    found, end = [], 0
    for run in _UNSPACED.finditer(word):
        if run.start() > end:
            found.append(_stem(word[end : run.start()]))
        letters = run.group()
        found.extend(letters[i : i + 2] for i in range(max(1, len(letters) - 1)))
        end = run.end()
    if end < len(word):
        found.append(_stem(word[end:]))
    return found


def passages(text: str) -> tuple[str, ...]:
    """The stems of `text`, cut at sentence ends into passages of about ninety words."""
    if len(text) <= 400:  # most turns: one passage, no need to look for sentences
        stems = terms(text)
        return (" ".join(stems),) if stems else ()
    found: list[str] = []
    held: list[str] = []
    words = 0
    for sentence in _SENTENCE.findall(text):
        size = sentence.count(" ") + 1
        if held and words + size > PASSAGE_WORDS:
            found.append(" ".join(held))
            held, words = [], 0
        held.extend(terms(sentence))
        words += size
    if held:
        found.append(" ".join(held))
    return tuple(_split_long(found))


def _split_long(found: list[str]) -> list[str]:
    """No passage much longer than the rest, also where a text has no sentences."""
    out: list[str] = []
    for passage in found:
        stems = passage.split(" ")
        out.extend(
            " ".join(stems[start : start + 2 * PASSAGE_WORDS]) for start in range(0, len(stems), 2 * PASSAGE_WORDS)
        )
    return [passage for passage in out if passage]


def spans(text: str, stems: frozenset[str]) -> list[tuple[int, int]]:
    """Where `text` holds a word with one of these stems, for highlighting."""
    return [word.span() for word in _WORD.finditer(text) if stems.intersection(terms(word.group()))]
