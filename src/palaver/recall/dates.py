"""Dates in a question, and how near to them a turn was created. Pure.

English, and the names of months in German, French, Spanish, Italian and Portuguese. Words for relative times
("yesterday") are English.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

DAY = 86_400_000_000  # microseconds
NEAR = 10  # days: people report events some days later, and announce them some days before
MAX_YEARS = 60  # a clock that was wrong once must not make a date without a year expensive

_MONTHS = ("january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
           "december")  # fmt: skip
_NUMBER = {name: n + 1 for n, name in enumerate(_MONTHS)} | {name[:3]: n + 1 for n, name in enumerate(_MONTHS)}
_NUMBER["sept"] = 9
# January to December; names that are also other words in English ("mars", "mayo") are left out.
_OTHER_MONTHS = (
    "januar jänner janvier enero gennaio janeiro", "februar feber février febrero febbraio fevereiro",
    "märz marzo março",
    "avril abril aprile", "mai maggio maio", "juni juin junio giugno junho", "juli juillet julio luglio julho",
    "août agosto", "septembre septiembre settembre setembro", "oktober octobre octubre ottobre outubro",
    "novembre noviembre novembro", "dezember décembre diciembre dicembre dezembro",
)  # fmt: skip
_NUMBER |= {name: n + 1 for n, names in enumerate(_OTHER_MONTHS) for name in names.split()}
_LONG = "|".join(_MONTHS)
_ANY = "|".join(sorted(_NUMBER, key=len, reverse=True))
_NAMES_TOO = ("mai", "abril", "julio", "juni", "junio", "juli")  # people's names: months only behind a preposition
_SURE = "|".join(
    name
    for name in (*_MONTHS, *" ".join(_OTHER_MONTHS).split())
    if name not in ("may", "march") and name not in _NAMES_TOO
)
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_DAY = r"(?P<day>[0-3]?\d)(?:st|nd|rd|th|\.|º|er)?"
_BEFORE = r"\b(?:in|on|during|since|by|until|from|before|after|of|around|early|mid|late|last|this)\s+"

# In this order: text that one pattern matched is not searched by the next.
_NAMED = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"\b{_YEAR}-(?P<number>[01]\d)-(?P<day>[0-3]\d)\b",
        rf"\b{_DAY}\s+(?:(?:of|de)\s+)?(?P<month>{_ANY})\b\.?(?:,?\s+(?:de\s+)?{_YEAR}\b)?",
        rf"\b(?P<month>{_ANY})\b\.?\s+{_DAY}\b(?!\d)(?:,?\s+{_YEAR}\b)?",
        rf"\b(?P<month>{_ANY})\b\.?,?\s+(?:(?:of|de)\s+)?{_YEAR}\b",
        rf"{_BEFORE}(?P<month>{_LONG})\b",
        rf"\b(?:im|in|en|em|a|de|del|nel|vom)\s+(?P<month>{'|'.join(_NAMES_TOO)})\b",
        rf"\b(?P<month>{_SURE})\b",
        rf"{_BEFORE}(?:the\s+year\s+)?{_YEAR}\b",
    )
)
_AGO = re.compile(
    r"\b(?P<count>\d{1,3}|a|an|one|two|three|four|five|six)\s+(?P<unit>day|week|month|year)s?\s+ago\b", re.I
)
_LAST = re.compile(r"\b(?P<word>today|yesterday|(?:last|this)\s+(?:week|month|year))\b", re.I)
_COUNT = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6}
_LENGTH = {"day": 1, "week": 7, "month": 30, "year": 365}


@dataclass(frozen=True, slots=True)
class When:
    """A day, a month or a year that a question names; or, with `days`, exactly that many days from a full date."""

    year: int | None = None
    month: int | None = None
    day: int | None = None
    days: int = 0


def find_dates(text: str, now: datetime) -> tuple[When, ...]:
    """Return the dates in `text`.

    "Yesterday" and the like are counted back from `now`, and only in a question: in a statement they say when something
    happened, not when it was mentioned.
    """
    found = list(_relative(text, now.date())) if "?" in text else []
    for pattern in _NAMED:
        found.extend(when for match in pattern.finditer(text) if _is_date(when := _read(match)))
        text = pattern.sub(" ", text)
    return tuple(dict.fromkeys(found))


def _read(match: re.Match[str]) -> When:
    part = match.groupdict()
    month = int(part["number"]) if part.get("number") else _NUMBER.get((part.get("month") or "").lower())
    year, day = part.get("year"), part.get("day")
    return When(int(year) if year else None, month, int(day) if day else None)


def _is_date(when: When) -> bool:
    """Return whether the calendar has such a day. Without a year, 2000 is used: it is a leap year."""
    return _day(when.year or 2000, when.month or 1, when.day or 1) is not None


def _relative(text: str, today: date) -> Iterator[When]:
    for match in _LAST.finditer(text):
        yield _span(match["word"].lower(), today)
    for match in _AGO.finditer(text):
        count, unit = match["count"].lower(), match["unit"].lower()
        back = (_COUNT.get(count) or int(count)) * _LENGTH[unit]
        tolerance = _LENGTH[unit] // 2
        yield _from(today - timedelta(days=min(back + tolerance, 365 * 200)), 2 * tolerance + 1)


def _span(word: str, today: date) -> When:
    if word in ("today", "yesterday"):
        return _from(today - timedelta(days=int(word == "yesterday")), 1)
    which, unit = word.split()
    days = _LENGTH[unit] * (2 if which == "last" else 1)  # people also say "last week" of the current one
    return _from(today - timedelta(days=days - 1), days)


def _from(first: date, days: int) -> When:
    return When(first.year, first.month, first.day, days)


# ---- nearness ------------------------------------------------------------------------------------------------------


def nearness(dates: Sequence[When], created: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return for each moment, from 0 to 1, how well it fits the best of these dates."""
    best = np.zeros(len(created), np.float32)
    if not dates or not len(created):
        return best
    days = created // DAY
    years = _years(days)
    for when in dates:
        for year in [when.year] if when.year else years:
            np.maximum(best, _fit(when, year, days), out=best)
    return best


