"""When a statement holds, as its sentence says it, counted from the day when it was said."""

from __future__ import annotations

from datetime import UTC, date, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from palaver.memory.periods import find_period

SAID = datetime(2026, 5, 20, 9, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("sentence", "first", "last"),
    [
        ("I lived in Berlin until March.", None, date(2026, 3, 1)),
        ("I lived in Berlin until August.", None, date(2025, 8, 1)),
        ("I live in Berlin until August.", None, date(2026, 8, 1)),
        ("I live in Berlin until March.", None, date(2027, 3, 1)),
        ("I lived in Berlin through March 2024.", None, date(2024, 4, 1)),
        ("I lived in Berlin until 3 May 2024.", None, date(2024, 5, 3)),
        ("I lived in Berlin until May 3rd, 2024.", None, date(2024, 5, 3)),
        ("I have lived in Rome since 2021.", date(2021, 1, 1), None),
        ("I work at Siemens since last year.", date(2025, 1, 1), None),
        ("Since March I work at Siemens.", date(2026, 3, 1), None),
        ("Since early June I work at Siemens.", date(2025, 6, 1), None),
        ("I worked at Siemens from May to July.", date(2025, 5, 1), date(2025, 8, 1)),
        ("I worked at Siemens from 2018 to 2020.", date(2018, 1, 1), date(2021, 1, 1)),
        ("I worked at Siemens between November and February.", date(2025, 11, 1), date(2026, 3, 1)),
        ("I work at Siemens from June to July.", date(2026, 6, 1), date(2026, 8, 1)),
        ("I moved to Rome in March.", date(2026, 3, 1), None),
        ("I moved to Rome two months ago.", date(2026, 3, 1), None),
        ("I joined Siemens on 2026-02-03.", date(2026, 2, 3), None),
        ("I moved to Rome last month.", date(2026, 4, 1), None),
        ("I live in Berlin.", None, None),
        ("I live in Berlin until 31 February.", None, None),
        ("My birthday is on 3 May 1990.", None, None),
        ("I may move until the summer.", None, None),
    ],
)
def test_a_period_is_read_from_the_sentence(sentence: str, first: date | None, last: date | None) -> None:
    found = find_period(sentence, SAID)
    assert (found.first and found.first.date(), found.last and found.last.date()) == (first, last)


@given(st.text(alphabet="since until from to 0123456789 march may -,.", max_size=60))
def test_no_text_stops_the_reader(text: str) -> None:
    find_period(f"I lived in Berlin {text}", SAID)
