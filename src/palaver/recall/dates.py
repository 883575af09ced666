"""Dates in a question, and how near to them a turn was created. Pure.

English, the names of months in German, French, Spanish, Italian and Portuguese, and words for relative times
("yesterday") in these languages and in Chinese, Japanese and Korean.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta

import numpy as np
from numpy.typing import NDArray

from palaver.recall.languages import Language

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
# Names and forms that mean a date in these languages only: "mars" is a planet in English, and 3/5 the fifth of March.
_LATIN_MONTH = {
    "fr": "mars", "es": "mayo", "de": "mai|juni|juli", "it": "maggio", "pt": "maio",
}  # fmt: skip
_OWN_MONTHS = {"mars": 3, "mayo": 5}
_BY_LANGUAGE = {
    language: tuple(
        re.compile(pattern, re.IGNORECASE)
        for pattern in (
            rf"\b(?P<day>[0-3]?\d)(?:er|º)?\.?\s*(?:de\s+)?(?P<month>{month})\b(?:\s+(?:de\s+)?{_YEAR}\b)?",
            rf"\b(?P<month>{month})\s+(?:de\s+)?{_YEAR}\b",
            rf"\b(?:im|en|in|em|a|au\s+mois\s+de|desde|depuis|seit|dal|nel)\s+(?P<month>{month})\b",
            rf"\b(?P<day>[0-3]?\d)[./-](?P<number>[01]?\d)[./-]{_YEAR}\b",
            rf"\b(?:im\s+jahre?|jahre?|seit|ab|en|in|em|nel|dal|depuis|desde|año|anno|ano|année)\s+{_YEAR}\b",
        )
    )
    for language, month in _LATIN_MONTH.items()
}
_CJK_DATES = tuple(
    re.compile(pattern)
    for pattern in (
        rf"{_YEAR}\s*[年년]\s*(?P<number>[01]?\d)\s*[月월](?:\s*(?P<day>[0-3]?\d)\s*[日号일])?",
        r"(?<!\d)(?P<number>[01]?\d)\s*[月월](?:\s*(?P<day>[0-3]?\d)\s*[日号일])?",
        rf"{_YEAR}\s*[年년]",
    )
)
# Words for a time that ends today: how many days ago it began, and how many days it has.
_RELATIVE: dict[str, tuple[tuple[re.Pattern[str], int, int], ...]] = {
    language: tuple((re.compile(pattern, re.IGNORECASE), back, days) for pattern, back, days in words)
    for language, words in {
        "de": ((r"\bheute\b", 0, 1), (r"\bgestern\b", 1, 1), (r"\bvorgestern\b", 2, 1),
               (r"\bdiese\w?\s+woche\b", 6, 7), (r"\b(?:letzte|vorige|vergangene)\w?\s+woche\b", 13, 14),
               (r"\bdiese\w?\s+monat\b", 29, 30), (r"\b(?:letzte|vorige|vergangene)\w?\s+monat\b", 59, 60),
               (r"\bdieses\s+jahr\b", 364, 365), (r"\b(?:letzte|voriges|vergangene)\w?\s+jahr\b", 729, 730)),
        "fr": ((r"\baujourd['’]hui\b", 0, 1), (r"(?<!avant-)\bhier\b", 1, 1), (r"\bavant-hier\b", 2, 1),
               (r"\bcette\s+semaine\b", 6, 7), (r"\bsemaine\s+(?:dernière|passée)\b", 13, 14),
               (r"\bce\s+mois(?:-ci)?\b", 29, 30), (r"\bmois\s+(?:dernier|passé)\b", 59, 60),
               (r"\bcette\s+année\b", 364, 365), (r"\b(?:année\s+dernière|l['’]an\s+dernier)\b", 729, 730)),
        "es": ((r"\bhoy\b", 0, 1), (r"\bayer\b", 1, 1), (r"\b(?:anteayer|antes\s+de\s+ayer)\b", 2, 1),
               (r"\besta\s+semana\b", 6, 7), (r"\bsemana\s+pasada\b", 13, 14), (r"\beste\s+mes\b", 29, 30),
               (r"\bmes\s+pasado\b", 59, 60), (r"\beste\s+año\b", 364, 365), (r"\baño\s+pasado\b", 729, 730)),
        "it": ((r"\boggi\b", 0, 1), (r"\bieri\b", 1, 1), (r"\b(?:l['’]altro\s+ieri|avantieri)\b", 2, 1),
               (r"\bquesta\s+settimana\b", 6, 7), (r"\bsettimana\s+(?:scorsa|passata)\b", 13, 14),
               (r"\bscorsa\s+settimana\b", 13, 14), (r"\bquesto\s+mese\b", 29, 30),
               (r"\b(?:mese\s+scorso|scorso\s+mese)\b", 59, 60), (r"\bquest['’]anno\b", 364, 365),
               (r"\b(?:anno\s+scorso|scorso\s+anno)\b", 729, 730)),
        "pt": ((r"\bhoje\b", 0, 1), (r"\bontem\b", 1, 1), (r"\banteontem\b", 2, 1), (r"\besta\s+semana\b", 6, 7),
               (r"\bsemana\s+passada\b", 13, 14), (r"\beste\s+mês\b", 29, 30), (r"\bmês\s+passado\b", 59, 60),
               (r"\beste\s+ano\b", 364, 365), (r"\bano\s+passado\b", 729, 730)),
        "zh": (("今天", 0, 1), ("昨天", 1, 1), ("前天", 2, 1), ("这(?:个)?(?:周|星期)", 6, 7),
               ("上(?:个)?(?:周|星期)", 13, 14),
               ("这个月", 29, 30), ("上个月", 59, 60), ("今年", 364, 365), ("去年", 729, 730)),
        "ja": (("今日", 0, 1), ("昨日|きのう", 1, 1), ("一昨日|おととい", 2, 1), ("今週", 6, 7), ("先週", 13, 14),
               ("今月", 29, 30), ("先月", 59, 60), ("今年", 364, 365), ("去年|昨年", 729, 730)),
        "ko": (("오늘", 0, 1), ("어제", 1, 1), ("그저께|그제", 2, 1), ("이번\\s*주", 6, 7), ("지난\\s*주", 13, 14),
               ("이번\\s*달", 29, 30), ("지난\\s*달", 59, 60), ("올해", 364, 365), ("작년|지난\\s*해", 729, 730)),
    }.items()
}  # fmt: skip
_UNITS = {
    "tag": 1, "tage": 1, "tagen": 1, "woche": 7, "wochen": 7, "monat": 30, "monate": 30, "monaten": 30, "jahr": 365,
    "jahre": 365, "jahren": 365, "jour": 1, "jours": 1, "semaine": 7, "semaines": 7, "mois": 30, "an": 365, "ans": 365,
    "día": 1, "días": 1, "dia": 1, "dias": 1, "semana": 7, "semanas": 7, "mes": 30, "meses": 30, "mês": 30, "año": 365,
    "años": 365, "ano": 365, "anos": 365, "giorno": 1, "giorni": 1, "settimana": 7, "settimane": 7, "mese": 30,
    "mesi": 30, "anno": 365, "anni": 365, "天": 1, "日": 1, "周": 7, "星期": 7, "週間": 7, "个月": 30,
    "か月": 30, "ヶ月": 30, "年": 365, "일": 1, "주": 7, "개월": 30, "달": 30, "년": 365,
}  # fmt: skip
_COUNTS = {
    word: number
    for number, words in enumerate(
        (
            "ein eine einem einer un une una uno um uma 一",
            "zwei deux dos due dois duas 两 二",
            "drei trois tres tre três 三",
            "vier quatre cuatro quattro quatro 四",
            "fünf cinq cinco cinque 五",
            "sechs six seis sei 六",
        ),
        1,
    )
    for word in words.split()
}
_NUMBERS = "|".join(sorted((*_COUNTS, r"\d{1,3}"), key=len, reverse=True))
_SPACED_UNITS = "|".join(
    sorted((unit for unit in _UNITS if unit.isascii() or unit in "díasañosmês"), key=len, reverse=True)
)
_PAST = {
    "de": re.compile(rf"\bvor\s+(?P<count>{_NUMBERS})\s+(?P<unit>{_SPACED_UNITS})\b", re.IGNORECASE),
    "fr": re.compile(rf"\bil\s+y\s+a\s+(?P<count>{_NUMBERS})\s+(?P<unit>{_SPACED_UNITS})\b", re.IGNORECASE),
    "es": re.compile(rf"\bhace\s+(?P<count>{_NUMBERS})\s+(?P<unit>días?|{_SPACED_UNITS}|años?)\b", re.IGNORECASE),
    "it": re.compile(rf"\b(?P<count>{_NUMBERS})\s+(?P<unit>{_SPACED_UNITS})\s+fa\b", re.IGNORECASE),
    "pt": re.compile(rf"\bh[áa]\s+(?P<count>{_NUMBERS})\s+(?P<unit>{_SPACED_UNITS}|mês)\b", re.IGNORECASE),
    "zh": re.compile(rf"(?P<count>{_NUMBERS})\s*(?P<unit>天|周|星期|个月|年)(?:以)?前"),
    "ja": re.compile(rf"(?P<count>{_NUMBERS})\s*(?P<unit>日|週間|か月|ヶ月|年)前"),
    "ko": re.compile(rf"(?P<count>{_NUMBERS})\s*(?P<unit>일|주|개월|달|년)\s*전"),
}
_COUNT = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6}
_LENGTH = {"day": 1, "week": 7, "month": 30, "year": 365}


_QUESTION_MARK = re.compile(r"[?？]")


@dataclass(frozen=True, slots=True)
class When:
    """A day, a month or a year that a question names; or, with `days`, exactly that many days from a full date."""

    year: int | None = None
    month: int | None = None
    day: int | None = None
    days: int = 0


def find_dates(text: str, now: datetime, language: Language | None = "en") -> tuple[When, ...]:
    """Return the dates in `text`, which is in this language.

    "Yesterday" and the like are counted back from `now`, and only in a question: in a statement they say when something
    happened, not when it was mentioned.
    """
    found = list(_relative(text, now.date())) if "?" in text else []
    if language is not None and language != "en" and _QUESTION_MARK.search(text):
        found += _relative_in(language, text, now.date())
    for pattern in (*_patterns_of(language), *_NAMED):
        found.extend(when for match in pattern.finditer(text) if _is_date(when := _read(match)))
        text = pattern.sub(" ", text)
    return tuple(dict.fromkeys(found))


def _patterns_of(language: Language | None) -> tuple[re.Pattern[str], ...]:
    if language in ("zh", "ja", "ko"):
        return _CJK_DATES
    return _BY_LANGUAGE.get(language or "en", ())


def _relative_in(language: Language, text: str, today: date) -> Iterator[When]:
    for pattern, back, days in _RELATIVE[language]:
        if pattern.search(text):
            yield _from(today - timedelta(days=back), days)
    for match in _PAST[language].finditer(text):
        count, unit = match["count"].lower(), _UNITS[match["unit"].lower()]
        yield _about((_COUNTS.get(count) or int(count)) * unit, unit // 2, today)


def _about(back: int, tolerance: int, today: date) -> When:
    """Return the days around the day that is `back` days ago."""
    return _from(today - timedelta(days=min(back + tolerance, 365 * 200)), 2 * tolerance + 1)


def _read(match: re.Match[str]) -> When:
    part = match.groupdict()
    name = (part.get("month") or "").lower()
    month = int(part["number"]) if part.get("number") else _OWN_MONTHS.get(name) or _NUMBER.get(name)
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
        yield _about((_COUNT.get(count) or int(count)) * _LENGTH[unit], _LENGTH[unit] // 2, today)


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