def spans(dates: Sequence[When], now: datetime) -> list[tuple[int, int]]:
    """Return the times around these dates, in microseconds. A date without a year may be of this year or the last."""
    found = []
    for when in dates:
        for year in [when.year] if when.year else [now.year, now.year - 1]:
            first = _day(year, when.month or 1, when.day or 1)
            if first is not None:
                found.append((first * DAY, (first + _length(when, year)) * DAY))
    return found


def _length(when: When, year: int) -> int:
    """Return how many days a date stands for."""
    if when.days or when.day:
        return when.days or NEAR + 1
    return monthrange(year, when.month)[1] if when.month else 365


def _years(days: NDArray[np.int64]) -> range:
    first, last = (date.fromordinal(_EPOCH + int(day)).year for day in (days.min(), days.max()))
    return range(max(first, last - MAX_YEARS), last + 1)


_EPOCH = date(1970, 1, 1).toordinal()


def _day(year: int, month: int, day: int) -> int | None:
    """Return the day as days since 1970. None if the calendar has no such day."""
    try:
        return date(year, month, day).toordinal() - _EPOCH
    except ValueError:
        return None


def _fit(when: When, year: int, days: NDArray[np.int64]) -> NDArray[np.float32]:
    first = _day(year, when.month or 1, when.day or 1)
    if first is None:
        return np.zeros(len(days), np.float32)
    since = days - first
    if when.days:
        return _within(since, when.days)
    if when.day:
        return _within(since, NEAR + 1) + np.float32(0.5) * _within(since + NEAR, NEAR)
    if when.month:
        length = monthrange(year, when.month)[1]
        return np.float32(0.5) * (_within(since, length) + _within(since, length + NEAR))
    return np.float32(0.3) * _within(since, 365)


def _within(since: NDArray[np.int64], days: int) -> NDArray[np.float32]:
    inside: NDArray[np.float32] = ((since >= 0) & (since < days)).astype(np.float32)
    return inside
