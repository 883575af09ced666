"""Subscribers are notified of every change by anyone, and of nothing that they may not read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from mcp_types import ResourceUpdatedNotification

import palaver
from palaver.conversations.api_keys import hash_of, revoke_key
from palaver.model import Scope
from palaver.ports.engine import KEY_ID
from palaver.server.settings import ServerSettings
from tests.server.conftest import Running, ok, running
from tests.server.mcp.helpers import PATIENCE, call, in_process, over_http, over_stdio

pytestmark = pytest.mark.filterwarnings("ignore:resources/")  # the SDK calls the older way old


class Heard:
    """The notifications of a client of 2025, on its own stream."""

    def __init__(self) -> None:
        self.news: asyncio.Queue[str] = asyncio.Queue()

    async def __call__(self, message: Any) -> None:
        if isinstance(message, ResourceUpdatedNotification):
            await self.news.put(str(message.params.uri))

    async def next(self) -> str:
        return await asyncio.wait_for(self.news.get(), PATIENCE)


@pytest.fixture
def server(database_url: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    monkeypatch.chdir(tmp_path)
    given = {"require_auth": True, "jwt_secret": "x" * 32, "heartbeat": 0.2}
    with running(ServerSettings(url=database_url, embedder="none", **given)) as one:
        yield one


async def said(server: Running, key: str, talk: str, text: str) -> None:
    """Store a turn over HTTP, into the same log."""

    def post() -> None:
        with server.client(key) as client:
            ok(client.post(f"/api/conversations/{talk}/turns", json={"role": "user", "content": text}))

    await asyncio.to_thread(post)


async def begun(client: Client) -> tuple[str, str]:
    talk = (await call(client, "append", conversation="trip", role="user", text="Hello."))["conversation"]
    return talk, f"palaver://conversations/{talk}"


async def test_changes_are_told_in_every_era(server: Running) -> None:
    key, stranger, heard = server.key(), server.key(user="eve"), Heard()
    async with (
        over_http(server.url, key) as today,
        over_http(server.url, key, era="legacy", message_handler=heard) as older,
        over_http(server.url, stranger) as eve,
        over_http(server.url, stranger, era="legacy") as older_eve,
    ):
        talk, uri = await begun(today)
        await older.subscribe_resource(uri)
        async with today.listen(resource_subscriptions=[uri]) as news, eve.listen(resource_subscriptions=[uri]) as none:
            assert news.honored.resource_subscriptions == [uri]
            assert not none.honored.resource_subscriptions
            with pytest.raises(MCPError):
                await older_eve.subscribe_resource(uri)
            await said(server, key, talk, "We leave on Friday.")
            assert (await asyncio.wait_for(anext(aiter(news)), PATIENCE)).uri == uri
            assert await heard.next() == uri
        await older.unsubscribe_resource(uri)
        await said(server, key, talk, "Nobody hears this.")
        other = (await call(today, "append", conversation="other", role="user", text="Hello."))["conversation"]
        await older.subscribe_resource(f"palaver://conversations/{other}")
        await said(server, key, other, "But this.")
        assert await heard.next() == f"palaver://conversations/{other}"


@asynccontextmanager
async def revoked(server: Running) -> AsyncIterator[tuple[str, str, str, Any]]:
    """The owner's key, a conversation, its URI, and the news of it for a listener whose key has just been revoked."""
    owner, key = server.key(), server.key()
    async with over_http(server.url, owner) as ada:
        talk, uri = await begun(ada)
        async with over_http(server.url, key) as phone, phone.listen(resource_subscriptions=[uri]) as news:
            store = server.app.state.services.store.scoped(Scope.of("acme", None))
            server.do(revoke_key(store, hash_of(key).hex()[:KEY_ID]))
            yield owner, talk, uri, news


async def test_a_key_that_was_revoked_hears_no_more(server: Running) -> None:
    async with revoked(server) as (owner, talk, uri, news):
        # It ends by itself, at the next look: within a heartbeat.
        assert await asyncio.wait_for(_all(news), PATIENCE) in ([], [uri])
        await said(server, owner, talk, "For those who may.")


async def test_its_stream_ends_even_while_others_write(server: Running) -> None:
    async with revoked(server) as (owner, talk, uri, news):
        hearing = asyncio.create_task(_all(news))
        async with asyncio.timeout(PATIENCE):
            while not hearing.done():
                await said(server, owner, talk, "On and on.")
        assert set(await hearing) <= {uri}


async def _all(news: Any) -> list[str]:
    return [one.uri async for one in news]


async def test_the_end_of_a_conversation_is_told_and_ends_it() -> None:
    async with palaver.open("memory:", embedder="none") as store, in_process(store, with_forget=True) as client:
        talk, uri = await begun(client)
        async with client.listen(resource_subscriptions=[uri]) as news:
            await call(client, "forget", conversation=talk, whole_conversation=True)
            assert uri in await asyncio.wait_for(_all(news), PATIENCE)


@pytest.mark.process
async def test_over_stdio_another_process_is_heard_too(tmp_path: Any) -> None:
    url, heard = f"sqlite:///{tmp_path}/chat.db", Heard()
    async with over_stdio(url, tmp_path, era="legacy", message_handler=heard) as client:
        talk, uri = await begun(client)
        await client.subscribe_resource(uri)
        async with palaver.open(url, embedder="none") as store:
            await (await store.get(talk)).append("user", "From elsewhere.")
        assert await heard.next() == uri


async def test_the_subscriptions_of_a_connection_are_limited() -> None:
    async with palaver.open("memory:", embedder="none") as store, in_process(store, max_subscriptions=2) as client:
        uris = [f"palaver://conversations/{(await store.conversation(str(n))).id}" for n in range(4)]
        async with client.listen(resource_subscriptions=uris) as news:
            assert news.honored.resource_subscriptions == uris[:2]
