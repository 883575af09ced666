"""Tests run without the local embedder unless they ask for it: loading it takes longer than most of them."""

from __future__ import annotations

import gc
import signal
import ssl
from collections.abc import AsyncIterator, Iterator
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support import marks, memory_files, postgres_server
from tests.support.examples import load_profiles
from tests.support.postgres_server import Server, migrate_for_tests

# Before anything imports them: the guarantees are asserts, and a broken one should say what it found.
pytest.register_assert_rewrite("palaver.testing.guarantees", "palaver.testing.kit")

import palaver.conversations.opening  # noqa: E402

pytest_plugins = ["tests.support.both_engines"]
ROOT = Path(__file__).parents[1]
STARTED = pytest.StashKey[list[str]]()

load_profiles()

# Each HTTP client reads a file of trusted certificates, which takes longer than many a test. Nothing here uses TLS, and
# the clients of a process share what the first of them has read.
read_certificates = ssl.create_default_context
share_certificates = cache(ssl.create_default_context)


def trust(*args: Any, **options: Any) -> ssl.SSLContext:
    return share_certificates(*args, **options) if options.get("cafile") else read_certificates(*args, **options)


ssl.create_default_context = trust  # type: ignore[assignment]


@pytest.hookimpl(tryfirst=True)  # before -m looks at them
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marks.add_marks(items)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Iterator[None]:
    """Collect garbage only after the tests are collected, and then leave their million objects out of it."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Where processes are left out, a test that starts one without its mark is found."""
    started = item.config.stash.get(STARTED, [])
    started.clear()
    yield
    assert not started, f"this test starts a process: mark it with `process` ({started[0][:200]})"


@pytest.fixture(autouse=True)
def no_embedder_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(palaver.conversations.opening, "AUTO_EMBEDDER", "none")


# ---- Postgres: one server for a run, started when the first test wants it; a database for each test -----------------


def pytest_configure(config: pytest.Config) -> None:
    if "not process" in config.option.markexpr:
        marks.note_processes(config.stash.setdefault(STARTED, []))
    if not hasattr(config, "workerinput"):
        memory_files.use_memory()
        postgres_server.open_home()
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # a run that is terminated still stops the server


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


@pytest.fixture
async def postgres_database(postgres: Server) -> AsyncIterator[str]:
    """The superuser's address of a migrated database."""
    async with postgres_server.copied_database(postgres, "palaver", migrate_for_tests) as url:
        yield url
    name = urlsplit(url).path.removeprefix("/")
    assert not (ROOT / f"{name}-files").exists(), "this test leaves attachments in the tree: open its store with files="


@pytest.fixture
def postgres_url(postgres_database: str) -> str:
    """The same database, as an application would open it."""
    return postgres_server.as_application(postgres_database)


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A fresh database, on each engine in turn."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/chat.db?synchronous=NORMAL"
    url: str = request.getfixturevalue("postgres_url")
    return url
