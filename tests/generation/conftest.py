"""A provider on this machine, and stores whose models are served by it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import palaver
from palaver import Scope, Store
from palaver.engines.postgres.transports import open_connection
from palaver.testing.providers import LoopbackProvider

NAMES = ("chat", "responses", "messages")
FAST = {"retry_pause": 0.001}


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackProvider]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with LoopbackProvider() as provider:
        yield provider


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


Opener = Callable[..., AbstractAsyncContextManager[Store]]


@pytest.fixture
def opened(provider: LoopbackProvider, database_url: str, tmp_path: Path) -> Opener:
    """`async with opened(model="chat") as store`: always the same database, on each engine in turn; no worker unless
    asked for."""

    @asynccontextmanager
    async def open_store(**options: Any) -> AsyncIterator[Store]:
        generate = {**FAST, **options.pop("generate", {})}
        person = Scope(options.pop("tenant", "default"), options.pop("user", "ada")).with_rights("system", "act_for")
        given = {"scope": person, "worker": False, "models": provider.models(), "files": tmp_path / "files", **options}
        async with palaver.open(database_url, generate=generate, **given) as store:
            yield store

    return open_store


Traces = Callable[[str], Awaitable[list[str]]]


@pytest.fixture
def traces(request: pytest.FixtureRequest, database_url: str, tmp_path: Path) -> Traces:
    """Where a word still is: in which files, and on Postgres in which tables."""

    async def find(word: str) -> list[str]:
        files = [path for path in tmp_path.rglob("*") if path.is_file() and word.encode() in path.read_bytes()]
        found = [path.name for path in files]
        if database_url.startswith("sqlite"):
            return found
        async with open_connection(request.getfixturevalue("postgres_database")) as admin:
            tables = await admin.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'palaver'")
            for (table,) in tables:
                if await admin.fetchval(f"SELECT count(*) FROM palaver.{table} t WHERE strpos(t::text, $1) > 0", word):
                    found.append(table)
        return found

    return find
