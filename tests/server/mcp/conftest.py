"""A store for tools to work on."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import palaver
from palaver.conversations.store import Store
from tests.server.mcp.helpers import Calls


@pytest.fixture
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """In memory; a test that is about more than shapes asks for every engine: `@pytest.mark.usefixtures(...)`."""
    url = request.getfixturevalue("database_url") if "database_url" in request.fixturenames else "memory:"
    async with palaver.open(url, tenant="acme", user="ada", embedder="none", worker=False) as one:
        yield one


@pytest.fixture
def client(store: Store) -> Calls:
    return Calls(store, with_forget=True)
