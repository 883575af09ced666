"""A provider on this machine, and stores whose models are served by it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import palaver
from palaver import Store
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
def opened(provider: LoopbackProvider, tmp_path: Path) -> Opener:
    """`async with opened(model="chat") as store`: always the same file, no worker unless asked for."""

    @asynccontextmanager
    async def open_store(**options: Any) -> AsyncIterator[Store]:
        generate = {**FAST, **options.pop("generate", {})}
        given = {"user": "ada", "worker": False, "models": provider.models(), **options}
        async with palaver.open(f"sqlite:///{tmp_path}/chat.db", generate=generate, **given) as store:
            yield store

    return open_store
