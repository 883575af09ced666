"""Redaction of text that arrives in pieces. Pure."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence

from palaver.core.strides import between_strides
from palaver.redaction.findings import Finding, Redactor, replace_findings
from palaver.redaction.rules.secrets import PEM_END
from palaver.redaction.rules.words import (
    CALLS,
    COUNTED,
    CURRENCIES,
    HOLD,
    KEYS,
    NINO_WORDS,
    PASSWORDS,
    PHONES,
    REACH,
    SPACES,
    SSN_WORDS,
    TOKENS,
    UNSPACED,
    VAGUE_KEYS,
    VAGUE_PASSWORDS,
    VERSIONS,
    any_of,
    is_short,
)
from palaver.redaction.scan import to_lower_case

STREAM_WORD = re.compile(rf"(?<![^\s{UNSPACED}])[^\s{UNSPACED}]++(?=[\s{UNSPACED}])|[{UNSPACED}]")
_BREAK = re.compile(rf"[\s{UNSPACED}]")
_UNSPACED_LETTER = re.compile(rf"[{UNSPACED}]")
# Words after which a number, an account or an id may continue: with a digit, without a letter, or a short group.
_JOINS = re.compile(r"\S*\d\S*|[\W_]+|[\W_]*[A-Z]{1,4}[\W_]*")
# An IBAN in lower case, of which further groups may follow: "gb82 west".
_LOWER_IBAN = re.compile(rf"(?<![A-Za-z0-9])[a-z]{{2}}[0-9]{{2}}(?:[{SPACES}-][a-z0-9]{{4}}){{1,7}}$")
_IBAN_REACH = 48


class StreamRedactor:
    """Redacts text that arrives in pieces: `feed` returns what may be stored, `finish` the rest.

    Text is held back until a *quiet* break, one that no rule matches across: mostly a word or two, up to `REACH`
    characters after a word such as "password" or "order", a private key until its end. So, with `RuleRedactor`:

    * However the text is cut, the results joined are exactly `redact(whole).text`, as long as a quiet break comes
      within `HOLD` characters of the one before.
    * Where none does (thousands of characters without a space, pages of nothing but digits), the oldest part is
      returned nevertheless. It never ends inside a finding, or between a finding and the word that announces it. A
      secret that is longer than `HOLD` is replaced, and the rest of its word is dropped. At such a cut, the findings
      may differ from those of `redact(whole)`.
    * No more than `HOLD` characters are held between two calls.

    Any other `Redactor` gets the text cut at the same breaks; the equality holds if none of its findings spans one.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = ""
        self._checked = 0
        self._dropping = False

    def feed(self, piece: str) -> str:
        """Add the next piece. Returns the redacted text that no later piece can change."""
        return "".join(self._feed(piece[at : at + HOLD]) for at in range(0, len(piece), HOLD))

    def _feed(self, piece: str) -> str:
        """Add a piece of at most `HOLD` characters: longer ones would be searched and copied again and again."""
        self._held += self._drop_rest_of_secret(piece)
        parts = [self._release_to_quiet_break()]
        while len(self._held) > HOLD:
            parts.append(self._release_oldest())
        between_strides()
        return "".join(parts)

    def finish(self) -> str:
        """Return the rest, redacted. The stream can then be used for another text."""
        rest, self._held, self._checked, self._dropping = self._held, "", 0, False
        return self._redactor.redact(rest).text

    def _release_to_quiet_break(self) -> str:
        """Return the redacted text up to the last quiet break. Breaks that are not quiet are checked once."""
        words = list(STREAM_WORD.finditer(self._held, self._checked))
        openings = Openings(self._held, words[0].start() - REACH if words else len(self._held))
        for word in reversed(words):
            if is_quiet(self._held, word.end(), word[0], openings):
                self._checked = words[-1].end() - word.end()
                return self._redactor.redact(self._take(word.end())).text
        self._checked = words[-1].end() if words else self._checked
        return ""

    def _take(self, end: int) -> str:
        text, self._held = self._held[:end], self._held[end:]
        return text

    def _release_oldest(self) -> str:
        """Return the oldest part of a text without a quiet break, redacted."""
        window = self._held[:HOLD]
        findings = self._redactor.redact(window).findings
        cut = _choose_cut(window, findings)
        self._take(cut)
        self._checked = max(0, self._checked - cut)
        if cut == HOLD:
            self._dropping = True
            self._held = self._drop_rest_of_secret(self._held)
        return replace_findings(window[:cut], (found for found in findings if found.end <= cut))

    def _drop_rest_of_secret(self, piece: str) -> str:
        """Remove the rest of a secret whose beginning was replaced already."""
        if not self._dropping or not piece:
            return piece
        end = _BREAK.search(piece)
        self._dropping = end is None
        return piece[end.start() :] if end else ""


def _choose_cut(window: str, findings: Sequence[Finding]) -> int:
    """Return the last break that leaves room for matches in progress, moved past findings and their words."""
    room = len(window) - 2 * REACH
    cut = max((found.start() for found in _BREAK.finditer(window, 1, room)), default=room)
    for finding in findings:
        if finding.start - REACH < cut < finding.end:
            cut = finding.end
    return cut


def is_quiet(text: str, at: int, word: str, openings: Openings) -> bool:
    """Return whether no rule can match across `at`, the end of `word`, whatever text follows."""
    if _JOINS.fullmatch(word) or _is_iban_group(text, at, word) or openings.within(at - REACH - _LONGEST_OPENING, at):
        return False
    block = text.rfind("-----BEGIN", max(0, at - HOLD), at)
    return block < 0 or PEM_END.search(text, block, at) is not None


def _is_iban_group(text: str, at: int, word: str) -> bool:
    return len(word) == 4 and _LOWER_IBAN.search(text, max(0, at - _IBAN_REACH), at) is not None


class Openings:
    """The words in a text, from `start` on, that announce a finding or rule one out: they hold the text back.

    They are found once for all breaks. A search before each break would read every character hundreds of times.
    """

    def __init__(self, text: str, start: int = 0) -> None:
        lower_case = to_lower_case(text)
        begin = max(0, start)
        found = [match.start() for match in _OPENING_ANYWHERE.finditer(lower_case, begin)]
        for match in _OPENING_AT_THE_START.finditer(lower_case, begin):
            if match.start() == 0 or not _LETTER.match(lower_case, match.start() - 1):
                found.append(match.start())
        self._starts = sorted(found)

    def within(self, start: int, end: int) -> bool:
        """Return whether one of the words begins between two places. None has a break inside."""
        first = bisect_left(self._starts, start)
        return first < len(self._starts) and self._starts[first] < end


def _first_part(word: str) -> str:
    return word[0] if _UNSPACED_LETTER.match(word) else word.split("_")[0]


_CLAUSES = (*PASSWORDS, *KEYS, *VAGUE_KEYS, *VAGUE_PASSWORDS, *TOKENS, "pass", "pw")
_OTHERS = (*PHONES, *CALLS, *COUNTED, *VERSIONS, *CURRENCIES, *SSN_WORDS, *NINO_WORDS)
# The beginnings of words that announce a finding or rule one out, for a text in lower case. Plain alternatives: a
# condition before them, or ignoring the case, would make the search ten times slower.
_OPENING_ANYWHERE = re.compile(any_of({_first_part(word) for word in _CLAUSES if not is_short(word)}))
_OPENING_AT_THE_START = re.compile(any_of({_first_part(word) for word in (*_OTHERS, *filter(is_short, _CLAUSES))}))
_LETTER = re.compile("[a-z]")
_LONGEST_OPENING = 16  # characters; of two words that overlap, only the first is found
