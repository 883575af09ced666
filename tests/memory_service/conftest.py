"""A store on a real file, without a worker of its own: `settle()` does the work, so that a test knows when."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import palaver
from palaver import Store

from .helpers import url


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with palaver.open(url(tmp_path), embedder=None, worker=False) as store:
        yield store
