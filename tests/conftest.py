"""Tests run without the local embedder unless they ask for it: loading it takes longer than most of them."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests import postgres_server
from tests.postgres_server import Server

import palaver.store


@pytest.fixture(autouse=True)
def no_embedder_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(palaver.store, "AUTO_EMBEDDER", "none")


# ---- Postgres: one server for a run, started when the first test wants it; a database for each test -----------------


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        postgres_server.open_home()


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        postgres_server.close_home()


@pytest.fixture(scope="session")
def postgres() -> Server:
    """The server, with its superuser's address."""
    try:
        return postgres_server.shared()
    except postgres_server.NoPostgres as reason:
        pytest.skip(str(reason))


@pytest.fixture
async def empty_database(postgres: Server) -> AsyncIterator[str]:
    """The superuser's address of a database with nothing in it."""
    name = await postgres_server.new_database(postgres)
    yield postgres.at(name)
    await postgres_server.drop_database(postgres, name)
