"""Scanning one text with the rules. Pure."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from operator import itemgetter

from palaver.core.strides import between_strides
from palaver.redaction.findings import ALL, Finding, Redacted, join_findings, merge_findings, replace_findings
from palaver.redaction.rules import RULES
from palaver.redaction.rules.rule import Rule

# Letters that match another letter case-insensitively although their lower case is not that letter, each with that
# letter. A test derives them from all of Unicode.
ODD_LETTERS = {
    "İ": "i", "ı": "i", "ſ": "s", "\u1c80": "в", "\u1c81": "д", "\u1c82": "о", "\u1c83": "с", "\u1c84": "т",
    "\u1c85": "т", "\u1c86": "ъ", "\u1c87": "ѣ", "\u1c88": "ꙋ",
}  # fmt: skip
_NUMBER = re.compile(r"(?<![0-9])[0-9]|[+(]")
# Each word as its first part, and the other parts, which must follow soon.
_Words = tuple[tuple[str, tuple[str, ...]], ...]
_PLACEHOLDER = re.compile("|".join(re.escape(f"[{kind}]") for kind in sorted(ALL)))
_LONGEST_PLACEHOLDER = max(len(kind) for kind in ALL) + 2

WINDOW = 4_096  # characters in which matches begin that are found in one stride
# No pattern needs more text than this after the place where a match begins: it is bounded, or ends with a repetition
# that takes as much as there is.
AHEAD = 1_024
# A replaced finding changes the matches that begin at most this far before or after it.
NEAR = 1_024

# A finding with what it is sorted by: its start, and the number of its rule. A rule finds one thing at a place.
_Found = tuple[int, int, Finding]


class RuleRedactor:
    """Redacts by rules, without a model or a network. Reusable, and safe to share between threads.

    The text is searched window by window, so that no stride is long (`core/strides.py`). The findings are those of a
    search of the whole text.
    """

    def __init__(self, kinds: frozenset[str] = ALL) -> None:
        if unknown := kinds - ALL:
            raise ValueError(f"unknown kinds: {', '.join(sorted(unknown))}")
        self._rules = tuple((rule, _split_words(rule.words)) for rule in RULES if rule.kind in kinds)

    def redact(self, text: str) -> Redacted:
        """Redact a text. Redacting the result again changes nothing."""
        findings = self._scan(text, [(0, len(text))])
        fresh: Iterable[Finding] = findings
        while fresh:
            # A word that ruled out a number may itself be redacted now, so scan around it until nothing is found.
            clean = replace_findings(text, findings)
            more = self._scan(clean, _regions_around(fresh, findings, len(clean)))
            if not more:
                return Redacted(clean, findings)
            before, findings = findings, merge_findings((*findings, *_move_back(more, findings)))
            fresh = sorted(set(findings).difference(before), key=lambda found: found.start)
        return Redacted(text, ())

    def _scan(self, text: str, regions: Iterable[tuple[int, int]]) -> tuple[Finding, ...]:
        """Return what the matches that begin in the regions find, joined where it overlaps."""
        done: list[Finding] = []
        unfinished: list[_Found] = []
        for start, end in regions:
            after = [start] * len(self._rules)  # where the next match of each rule may begin
            for window in _windows(text, start, end):
                unfinished = _join_up_to(window.end, unfinished + self._scan_window(window, after), done)
                between_strides()
        _join_up_to(len(text), unfinished, done)
        return tuple(done)

    def _scan_window(self, window: _Window, after: list[int]) -> list[_Found]:
        found: list[_Found] = []
        for number, (rule, words) in enumerate(self._rules):
            places = window.places(rule, words)
            for finding in window.find(rule, max(window.start, after[number]), places):
                found.append((finding.start, number, finding))
                after[number] = finding.end
        return found


def _join_up_to(end: int, found: list[_Found], done: list[Finding]) -> list[_Found]:
    """Add the findings that nothing found later can overlap to `done`, joined; return the others.

    Later findings begin at `end` or after it.
    """
    found.sort(key=itemgetter(0, 1))
    first, reach = 0, 0
    for place, (start, _, finding) in enumerate(found):
        if start >= reach and place > first:
            done.append(join_findings([one for *_, one in found[first:place]]))
            first = place
        reach = max(reach, finding.end)
        if reach > end:
            return found[first:]
    if found:
        done.append(join_findings([one for *_, one in found[first:]]))
    return []


def _regions_around(fresh: Iterable[Finding], findings: Sequence[Finding], size: int) -> Iterator[tuple[int, int]]:
    """Yield the parts of the redacted text in which the replaced `fresh` ones of the findings may change a match."""
    shifts = _shifts(findings)
    starts = [found.start for found in findings]
    first, last = 0, -1
    for found in fresh:
        place = found.start - shifts[bisect_right(starts, found.start) - 1]
        start, end = max(0, place - NEAR), min(size, place + len(found.kind) + 2 + NEAR)
        if start > last:
            if last >= 0:
                yield first, last
            first = start
        last = end
    if last >= 0:
        yield first, last


def _shifts(findings: Iterable[Finding]) -> list[int]:
    """Return how many characters the text loses by replacing none, one, two … of the findings."""
    return list(accumulate((found.end - found.start - len(found.kind) - 2 for found in findings), initial=0))


def _move_back(more: Iterable[Finding], earlier: Sequence[Finding]) -> Iterator[Finding]:
    """Map findings in a text whose `earlier` findings are replaced to positions in the text before that."""
    shifts = _shifts(earlier)
    ends = [found.end - shift for found, shift in zip(earlier, shifts[1:], strict=True)]
    for finding in more:
        shift = shifts[bisect_right(ends, finding.start)]
        yield Finding(finding.kind, finding.start + shift, finding.end + shift)


def _windows(text: str, start: int, end: int) -> Iterator[_Window]:
    for at in range(start, end, WINDOW):
        yield _Window(text, at, min(at + WINDOW, end))


class _Window:
    """A part of a text, with cheap facts about it that limit where the rules have to search for matches."""

    def __init__(self, text: str, start: int, end: int) -> None:
        self.text, self.start, self.end = text, start, end
        self._limit = end + AHEAD
        part = text[start : self._limit]
        self._figures = sum(map(part.count, "0123456789"))
        self._lower_case = to_lower_case(part)
        self._numbers: list[int] | None = None
        if self._figures:
            numbers = [number.start() for number in _NUMBER.finditer(text, start, end)]
            # Where a number begins everywhere, one search is faster than a match for each of them.
            self._numbers = numbers if len(numbers) < (end - start) // 32 else None

    def places(self, rule: Rule, words: _Words) -> Sequence[int] | None:
        """Return where a match of the rule may begin; None for anywhere in the window."""
        if self._figures < rule.figures:
            return ()
        if rule.begins == "number":
            return self._numbers if self._figures else ()
        if not words:
            return None
        found = self._beginnings(words)
        return found if rule.begins == "word" or not found else None

    def _beginnings(self, words: _Words) -> list[int]:
        part, size = self._lower_case, self.end - self.start
        found = []
        for first, others in words:
            at = part.find(first, 0, size + len(first))
            if at >= 0 and all(other in part for other in others):
                while 0 <= at < size:
                    found.append(self.start + at)
                    at = part.find(first, at + 1, size + len(first))
        return sorted(found)

    def find(self, rule: Rule, at: int, places: Iterable[int] | None) -> Iterator[Finding]:
        """Yield the findings of the matches that begin at `at` or later in the window, and at one of the places.

        After a rejected match the search continues at its next character.
        """
        left = None if places is None else iter(places)
        while match := self._search(rule, at) if left is None else self._next_match(rule, at, left):
            span = rule.check(match)
            at = match.start() + 1
            if span and not _touches_placeholder(self.text, *span):
                at = max(at, span[1])
                yield Finding(rule.kind, *span)

    def _search(self, rule: Rule, at: int) -> re.Match[str] | None:
        """Return the first match from `at` on that begins in the window. It may end beyond it."""
        while at < self.end:
            near = rule.pattern.search(self.text, at, self._limit)
            if near is None or near.start() >= self.end:
                return None
            # The search saw no further than the limit, where a match may end only because the text seemed to.
            if match := rule.pattern.match(self.text, near.start()):
                return match
            at = near.start() + 1
        return None

    def _next_match(self, rule: Rule, at: int, places: Iterator[int]) -> re.Match[str] | None:
        """Return the next match that begins at one of the places, and not before `at`."""
        for place in places:
            if place >= at and (match := rule.pattern.match(self.text, place)):
                return match
        return None


def to_lower_case(text: str) -> str:
    """Return the text in lower case, with as many characters, and with every odd letter as the one that it matches."""
    if not text.isascii():
        for odd, letter in ODD_LETTERS.items():
            text = text.replace(odd, letter)
    return text.lower()


def _touches_placeholder(text: str, start: int, end: int) -> bool:
    """Return whether a placeholder overlaps the span or is adjacent to it: such a span is not a finding."""
    around = text[max(0, start - _LONGEST_PLACEHOLDER) : end + _LONGEST_PLACEHOLDER]
    first = start - max(0, start - _LONGEST_PLACEHOLDER)
    last = first + end - start
    return any(mark.start() <= last and mark.end() >= first for mark in _PLACEHOLDER.finditer(around))


def _split_words(words: Iterable[str]) -> _Words:
    return tuple((first, tuple(others)) for first, *others in (word.split("_") for word in words))
