"""The time in which a statement holds, as its sentence says it: "since 2021", "until March", "from May to July". Pure.

English. Dates are those of the calendar that a person writes: a year, a month with or without a year, a day of a month,
"last year", "two months ago". A month or day without a year is counted from the day when it was said: the last one for
something that is over, the next one for an end that is to come.
"""

from __future__ import annotations

import re
from calendar import monthrange
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

_MONTHS = ("january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
           "december")  # fmt: skip
_NUMBER = {name: n for n, name in enumerate(_MONTHS, 1)} | {name[:3]: n for n, name in enumerate(_MONTHS, 1)}
_NUMBER["sept"] = 9
_MONTH = "|".join(sorted(_NUMBER, key=len, reverse=True))
_YEAR = r"(?:19|20)\d\d"
_DAY = r"[0-3]?\d(?:st|nd|rd|th)?"
_COUNT = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8,
          "nine": 9, "ten": 10}  # fmt: skip
_AGO = rf"(?:\d{{1,2}}|{'|'.join(_COUNT)})\s+(?:day|week|month|year)s?\s+ago"
_DATE = (
    rf"(?:{_YEAR}-[01]\d-[0-3]\d|{_DAY}\s+(?:of\s+)?(?:{_MONTH})\b\.?(?:,?\s+{_YEAR})?|(?:{_MONTH})\.?\s+{_DAY}\b(?:,?\s+{_YEAR})?"
    rf"|(?:last\s+|this\s+|next\s+)?(?:{_MONTH})\b\.?(?:,?\s+(?:of\s+)?{_YEAR})?|(?:last|this|next)\s+(?:week|month|year)"
    rf"|{_AGO}|yesterday|today|tomorrow|{_YEAR})\b"
)
_EARLY = r"(?:the\s+(?:beginning|start|end|middle)\s+of\s+|early\s+|late\s+|mid[- ])?"
_BETWEEN = re.compile(
    rf"\b(?:from|between)\s+{_EARLY}(?P<first>{_DATE})\s*(?:to|until|till|and|through|[-–—])\s*{_EARLY}(?P<last>{_DATE})",
    re.I,
)
_SINCE = re.compile(rf"\b(?:since|starting(?:\s+in)?|as\s+of|beginning(?:\s+in)?)\s+{_EARLY}(?P<first>{_DATE})", re.I)
_UNTIL = re.compile(rf"\b(?P<word>until|till|up\s+to|through)\s+{_EARLY}(?P<last>{_DATE})(?!\s+(?:the|a|an)\b)", re.I)
_EVENT = re.compile(
    rf"\b(?:moved|relocated|joined|started|got\s+hired|switched)\b.*?\b(?:(?:in|on)\s+)?(?P<first>{_DATE})", re.I
)
_PAST = re.compile(r"\b(?:lived|worked|studied|played|drove|was|were|had|spoke|used)\b", re.I)


@dataclass(frozen=True, slots=True)
class Period:
    """When something holds: from the first moment until the last, each if it is known."""

    first: datetime | None = None
    last: datetime | None = None

    def is_over(self, at: datetime) -> bool:
        return self.last is not None and self.last <= at


def find_period(sentence: str, said: datetime) -> Period:
    """Return the period that a sentence names, counted from when it was said."""
    past = _PAST.search(sentence) is not None
    today = said.date()
    if found := _BETWEEN.search(sentence):
        last = _days(found["last"], today, past=past)
        first = _days(found["first"], last[1] if last else today, past=True)
        return Period(_moment(first and first[0]), _moment(last and last[1]))
    since, until = _SINCE.search(sentence), _UNTIL.search(sentence)
    first = _days(since["first"], today, past=True) if since else None
    last = _days(until["last"], today, past=past) if until else None
    if not first and not last and (moved := _EVENT.search(sentence)):
        first = _days(moved["first"], today, past=True)
    inclusive = until is not None and until["word"].lower() == "through"
    return Period(_moment(first and first[0]), _moment(last and last[int(inclusive)]))


def _moment(day: date | None) -> datetime | None:
    return None if day is None else datetime(day.year, day.month, day.day, tzinfo=UTC)


def _days(text: str, today: date, *, past: bool) -> tuple[date, date] | None:
    """Return the first day of a date, and the first day after it. None if the calendar has no such day."""
    words = text.lower().replace(",", " ").replace(".", " ").split()
    if ago := _relative(words, today):
        return ago
    year = next((int(word) for word in words if re.fullmatch(_YEAR, word)), None)
    if re.fullmatch(rf"{_YEAR}-\d\d-\d\d", words[0]):
        return _span(*map(int, words[0].split("-")))
    month = next((_NUMBER[word] for word in words if word in _NUMBER), None)
    day = next((int(re.sub(r"\D", "", word)) for word in words if re.fullmatch(_DAY, word)), None)
    if month is None:
        return None if year is None else (date(year, 1, 1), date(year + 1, 1, 1))
    return _span(year or _nearest_year(month, day or 1, today, past=past and "next" not in words), month, day)


def _relative(words: list[str], today: date) -> tuple[date, date] | None:
    text = " ".join(words)
    days = {"today": 0, "yesterday": -1, "tomorrow": 1}
    if text in days:
        first = today + timedelta(days=days[text])
        return first, first + timedelta(days=1)
    if words[-1] == "ago":
        return _back(_COUNT.get(words[0]) or int(words[0]), words[1].rstrip("s"), today)
    if words[-1] not in ("week", "month", "year"):
        return None
    step = {"last": 1, "this": 0, "next": -1}[words[0]]
    return _back(step, words[-1], today)


def _back(count: int, unit: str, today: date) -> tuple[date, date]:
    """Return the day, week, month or year that many before today."""
    if unit in ("day", "week"):
        length = 1 if unit == "day" else 7
        first = today - timedelta(days=length * count + (today.weekday() if unit == "week" else 0))
        return first, first + timedelta(days=length)
    if unit == "year":
        return date(today.year - count, 1, 1), date(today.year - count + 1, 1, 1)
    months = today.year * 12 + today.month - 1 - count
    return _month(months // 12, months % 12 + 1)


def _nearest_year(month: int, day: int, today: date, *, past: bool) -> int:
    """Return the year of the last such day, today included; or of the next one."""
    is_before = (month, day) <= (today.month, today.day)
    if past:
        return today.year if is_before else today.year - 1
    return today.year + 1 if is_before and month != today.month else today.year


def _span(year: int, month: int, day: int | None = None) -> tuple[date, date] | None:
    if day is None:
        return _month(year, month)
    try:
        first = date(year, month, day)
    except ValueError:
        return None
    return first, first + timedelta(days=1)


def _month(year: int, month: int) -> tuple[date, date]:
    first = date(year, month, 1)
    return first, first + timedelta(days=monthrange(year, month)[1])
