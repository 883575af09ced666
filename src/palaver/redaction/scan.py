"""Scanning one text with the rules. Pure."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from palaver.redaction.findings import ALL, Finding, Redacted, merge_findings, replace_findings
from palaver.redaction.rules import RULES
from palaver.redaction.rules.rule import Rule

# Letters that match another letter case-insensitively although their lower case is not that letter. In a text with
# one of them, a search for words in lower case would miss some. A test derives them from all of Unicode.
ODD_LETTERS = re.compile("[İıſ\u1c80-\u1c88]")
_NUMBER = re.compile(r"(?<![0-9])[0-9]|[+(]")
# Each word as its first part, and the other parts, which must occur somewhere in the text.
_Words = tuple[tuple[str, tuple[str, ...]], ...]
_PLACEHOLDER = re.compile("|".join(re.escape(f"[{kind}]") for kind in sorted(ALL)))
_LONGEST_PLACEHOLDER = max(len(kind) for kind in ALL) + 2


class RuleRedactor:
    """Redacts by rules, without a model or a network. Reusable, and safe to share between threads."""

    def __init__(self, kinds: frozenset[str] = ALL) -> None:
        if unknown := kinds - ALL:
            raise ValueError(f"unknown kinds: {', '.join(sorted(unknown))}")
        self._rules = tuple((rule, _split_words(rule.words)) for rule in RULES if rule.kind in kinds)

    def redact(self, text: str) -> Redacted:
        """Redact a text. Redacting the result again changes nothing."""
        findings = self._scan(text)
        while findings:
            # A word that ruled out a number may itself be redacted now, so scan until nothing is found.
            clean = replace_findings(text, findings)
            more = self._scan(clean)
            if not more:
                return Redacted(clean, findings)
            findings = merge_findings((*findings, *_move_back(more, findings)))
        return Redacted(text, ())

    def _scan(self, text: str) -> tuple[Finding, ...]:
        overview = _Overview(text)
        return merge_findings(
            finding for rule, words in self._rules for finding in find(rule, text, overview.places(rule, words))
        )


def _move_back(more: Iterable[Finding], earlier: Sequence[Finding]) -> Iterator[Finding]:
    """Map findings in a text whose `earlier` findings are replaced to positions in the text before that."""
    growth = list(accumulate((found.end - found.start - len(found.kind) - 2 for found in earlier), initial=0))
    ends = [found.end - grown for found, grown in zip(earlier, growth[1:], strict=True)]
    for finding in more:
        shift = growth[bisect_right(ends, finding.start)]
        yield Finding(finding.kind, finding.start + shift, finding.end + shift)


def find(rule: Rule, text: str, places: Iterable[int] | None = None) -> Iterator[Finding]:
    """Yield the findings of one rule; with `places`, only those that begin there.

    After a rejected match the search continues at its next character.
    """
    at, left = 0, None if places is None else iter(places)
    while match := rule.pattern.search(text, at) if left is None else _next_match(rule.pattern, text, at, left):
        span = rule.check(match)
        at = match.start() + 1
        if span and not _touches_placeholder(text, *span):
            at = max(at, span[1])
            yield Finding(rule.kind, *span)


def _next_match(pattern: re.Pattern[str], text: str, at: int, places: Iterator[int]) -> re.Match[str] | None:
    """Return the next match that begins at one of the places, and not before `at`."""
    for place in places:
        if place >= at and (match := pattern.match(text, place)):
            return match
    return None


def _touches_placeholder(text: str, start: int, end: int) -> bool:
    """Return whether a placeholder overlaps the span or is adjacent to it: such a span is not a finding."""
    around = text[max(0, start - _LONGEST_PLACEHOLDER) : end + _LONGEST_PLACEHOLDER]
    first = start - max(0, start - _LONGEST_PLACEHOLDER)
    last = first + end - start
    return any(mark.start() <= last and mark.end() >= first for mark in _PLACEHOLDER.finditer(around))


class _Overview:
    """Cheap facts about a text that limit where the rules have to search."""

    def __init__(self, text: str) -> None:
        self.figures = sum(map(text.count, "0123456789"))
        self.lower_case = text.lower() if text.isascii() or not ODD_LETTERS.search(text) else None
        self.numbers = [number.start() for number in _NUMBER.finditer(text)] if self.figures else []

    def places(self, rule: Rule, words: _Words) -> list[int] | None:
        """Return where a match of the rule may begin; None for anywhere."""
        if self.figures < rule.figures:
            return []
        if rule.begins == "number":
            return self.numbers
        if not words or self.lower_case is None:
            return None
        found = _find_beginnings(self.lower_case, words)
        return found if rule.begins == "word" or not found else None


def _find_beginnings(lower_case: str, words: _Words) -> list[int]:
    found = []
    for first, others in words:
        if first in lower_case and all(part in lower_case for part in others):
            at = lower_case.find(first)
            while at >= 0:
                found.append(at)
                at = lower_case.find(first, at + 1)
    return sorted(found)


def _split_words(words: Iterable[str]) -> _Words:
    return tuple((first, tuple(others)) for first, *others in (word.split("_") for word in words))
