"""A real server on a free port of this machine, and a real client."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI

from palaver.conversations.api_keys import create_key
from palaver.model import Scope
from palaver.server.app import create_app
from palaver.server.process import KeepAliveProtocol
from palaver.server.settings import ServerSettings
from palaver.server.web.pages import STATIC
from tests.support import postgres_server
from tests.support.postgres_server import Server, migrate_for_tests

USUAL = "read write generate"  # the rights of a key
PATIENCE = 120.0  # seconds, for a machine that has much else to do


@dataclass
class Running:
    """A server that runs, and clients of it."""

    url: str
    app: FastAPI
    settings: ServerSettings
    loop: asyncio.AbstractEventLoop

    def client(self, key: str | None = None, **options: Any) -> httpx.Client:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE, **options)

    def do(self, work: Any) -> Any:
        """Run a coroutine on the server's own loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE)

    def key(self, tenant: str = "acme", user: str | None = "ada", rights: str = USUAL, **more: Any) -> str:
        store = self.app.state.services.store.scoped(Scope.of(tenant, None))
        made = create_key(store, "test", user=user, rights=frozenset(rights.split()), **more)
        return self.do(made)[0]


@contextmanager
def running(
    settings: ServerSettings, *, protocol: type[KeepAliveProtocol] = KeepAliveProtocol, web: Path = STATIC
) -> Iterator[Running]:
    app = create_app(settings, web)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    loops: list[asyncio.AbstractEventLoop] = []
    ready = threading.Event()

    class Announcing(uvicorn.Server):
        async def startup(self, sockets: Any = None) -> None:
            loops.append(asyncio.get_running_loop())
            await super().startup(sockets)
            ready.set()

    config = uvicorn.Config(
        app,
        http=protocol,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=2,
    )
    server = Announcing(config)

    thread = threading.Thread(target=asyncio.run, args=(server.serve([listener]),), daemon=True)
    thread.start()
    ready.wait(PATIENCE)
    assert server.started, "the server did not start"
    try:
        yield Running(f"http://127.0.0.1:{listener.getsockname()[1]}", app, settings, loops[0])
    finally:
        loops[0].call_soon_threadsafe(app.state.services.begin_shutdown)
        server.should_exit = True
        thread.join(PATIENCE)


@pytest.fixture
def server_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """SQLite; what is about more than HTTP asks for every engine instead, a test by the mark ON_BOTH."""
    if getattr(request, "param", "sqlite") == "sqlite":
        return f"sqlite:///{tmp_path}/server.db?synchronous=NORMAL"
    url: str = request.getfixturevalue("postgres_url")
    return url


ON_BOTH = pytest.mark.parametrize("server_url", ["sqlite", "postgres"], indirect=True)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def shared_url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A database for all tests of a module, on each engine in turn. Files that a server keeps stay in its folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder := tmp_path_factory.mktemp("shared"))
        if request.param == "sqlite":
            yield f"sqlite:///{folder}/server.db?synchronous=NORMAL"
            return
        postgres: Server = request.getfixturevalue("postgres")
        template = asyncio.run(postgres_server.migrated_template(postgres, "palaver", migrate_for_tests))
        name = asyncio.run(postgres_server.new_database(postgres, template))
        yield postgres_server.as_application(postgres.at(name))
        asyncio.run(postgres_server.drop_database(postgres, name))


@pytest.fixture
def settings(server_url: str, tmp_path: Path) -> Callable[..., ServerSettings]:
    def make(**given: Any) -> ServerSettings:
        return ServerSettings(url=server_url, **{"embedder": "none", "files": str(tmp_path / "files"), **given})

    return make


@pytest.fixture
def server(settings: Callable[..., ServerSettings]) -> Iterator[Running]:
    with running(settings()) as one:
        yield one


@pytest.fixture
def client(server: Running) -> Iterator[httpx.Client]:
    with server.client() as one:
        yield one


@pytest.fixture
def talk(client: httpx.Client) -> str:
    """The path of a conversation."""
    return f"/api/conversations/{ok(client.post('/api/conversations', json={}))['id']}"


def ok(response: httpx.Response, status: int | None = None) -> Any:
    assert response.status_code == status if status else response.is_success, response.text
    return response.json() if response.content else None


@dataclass(frozen=True)
class Sent:
    """One server-sent event."""

    kind: str
    data: Any
    id: str | None = None


def events(response: httpx.Response) -> Iterator[Sent]:
    """The events of a stream, as a browser would read them."""
    fields: dict[str, str] = {}
    for line in response.iter_lines():
        if line.startswith(":"):
            continue
        if not line:
            if "data" in fields:
                yield Sent(fields.get("event", "message"), json.loads(fields["data"]), fields.get("id"))
            fields = {}
            continue
        name, _, value = line.partition(":")
        fields[name] = value.removeprefix(" ")


def until(stream: Iterator[Sent], kind: str) -> list[Sent]:
    """Everything up to the first event of that kind."""
    found = []
    for one in stream:
        found.append(one)
        if one.kind == kind:
            return found
    raise AssertionError(f"the stream ended without {kind}: {[one.kind for one in found]}")


def text_of(sent: list[Sent]) -> str:
    return "".join(one.data["text"] for one in sent if one.kind == "delta")
