"""A rule, and the checks and patterns that several rules share. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from palaver.redaction.rules.words import announcing

Span = tuple[int, int]
Check = Callable[[re.Match[str]], Span | None]
"""Returns the span to redact, or None when the match is not a finding."""

ALONE = r"(?<![\w.-])"  # after a letter or a digit it would be part of something longer
_NOT_DIGIT = re.compile(r"\D+")


@dataclass(frozen=True, slots=True)
class Rule:
    """A kind, a pattern that proposes matches, and a check that accepts a match by a checksum, a range or its context.

    A text with fewer digits than `figures`, or with none of the `words`, is not searched: most texts have neither.
    `begins` limits where a match may begin. Patterns are bounded or possessive, so that searching is linear.
    """

    kind: str
    pattern: re.Pattern[str]
    check: Check
    figures: int = 0
    words: tuple[str, ...] = ()
    begins: Literal["anywhere", "word", "number"] = "anywhere"


def announced_value(kind: str, words: Iterable[str], link: str, value: str, check: Check) -> Rule:
    """Return a rule for a value that one of the words announces. A placeholder (`[password]`) announces nothing."""
    words = tuple(words)
    pattern = rf"(?<!\[)(?:{announcing(words)})(?![a-zA-Z\]])(?:{link}){value}"
    return Rule(kind, re.compile(pattern, re.IGNORECASE), check, words=words, begins="word")


def ascii_pattern(*parts: str, flags: int = 0) -> re.Pattern[str]:
    """Compile a pattern in which letters are A to Z, so that numbers are found in scripts without spaces."""
    return re.compile("".join(parts), re.ASCII | flags)


def digits_of(text: str) -> str:
    """Remove everything but digits."""
    return _NOT_DIGIT.sub("", text)


def follows(match: re.Match[str], pattern: re.Pattern[str], start: int, reach: int = 48) -> bool:
    """Return whether the pattern, which is anchored at its end, matches the text right before `start`."""
    return pattern.search(match.string, max(0, start - reach), start) is not None


def accept(match: re.Match[str]) -> Span:
    """Accept every match."""
    return match.span()


def is_anything(_: str) -> bool:
    """Accept every text."""
    return True


def check_text(test: Callable[[str], bool]) -> Check:
    """Return a check of the matched text alone: the group `value`, if there is one."""

    def check(match: re.Match[str]) -> Span | None:
        group: str | int = "value" if "value" in match.re.groupindex else 0
        return match.span(group) if test(match[group]) else None

    return check
