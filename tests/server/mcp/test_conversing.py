"""The SDK's client holds a conversation with memory: over HTTP and over stdin and stdout, on every engine."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import httpx
import pytest
from mcp.client.client import Client

from palaver.server.settings import ServerSettings
from tests.server.conftest import Running, running
from tests.server.mcp.helpers import ERAS, call, over_http, over_stdio
from tests.server.processes import serving, wait_until


async def first_half(client: Client) -> str:
    """A person says something, in one conversation; the assistant keeps a preference. The conversation's id."""
    told = await call(
        client, "append", conversation="trip/7", role="user", text="I'm allergic to peanuts.", actor="ada"
    )
    await call(client, "append", conversation="trip/7", role="assistant", text="Noted: no peanuts for you.")
    await call(client, "append", conversation="trip/7", role="user", text="We leave for Lisbon on Friday.", actor="ada")
    await call(client, "remember", text="Ada likes window seats.", conversation="trip/7", note="requirements")
    return str(told["conversation"])


async def second_half(client: Client, talk: str) -> None:
    """Later, elsewhere: it is all there."""
    found = await call(client, "recall", query="peanuts allergy")
    best = found["pieces"][0]
    assert (best["conversation"], best["who"], best["text"]) == (talk, "ada", "I'm allergic to peanuts.")
    assert best["turn"]
    assert best["when"]
    assert found["tokens"] <= 2_000
    assert [one["conversation"] for one in (await call(client, "search_conversations", query="Lisb"))["found"]] == [
        talk
    ]
    history = await call(client, "history", conversation="trip/7")
    assert [one["role"] for one in history["turns"]] == ["user", "assistant", "user", "user"]
    context = await call(client, "build_context", conversation=talk, message="Which seat should I book?")
    assert "window seats" in json.dumps(context["messages"])
    assert context["tokens"] <= 4_000
    await call(client, "extract_facts", conversation=talk)
    assert (await call(client, "summarize", conversation=talk))["summaries"]
    assert (await call(client, "compact", conversation=talk))["summaries"] >= 0
    page = await client.read_resource(f"palaver://conversations/{talk}")
    read = json.loads(page.contents[0].text)
    assert read["messages"][0]["content"] == "I'm allergic to peanuts."
    prompt = await client.get_prompt("continue_conversation", {"conversation": "trip/7", "message": "Go on."})
    assert prompt.messages[-1].content.text.endswith("Go on.")


@pytest.fixture
def server(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.chdir(tmp_path)
    with running(ServerSettings(url=database_url, embedder="none")) as one:
        yield one


async def test_over_http_in_every_era(server: Running) -> None:
    """Begun by a client of one version, continued by one of another."""
    async with over_http(server.url, era=ERAS[0]) as client:
        assert client.protocol_version == "2026-07-28"
        talk = await first_half(client)
    async with over_http(server.url, era=ERAS[1]) as client:
        assert client.protocol_version == "2025-11-25"
        await second_half(client, talk)


@pytest.mark.process
async def test_over_stdio(database_url: str, tmp_path: Path) -> None:
    """Two processes, one after another, as an assistant starts them."""
    async with over_stdio(database_url, tmp_path, "--user", "ada") as client:
        talk = await first_half(client)
    async with over_stdio(database_url, tmp_path, "--user", "ada") as client:
        await second_half(client, talk)


HELLO = {
    "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "by hand", "version": "1"},
}  # fmt: skip


def post(url: str, method: str, params: dict[str, object], **headers: str) -> httpx.Response:
    """The request of a client of 2025."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    accept = {"Accept": "application/json, text/event-stream"}
    return httpx.post(f"{url}/mcp", json=body, headers=accept | headers, timeout=120)


async def test_a_server_that_was_killed_is_found_again(database_url: str, tmp_path: Path) -> None:
    """Acknowledged turns are stored. A current client keeps calling; an older one gets the error that its session is
    over, and starts a new one."""
    with serving(database_url, tmp_path) as process:
        async with over_http(process.url) as today:
            talk = await first_half(today)
            session = post(process.url, "initialize", HELLO).headers["mcp-session-id"]
            os.kill(process.child.pid, signal.SIGKILL)
            process.child.wait()
            with serving(database_url, tmp_path, port=int(process.url.rsplit(":", 1)[1])):
                await second_half(today, talk)
                assert post(process.url, "ping", {}, **{"Mcp-Session-Id": session}).status_code == 404
                async with over_http(process.url, era="legacy") as older:
                    assert (await call(older, "recall", query="peanuts"))["pieces"]


@pytest.mark.filterwarnings("ignore:resources/")  # the SDK calls the older way old
async def test_a_server_that_is_asked_to_end_does_not_wait_for_open_streams(tmp_path: Path) -> None:
    with serving(f"sqlite:///{tmp_path}/chat.db", tmp_path, shutdown_seconds=60) as process:
        async with over_http(process.url, era="legacy") as older, over_http(process.url) as today:
            talk = await first_half(older)
            uri = f"palaver://conversations/{talk}"
            await older.subscribe_resource(uri)
            async with today.listen(resource_subscriptions=[uri]) as news:
                process.child.send_signal(signal.SIGTERM)
                assert [one async for one in news] == []  # it ends with a word, not with a broken line
            wait_until(lambda: process.child.poll() is not None, "the end of the server")
            assert process.child.returncode in (0, -signal.SIGTERM)
