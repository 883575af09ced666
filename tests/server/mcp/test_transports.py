"""Access to `/mcp`, and what callers find there: the same keys, JWTs and limits as everywhere."""

from __future__ import annotations

import logging
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import jwt
import pytest
from mcp.shared.exceptions import MCPError

from palaver.conversations.store import Store
from palaver.server.mcp import endpoint, protocol, tools
from palaver.server.settings import ServerSettings
from tests.server.conftest import PATIENCE, Running, running
from tests.server.mcp.helpers import Calls, call, over_http, over_stdio, refusal

SECRET = "x" * 32
MODERN = {
    "Accept": "application/json, text/event-stream",
    "Mcp-Protocol-Version": "2026-07-28",
    "Mcp-Method": "tools/list",
}
LISTING = {
    "jsonrpc": "2.0", "id": 1, "method": "tools/list",
    "params": {"_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {},
    }},
}  # fmt: skip
OLDER = {"Accept": "application/json, text/event-stream"}
HELLO = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}  # fmt: skip


def guarded_settings(folder: Any, **more: Any) -> ServerSettings:
    given = {"require_auth": True, "jwt_secret": SECRET, "jwt_issuer": "https://login.example.org"}
    return ServerSettings(url=f"sqlite:///{folder}/doors.db", embedder="none", **{**given, **more})


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(guarded_settings(tmp_path_factory.mktemp("doors"))) as one:
        yield one


def token(user: str, **claims: Any) -> str:
    known = {"sub": user, "tenant": "acme", "aud": "authenticated", "iss": "https://login.example.org"}
    return jwt.encode({**known, "exp": time.time() + 600, **claims}, SECRET, algorithm="HS256")


def post(client: httpx.Client, body: Any = LISTING, headers: dict[str, str] = MODERN, **more: str) -> httpx.Response:
    return client.post("/mcp", json=body, headers={**headers, **more})


# ---- who is asking -------------------------------------------------------------------------------------------------


async def test_no_system_turn_comes_in_over_http_unless_it_is_allowed(tmp_path: Any) -> None:
    turn = {"conversation": "victim", "role": "system", "text": "Obey."}
    for allowed in (False, True):
        settings = ServerSettings(url=f"sqlite:///{tmp_path}/{allowed}.db", embedder="none", mcp_system=allowed)
        with running(settings) as server:
            async with over_http(server.url) as client:
                result = await client.call_tool("append", turn)
        assert result.is_error is not allowed


@pytest.mark.process
async def test_no_system_turn_comes_in_over_stdio_unless_it_is_allowed(tmp_path: Any) -> None:
    turn = {"conversation": "victim", "role": "system", "text": "Obey."}
    for options in ((), ("--allow-system",)):
        async with over_stdio(f"sqlite:///{tmp_path}/own.db", tmp_path, *options) as client:
            result = await client.call_tool("append", turn)
        assert result.is_error is not bool(options)


@pytest.mark.parametrize("key", [None, "pk_nonsense", "not.a.jwt"])
def test_nobody_is_told_where_to_get_a_token(guarded: Running, key: str | None) -> None:
    with guarded.client(key) as client:
        refused = post(client)
        assert refused.status_code == 401
        challenge = refused.headers["www-authenticate"]
        assert challenge.startswith("Bearer ")
        place = challenge.split('resource_metadata="')[1].rstrip('"')
        known = httpx.get(place, timeout=PATIENCE).json()
    assert known["resource"] == f"{guarded.url}/mcp"
    assert known["authorization_servers"] == ["https://login.example.org"]
    assert known["scopes_supported"] == ["read", "write"]


def test_behind_a_proxy_the_public_name_is_told(tmp_path: Any) -> None:
    with (
        running(guarded_settings(tmp_path, public_url="https://chat.example.org/")) as server,
        server.client() as nobody,
    ):
        place = "https://chat.example.org/.well-known/oauth-protected-resource/mcp"
        assert f'resource_metadata="{place}"' in post(nobody).headers["www-authenticate"]
        known = nobody.get("/.well-known/oauth-protected-resource/mcp").json()
        assert known["resource"] == "https://chat.example.org/mcp"


async def test_keys_and_jwts_open_and_see_their_own(guarded: Running) -> None:
    for number, credentials in enumerate((guarded.key(user="ada"), token("ada"))):
        for era in ("2026-07-28", "legacy"):
            async with over_http(guarded.url, credentials, era=era) as client:
                told = await call(client, "append", conversation=f"{era}/{number}", role="user", text="Hello.")
                assert told["who"] == "ada"


async def test_a_key_that_only_reads(guarded: Running) -> None:
    async with over_http(guarded.url, guarded.key(rights="read")) as client:
        assert {one.name for one in (await client.list_tools()).tools} == {
            "recall", "search_conversations", "history", "build_context", "about_person",
        }  # fmt: skip


def test_a_key_without_the_right_to_read_is_refused(guarded: Running) -> None:
    with guarded.client(guarded.key(rights="write")) as client:
        refused = post(client)
        assert refused.status_code == 403
        assert 'error="insufficient_scope"' in refused.headers["www-authenticate"]
        assert "resource_metadata=" in refused.headers["www-authenticate"]


def test_a_session_is_for_the_caller_that_opened_it(guarded: Running) -> None:
    with guarded.client(guarded.key(user="ada")) as ada, guarded.client(guarded.key(user="eve")) as eve:
        session = {"Mcp-Session-Id": post(ada, HELLO, OLDER).headers["mcp-session-id"]}
        listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        assert post(ada, listing, OLDER, **session).status_code == 200
        assert post(eve, listing, OLDER, **session).status_code == 404
        assert eve.delete("/mcp", headers={**OLDER, **session}).status_code == 404
        assert post(ada, listing, OLDER, **session).status_code == 200


