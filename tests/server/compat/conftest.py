"""A running server whose model is on this machine, and the real SDKs in front of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from palaver import Turn
from palaver.server.settings import ServerSettings
from palaver.testing.providers import LoopbackProvider
from tests.server.conftest import Running, running

FAST = {"titles": False, "retry_pause": 0.001}


# Tests of storage run on each engine; tests of a protocol, on the one that starts faster.
on_each_engine = pytest.mark.parametrize("server_url", ["sqlite", "postgres"], indirect=True)


@pytest.fixture(autouse=True)
def on_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def server_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if getattr(request, "param", "sqlite") == "sqlite":
        return f"sqlite:///{tmp_path}/chat.db?synchronous=NORMAL"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture
def provider() -> Iterator[LoopbackProvider]:
    with LoopbackProvider() as one:
        yield one


@pytest.fixture
def settings(server_url: str, provider: LoopbackProvider) -> Callable[..., ServerSettings]:
    def make(**given: Any) -> ServerSettings:
        generate = {**FAST, **given.pop("generate", {})}
        more = {"model": "chat", "models": provider.models(), "embedder": "none", "files": "files", **given}
        # A script has no answers for the model calls of background work.
        return ServerSettings(url=server_url, generate=generate, **{"extractor_model": "none", **more})

    return make


@pytest.fixture
def server(settings: Callable[..., ServerSettings]) -> Iterator[Running]:
    with running(settings()) as one:
        yield one


@pytest.fixture
def gpt(server: Running) -> Iterator[openai.OpenAI]:
    with gpt_of(server) as client:
        yield client


@pytest.fixture
def claude(server: Running) -> Iterator[anthropic.Anthropic]:
    with claude_of(server) as client:
        yield client


def gpt_of(server: Running, key: str | None = None, **options: Any) -> openai.OpenAI:
    """OpenAI's own client. It must have a key; where none is needed, any will do."""
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key=key or "sk-any", **{"max_retries": 0, **options})


def claude_of(server: Running, key: str | None = None, **options: Any) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=server.url, api_key=key or "sk-any", **{"max_retries": 0, **options})


def turns_of(server: Running, conversation: str, **which: Any) -> list[Turn]:
    """Return the stored thread, without any protocol."""

    async def read() -> list[Turn]:
        store = server.app.state.services.store
        try:
            talk = await store.get(conversation)
        except LookupError:
            talk = await store.find(conversation)
        await talk.verify()
        found: list[Turn] = await talk.history(1_000, **which)
        return found

    found: list[Turn] = server.do(read())
    return found


def thread(server: Running, conversation: str, **which: Any) -> list[tuple[str, str]]:
    return [(turn.role, turn.text) for turn in turns_of(server, conversation, **which)]


def conversations(server: Running) -> int:
    async def count() -> int:
        return len((await server.app.state.services.store.conversations()).items)

    return int(server.do(count()))
