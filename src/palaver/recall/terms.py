"""Stems of words, for searching. Pure.

Stemming happens here and not in the database, so that SQLite and Postgres store the same terms and rank alike.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import Stemmer

from palaver.core.strides import between_strides
from palaver.recall import languages
from palaver.recall.languages import Language, recognise, recognise_words

# The version of the rules that made an index; another version of the stemmer makes other terms. Terms of other
# languages come in addition to those of English, so that an index without them is completed, not rebuilt.
ANALYZER = f"2/{Stemmer.version()}"
PASSAGE_WORDS = 90
# Longer words are cut: nobody searches for them, and a megabyte without a space must not become one term.
MAX_TERM = 64
MAX_QUERY = 20_000  # characters; a longer query is cut, and recall looks at its beginning anyway
MAX_TERMS = 50_000  # words whose stems are cached
EXCERPT, LEAD = 240, 60  # characters of an excerpt, and of them before the first word that is searched

STOP_WORDS = frozenset(
    """a about all also am an and any are as at be been but by can could did do does for from had has have he her him
    his how i if in into is it its just me more my no not of on or our out she so some than that the their them then
    there these they this to too up us was we were what when where which who why will with would you your
    d ll m re s t ve""".split()
)

# Letters, digits and the marks that belong to them: "\w" alone would cut Hindi or Thai words at their vowel signs.
_LETTERS = r"\w\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0900-\u0963\u0966-\u109f\u1780-\u17ff"
_WORD = re.compile(f"[{_LETTERS}]+")
# The same for ASCII, as a translation table: lower-case letters, and a space for all other characters.
_ASCII_WORDS = "".join(chr(code).lower() if re.match(r"\w", chr(code)) else " " for code in range(128))
# Scripts written without spaces: a run of them is indexed as overlapping pairs.
_UNSPACED_RANGES = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_UNSPACED = re.compile(f"[{_UNSPACED_RANGES}]+")
_ENDS = ".!?\n"
_SENTENCE = re.compile(f"[^{_ENDS}]+[{_ENDS}]*")
# A unit becomes about one term: a letter of an unspaced script, or a word of any other.
_UNIT = re.compile(rf"[{_UNSPACED_RANGES}]|[^\W{_UNSPACED_RANGES}]+")
# No match in a longer text may take long, because the interpreter runs nothing else until it has ended. So these three
# match everything, in parts of limited length.
STRIDE = 65_536  # characters
_SENTENCE_PART = re.compile(rf"[^{_ENDS}]{{0,{STRIDE}}}[{_ENDS}]{{0,{STRIDE}}}")
_WORD_PART = re.compile(rf"[^{_LETTERS}]{{0,{STRIDE}}}([{_LETTERS}]{{1,{STRIDE}}})?")
_UNIT_PART = re.compile(
    rf"[^\w{_UNSPACED_RANGES}]{{0,{STRIDE}}}([{_UNSPACED_RANGES}]|[^\W{_UNSPACED_RANGES}]{{1,{STRIDE}}})?"
)
_WHITE = re.compile(r"\s")
_BETWEEN = re.compile(f"[^{_LETTERS}]")
_ORDINARY = 10 * PASSAGE_WORDS  # characters: ninety words of prose have fewer


@lru_cache(maxsize=1)
def _stemmer() -> Stemmer.Stemmer:
    return Stemmer.Stemmer("english", 0)


@lru_cache(maxsize=MAX_TERMS)
def _stem(word: str) -> str:
    return _stemmer().stemWord(word) if word.isascii() else _stem_without_accents(word)


def _stem_without_accents(word: str) -> str:
    """Remove accents before stemming, so that café is found by cafe."""
    letters = unicodedata.normalize("NFKD", word)
    bare = "".join(letter for letter in letters if not unicodedata.combining(letter))
    return _stemmer().stemWord(bare) if bare.isascii() else bare


class _Terms(dict[str, str]):
    """A cache of the terms of ASCII words; empty for a stop word. Every word of every turn is looked up here."""

    def __missing__(self, word: str) -> str:
        if len(self) >= MAX_TERMS:
            self.clear()
        term = self[word] = "" if word in STOP_WORDS else _stem(word[:MAX_TERM])
        return term


_term = _Terms().__getitem__


def terms(text: str) -> list[str]:
    """Return the stems of `text`, in order, without stop words."""
    if len(text) > STRIDE:
        return [term for part in cut_between_words(text) for term in _terms_of_part(part)]
    return _terms_of_part(text)


def cut_between_words(text: str) -> Iterator[str]:
    """Cut a text into parts, and no word in two. A part is longer than `STRIDE` where a word is."""
    # A capital sigma becomes one of two letters, as the letters around it say, which may be beyond an apostrophe.
    between = _WHITE if "Σ" in text else _BETWEEN
    start, end = 0, STRIDE
    while end < len(text):
        cut = between.search(text, end, end + STRIDE)
        if cut is None:
            end += STRIDE
            continue
        yield text[start : cut.end()]
        start, end = cut.end(), cut.end() + STRIDE
        between_strides()
    yield text[start:]


def _terms_of_part(text: str) -> list[str]:
    if text.isascii():  # most texts; this is twice as fast
        return list(filter(None, map(_term, text.translate(_ASCII_WORDS).split())))
    found = []
    for word in _WORD.findall(text.lower()):
        if word in STOP_WORDS:
            continue
        if word.isascii():
            found.append(_stem(word[:MAX_TERM]))
        else:
            found.extend(_split_unspaced(word))
    return found


def title_terms(text: str) -> list[str]:
    """Return the stems of a title or of a search for titles; if there are only stop words, return those."""
    return terms(text) or _WORD.findall(text.lower())


def _split_unspaced(word: str) -> list[str]:
    """Return overlapping pairs of letters for scripts without spaces, and stems for the rest of the word."""
    if not _UNSPACED.search(word):
        return [_stem(word[:MAX_TERM])]
    found, end = [], 0
    for run in _UNSPACED.finditer(word):
        if run.start() > end:
            found.append(_stem(word[end : run.start()][:MAX_TERM]))
        letters = run.group()
        found.extend(letters[i : i + 2] for i in range(max(1, len(letters) - 1)))
        end = run.end()
    if end < len(word):
        found.append(_stem(word[end:][:MAX_TERM]))
    return found


class IndexedPassages(NamedTuple):
    """The terms of each passage that has any, joined by spaces. `is_plain`: all of them are those of English."""

    stems: tuple[str, ...]
    is_plain: bool


def passages(text: str) -> tuple[str, ...]:
    """Return the terms of each segment of `text` that has any, joined by spaces."""
    return index_passages(text).stems


def index_passages(text: str) -> IndexedPassages:
    """Return what is indexed of a text: the stems of each segment as English, then those of its own language.

    A segment whose language is not clear has that of the whole text.
    """
    found, is_plain = [], True
    pieces = segments(text)
    whole = recognise(text) if len(pieces) > 1 else None
    for segment in pieces:
        stems = terms(segment)
        own = own_terms(segment, _language_of(segment, whole), stems) if stems else []
        is_plain &= not own
        found.append(" ".join(stems + own))
        between_strides()
    return IndexedPassages(tuple(filter(None, found)), is_plain)


def english_passages(text: str) -> tuple[str, ...]:
    """Return the stems of each segment as English, which is all that an index had before it knew other languages."""
    return tuple(filter(None, (" ".join(terms(segment)) for segment in segments(text))))


def index_terms(text: str, whole: Language | None = None) -> list[str]:
    """Return the stems of a passage, and those of its own language. `whole` is the language of the text around it."""
    english = terms(text)
    return english + own_terms(text, _language_of(text, whole), english) if english else []


def _language_of(text: str, whole: Language | None) -> Language | None:
    if text.isascii():  # the short way, for the sake of English
        return recognise_words(text[: languages.MAX_READ].translate(_ASCII_WORDS).split()) or whole
    return recognise(text) or whole


def own_terms(text: str, language: Language | None, known: Sequence[str] = ()) -> list[str]:
    """Return the terms of a text in a language other than English, each once, without those that are `known`."""
    if language is None or language == "en":
        return []
    found = dict.fromkeys(_own_terms(text, language))
    for term in known:
        found.pop(term, None)
    return [term for term in found if term]


def _own_terms(text: str, language: Language) -> Iterator[str]:
    if language == "ko":
        yield from languages.korean_terms(text)
    elif language in ("zh", "ja"):
        yield from languages.single_letters(text)
    else:
        for part in cut_between_words(text):
            for word in _WORD.findall(part.lower()):
                if not languages.is_stop_word(word, language) and len(word) > 1:
                    yield languages.stem(word, language)


class AskedTerm(NamedTuple):
    """A word of a question: its stem, and other stems by which an index may have it."""

    stem: str
    others: tuple[str, ...] = ()


def asked_terms(text: str, language: Language | None) -> list[AskedTerm]:
    """Return the words of a question in this language, each once, with their stems. None: any of the languages."""
    if language == "en":
        return [AskedTerm(stem) for stem in dict.fromkeys(terms(text))]
    if language in ("zh", "ja", "ko"):
        return _asked_letters(text, language)
    found: dict[str, dict[str, None]] = {}
    for word in _WORD.findall(text.lower()):
        if language is not None and languages.is_stop_word(word, language):
            continue
        for english in terms(word):
            others = [languages.stem(word, one) for one in (languages.STEMMED if language is None else (language,))]
            found.setdefault(english, {}).update(dict.fromkeys(others if len(word) > 2 else ()))
    return [
        AskedTerm(stem, tuple(other for other in others if other and other != stem)) for stem, others in found.items()
    ]


def _asked_letters(text: str, language: Language) -> list[AskedTerm]:
    subject = languages.drop_small_words(text, language)
    found = terms(subject) or terms(text)
    if language == "ko":
        latin = [term for term in found if term.isascii()]
        found = languages.korean_terms(subject) + latin or found
    return [AskedTerm(term) for term in dict.fromkeys(found)]


def segments(text: str) -> list[str]:
    """Cut `text` at sentence ends into pieces of about ninety words; joined, they are the text again."""
    if len(text) <= 400:  # most turns: one piece, no need to search for sentences
        return [text] if text else []
    found: list[str] = []
    start = end = words = 0
    for sentence_end, size in _sentences(text) if len(text) <= STRIDE else _sentences_of_long(text):
        if words and words + size > PASSAGE_WORDS:
            found.extend(_split_long(text[start:end]))
            start, words = end, 0
        end = sentence_end
        words += size
    found.extend(_split_long(text[start:]))
    return found


def _sentences(text: str) -> Iterator[tuple[int, int]]:
    """Yield where each sentence ends, with the marks after it, and how many words it has, counted by their spaces."""
    for sentence in _SENTENCE.finditer(text):
        yield sentence.end(), sentence.group().count(" ") + 1


def _sentences_of_long(text: str) -> Iterator[tuple[int, int]]:
    """Yield the same as `_sentences`, by shorter matches."""
    end = spaces = 0
    is_begun = is_over = False
    for part in _SENTENCE_PART.finditer(text):
        between_strides()
        piece = part.group()
        if piece and piece[0] not in _ENDS:
            if is_over:
                yield end, spaces + 1
                spaces = 0
            spaces += piece.count(" ")
            is_begun, is_over = True, piece[-1] in _ENDS
        elif is_begun and piece:
            is_over = True
        end = part.end()
    if is_begun:
        yield end, spaces + 1


def _split_long(piece: str) -> list[str]:
    """Split a piece that has many more words than others, as in a text without sentences."""
    if len(piece) <= (_ORDINARY if piece.isascii() else PASSAGE_WORDS):
        return [piece]
    if len(piece) <= STRIDE:
        starts = [unit.start() for unit in _UNIT.finditer(piece) if unit.group() not in STOP_WORDS]
    else:
        starts = list(_starts_of_units(piece))
    cuts = [0, *starts[2 * PASSAGE_WORDS :: 2 * PASSAGE_WORDS], len(piece)]
    return [piece[start:end] for start, end in pairwise(cuts)]


def _starts_of_units(text: str) -> Iterator[int]:
    """Yield where each unit starts that is not a stop word, by short matches."""
    is_cut = False  # the last word continues in the next part, if that has nothing before it
    for part in _UNIT_PART.finditer(text):
        between_strides()
        unit = part[1]
        if unit is not None:
            goes_on = is_cut and part.start(1) == part.start() and not _UNSPACED.match(unit)
            if not goes_on and unit not in STOP_WORDS:
                yield part.start(1)
            is_cut = len(unit) == STRIDE


def last_word(text: str) -> str | None:
    """Return the last word as it is, not its stem: it may not be complete yet. None after a space or a stop word."""
    words = _WORD.findall(text.lower())
    if not words or not text[-1:].isalnum() or words[-1] in STOP_WORDS or not words[-1].isascii():
        return None
    return str(words[-1])[:MAX_TERM]


def spans(text: str, stems: frozenset[str]) -> list[tuple[int, int]]:
    """Return the spans of the words in `text` that have one of these stems, for highlighting."""
    return list(_spans(text, stems))


def find_span(text: str, stems: frozenset[str]) -> tuple[int, int] | None:
    """Return the span of the first word in `text` that has one of these stems."""
    return next(_spans(text, stems), None) if stems else None


def excerpt(text: str, stems: frozenset[str]) -> str:
    """Return the text around the first word with one of these stems, on one line."""
    hit = find_span(text, stems) if len(text) > EXCERPT else None
    start = max(0, hit[0] - LEAD) if hit else 0
    piece = " ".join(text[start : start + EXCERPT].split())
    return ("… " if start else "") + piece + (" …" if start + EXCERPT < len(text) else "")


def _spans(text: str, stems: frozenset[str]) -> Iterator[tuple[int, int]]:
    for word in _WORD_PART.finditer(text):
        between_strides()
        if word[1] is not None and stems.intersection(terms(word[1])):
            yield word.span(1)
