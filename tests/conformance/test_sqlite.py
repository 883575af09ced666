"""The published guarantees, on a real SQLite file."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from palaver.testing import GUARANTEES, Database, DatabaseAt, Guarantee, check


@pytest.mark.parametrize("guarantee", GUARANTEES, ids=str)
async def test_sqlite_keeps(guarantee: Guarantee, tmp_path: Path) -> None:
    await guarantee.function(DatabaseAt(f"sqlite:///{tmp_path}/chat.db"))


def test_every_guarantee_is_one_sentence_with_a_name_of_its_own() -> None:
    assert len({str(one) for one in GUARANTEES}) == len(GUARANTEES)
    assert [one.name for one in GUARANTEES if not one.docstring.endswith(".") or "\n" in one.docstring] == []


async def test_the_kit_reports_what_held_and_what_did_not(tmp_path: Path) -> None:
    @asynccontextmanager
    async def fresh() -> AsyncIterator[Database]:
        yield DatabaseAt(f"sqlite:///{tmp_path}/chat.db")

    async def lies(db: Database) -> None:
        async with db.open() as store:
            assert (await store.stats()).conversations == 7, "there are none"

    broken = Guarantee("lies", "Seven conversations come with every database.", lies, "jokes")
    lines: list[str] = []
    report = await check(fresh, guarantees=[GUARANTEES[0], broken], say=lines.append)

    assert not report.ok
    assert report.held == [GUARANTEES[0]]
    assert [result.guarantee for result in report.broken] == [broken]
    assert lines[-1] == str(report) == "1 of 2 guarantees held"
    assert "there are none" in lines[1]