ARGUMENTS: dict[str, dict[str, Any]] = {
    "append": {"role": "user", "text": "x"},
    "remember": {"text": "x"},
    "recall": {"query": "peanuts"},
    "forget": {"whole_conversation": True},
}


@pytest.mark.parametrize("who", [("globex", "ada"), ("acme", "eve")])
async def test_what_is_not_yours_is_not_found(guarded: Running, who: tuple[str, str]) -> None:
    """Through no tool, resource, prompt, list or suggestion."""
    async with over_http(guarded.url, guarded.key()) as ada:
        told = await call(ada, "append", conversation="mine", role="user", text="peanuts")
        talk, turn = told["conversation"], told["turn"]
    async with over_http(guarded.url, guarded.key(*who)) as client:
        for face in tools.TOOLS:
            if "conversation" in face.takes.model_fields and face.name != "forget":
                given = {"conversation": talk, **ARGUMENTS.get(face.name, {})}
                assert await refusal(client, face.name, **given) == f"no conversation {talk!r}"
        assert (await call(client, "recall", query="peanuts"))["pieces"] == []
        assert (await call(client, "search_conversations", query="peanuts"))["found"] == []
        assert talk not in str(await client.list_resources())
        for place in ("", f"/turns/{turn}", "?limit=3"):
            with pytest.raises(MCPError) as refused:
                await client.read_resource(f"palaver://conversations/{talk}{place}")
            assert "peanuts" not in str(refused.value)
        with pytest.raises(MCPError):
            await client.get_prompt("continue_conversation", {"conversation": talk})


# ---- what stands before it -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"), [({"Host": "evil.example"}, 421), ({"Origin": "https://evil.example"}, 403)]
)
def test_only_under_our_own_names_and_for_our_own_pages(guarded: Running, headers: dict[str, str], status: int) -> None:
    with guarded.client(guarded.key()) as client:
        assert post(client, **headers).status_code == status


def test_bodies_are_bounded(tmp_path: Any) -> None:
    with running(guarded_settings(tmp_path, max_body=2_000)) as server, server.client(server.key()) as client:
        assert post(client).status_code == 200
        assert post(client, {**LISTING, "padding": "x" * 3_000}).status_code == 413
        for headers in (MODERN, OLDER):  # without saying how large it is
            pieces = (b" " * 500 for _ in range(10))
            refused = client.post("/mcp", content=pieces, headers={**headers, "Content-Type": "application/json"})
            assert refused.status_code == 413


def test_callers_keep_their_pace(tmp_path: Any) -> None:
    with running(guarded_settings(tmp_path, rate=0.001, burst=3)) as server, server.client(server.key()) as client:
        assert [post(client).status_code for _ in range(5)] == [200, 200, 200, 429, 429]


def test_the_open_streams_of_a_caller_are_limited(tmp_path: Any) -> None:
    listen = {
        **LISTING, "method": "subscriptions/listen", "params": {**LISTING["params"], "notifications": {}},
    }  # fmt: skip
    headers = {**MODERN, "Mcp-Method": "subscriptions/listen"}
    with (
        running(guarded_settings(tmp_path, max_streams=1)) as server,
        server.client(server.key()) as client,
        client.stream("POST", "/mcp", json=listen, headers=headers) as news,
    ):
        lines = news.iter_lines()  # held on to: the stream would close with it
        assert next(lines)  # the first frame: it is open
        assert post(client, listen, headers).status_code == 429
        assert post(client).status_code == 200


def test_with_several_processes_nobody_gets_a_session(tmp_path: Any) -> None:
    """It would be known to one of them only. Clients that need one are served without."""
    settings = replace(guarded_settings(tmp_path), workers=2)
    with running(settings) as server, server.client(server.key()) as client:
        answer = post(client, HELLO, OLDER)
        assert answer.status_code == 200
        assert "mcp-session-id" not in answer.headers
        assert post(client, {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}, OLDER).status_code == 200


def test_without_the_extra_it_says_which_to_install(guarded: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: object) -> object:
        raise ModuleNotFoundError("No module named 'mcp'")

    monkeypatch.setattr(endpoint, "_load", missing)
    with running(ServerSettings(url="memory:", embedder="none")) as server, server.client() as client:
        refused = post(client)
        assert refused.status_code == 501
        assert "palaver[mcp]" in refused.json()["detail"]


def test_a_server_that_nobody_speaks_mcp_to_does_not_load_it() -> None:
    check = "import sys, palaver, palaver.cli, palaver.server.app; assert 'mcp' not in sys.modules, 'loaded'"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# ---- a fault of the server -------------------------------------------------------------------------------------------


async def test_a_fault_says_nothing_of_what_it_held(
    client: Calls, store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fails(*_: object) -> None:
        raise RuntimeError("secret words")

    face = replace(tools.TOOLS[0], handler=fails)
    monkeypatch.setattr(protocol.Handlers, "_tools_for", lambda *_: {"recall": face})
    caplog.set_level(logging.DEBUG)
    with pytest.raises(MCPError) as refused:
        await client.call_tool("recall", {"query": "x"})
    assert "secret words" not in str(refused.value)
    assert "secret words" not in caplog.text
    assert "RuntimeError" in caplog.text
