"""Tests that run on both engines: mark them `both_engines` and use the fixture `engine`.

A test marked `sqlite_file` runs on SQLite alone; the Postgres form of one marked `long_on_postgres` is slow. The
store has no background worker: `settle()` does the work, so that a test knows when.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import palaver
from palaver import Store
from tests.support.memory import ELSEWHERE, url


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.definition.get_closest_marker("both_engines") is None:
        return
    only = metafunc.definition.get_closest_marker("sqlite_file")
    long = metafunc.definition.get_closest_marker("long_on_postgres")
    postgres = pytest.param("postgres", marks=pytest.mark.slow) if long else "postgres"
    metafunc.parametrize("engine", ["sqlite"] if only else ["sqlite", postgres], indirect=True)


@pytest.fixture
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Which engine `url(tmp_path)` leads to."""
    if request.param == "postgres":
        ELSEWHERE[tmp_path] = request.getfixturevalue("postgres_database")
    yield request.param
    ELSEWHERE.pop(tmp_path, None)


@pytest.fixture
async def store(engine: str, tmp_path: Path) -> AsyncIterator[Store]:
    async with palaver.open(url(tmp_path), files=tmp_path / "files", embedder=None, worker=False) as store:
        yield store
