"""The published guarantees, on a real Postgres."""

from pathlib import Path

import pytest

from palaver.testing import GUARANTEES, DatabaseAt, Guarantee


@pytest.mark.parametrize("guarantee", GUARANTEES, ids=str)
async def test_postgres_keeps(guarantee: Guarantee, postgres_url: str, tmp_path: Path) -> None:
    await guarantee.function(DatabaseAt(postgres_url, files=tmp_path))
