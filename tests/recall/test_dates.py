"""Dates in questions, in the ways in which people write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from palaver.recall.dates import When, find_dates, nearness

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What happened on 3 July 2023?", [When(2023, 7, 3)]),
        ("What happened on July 3rd, 2023?", [When(2023, 7, 3)]),
        ("What happened on the 3rd of July?", [When(None, 7, 3)]),
        ("What happened on 2023-07-03?", [When(2023, 7, 3)]),
        ("Where was she in July 2023?", [When(2023, 7)]),
        ("Where was she in July?", [When(None, 7)]),
        ("Where was she in 2023?", [When(2023)]),
        ("Did she move in May?", [When(None, 5)]),
        ("May I ask what the march was about?", []),
        ("What did she buy on May 5?", [When(None, 5, 5)]),
        ("Between 3 July 2023 and 5 August 2023?", [When(2023, 7, 3), When(2023, 8, 5)]),
        ("On 31 February 2023?", []),
        ("On 29 February?", [When(None, 2, 29)]),
        ("What did we say yesterday?", [When(2026, 11, 14, 1)]),
        ("What did we talk about two days ago?", [When(2026, 11, 13, 1)]),
        ("I slept badly yesterday.", []),
        ("I paid 2023 euros for 12 eggs", []),
    ],
)
def test_a_date_is_found(text: str, expected: list[When]) -> None:
    assert list(find_dates(text, NOW)) == expected


def near(when: When, *moments: datetime) -> list[float]:
    created = np.array([int(moment.timestamp() * 1e6) for moment in moments])
    return [round(float(value), 2) for value in nearness([when], created)]


def test_what_happened_on_a_day_is_told_some_days_later_or_announced_before() -> None:
    day = datetime(2023, 7, 3, 23, tzinfo=UTC)
    moments = [day + timedelta(days=days) for days in (-11, -10, -1, 0, 10, 11)]
    assert near(When(2023, 7, 3), *moments) == [0, 0.5, 0.5, 1, 1, 0]


def test_a_month_is_told_in_it_and_shortly_after() -> None:
    moments = [datetime(2023, 6, 30, tzinfo=UTC), datetime(2023, 7, 31, tzinfo=UTC), datetime(2023, 8, 10, tzinfo=UTC)]
    assert near(When(2023, 7), *moments) == [0, 1, 0.5]
    assert near(When(None, 7), *moments) == [0, 1, 0.5]


def test_without_a_year_any_year_fits() -> None:
    assert near(When(None, 7, 3), *(datetime(year, 7, 4, tzinfo=UTC) for year in (2019, 2024))) == [1, 1]
    assert near(When(None, 2, 29), datetime(2023, 3, 1, tzinfo=UTC), datetime(2024, 3, 1, tzinfo=UTC)) == [0, 1]


def test_a_clock_that_was_wrong_by_centuries_does_no_harm() -> None:
    moments = (datetime(1, 1, 2, tzinfo=UTC), datetime(2024, 7, 3, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC))
    assert near(When(None, 7, 3), *moments)[1] in (0, 1)
    assert near(When(2024, 7, 3), *moments) == [0, 1, 0]


def test_no_turns_and_no_dates() -> None:
    assert nearness([When(2023)], np.array([], np.int64)).tolist() == []
    assert nearness([], np.array([5])).tolist() == [0]


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("Was habe ich am 3. Juli 2023 erzählt?", When(2023, 7, 3)),
        ("Wohin sind wir im Dezember 2022 gefahren?", When(2022, 12)),
        ("Qu'est-ce que j'ai dit le 1er août 2023 ?", When(2023, 8, 1)),
        ("Où étions-nous en février ?", When(None, 2)),
        ("¿Qué compré el 14 de febrero de 2024?", When(2024, 2, 14)),
        ("¿Adónde fuimos en septiembre de 2023?", When(2023, 9)),
        ("Cosa ho detto il 5 maggio 2023?", When(2023, 5, 5)),
        ("Dove siamo andati a luglio?", When(None, 7)),
        ("O que eu disse em 7 de março de 2023?", When(2023, 3, 7)),
        ("Para onde fomos em outubro?", When(None, 10)),
        ("¿Qué hicimos en julio?", When(None, 7)),
        ("Was war im Mai?", When(None, 5)),
    ],
)
def test_dates_in_other_languages(question: str, expected: When) -> None:
    assert find_dates(question, datetime(2026, 1, 1, tzinfo=UTC)) == (expected,)


def test_words_that_are_not_months_are_not_dates() -> None:
    for text in ("Put mayo on it?", "Is there life on Mars?", "What did Mai say?", "Where does Abril live?"):
        assert not find_dates(text, datetime(2026, 1, 1, tzinfo=UTC)), text
