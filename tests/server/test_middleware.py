"""Checks before every request: names, origins, sizes, rate, time, and what responses never show."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from palaver.conversations.internals import engine_of
from palaver.server.middleware import BodyLimitMiddleware
from palaver.server.process import KeepAliveProtocol
from palaver.server.settings import ServerSettings
from palaver.testing.providers import LoopbackProvider, Say
from tests.server.conftest import ON_BOTH, PATIENCE, Running, events, ok, running, until
from tests.server.processes import wait_until


def address(server: Running) -> tuple[str, int]:
    host, _, port = server.url.removeprefix("http://").partition(":")
    return host, int(port)


def raw(server: Running, data: bytes, *, more: bytes | None = None) -> bytes:
    """Return the server's response to bytes that no client would send."""
    with socket.create_connection(address(server), timeout=PATIENCE) as line:
        line.sendall(data)
        if more is not None:
            line.sendall(more)
        answer = b""
        while block := line.recv(65_536):
            answer += block
            if b"\r\n\r\n" in answer and b"Connection: close" not in data:
                break
        return answer


# ---- names and origins ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8484", "127.0.0.1.evil.example", "localhost.evil", ""])
def test_a_name_that_is_not_ours_is_refused(client: httpx.Client, host: str) -> None:
    """DNS rebinding: a page elsewhere whose name suddenly leads to loopback."""
    assert client.get("/api/conversations", headers={"Host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:9", "[::1]:8484", "LOCALHOST:1"])
def test_names_of_this_machine_are_ours(client: httpx.Client, host: str) -> None:
    assert client.get("/api/conversations", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:1", "file://"])
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_pages_of_other_origins_may_not_call(client: httpx.Client, origin: str, method: str) -> None:
    answer = client.request(method, "/api/conversations", headers={"Origin": origin, "Content-Type": "text/plain"})
    assert answer.status_code == 403
    assert "access-control-allow-origin" not in answer.headers


def test_our_own_page_and_named_origins_may(settings: Callable[..., ServerSettings]) -> None:
    with running(settings(origins=("https://app.example",))) as server, server.client() as client:
        assert client.post("/api/conversations", json={}, headers={"Origin": server.url}).status_code == 201
        headers = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
        asked = client.options("/api/conversations", headers=headers)
        assert asked.headers["access-control-allow-origin"] == "https://app.example"
        assert "access-control-allow-credentials" not in asked.headers


def test_two_hosts_are_none(server: Running) -> None:
    request = b"GET /api/conversations HTTP/1.1\r\nHost: localhost\r\nHost: evil\r\nConnection: close\r\n\r\n"
    assert raw(server, request).startswith(b"HTTP/1.1 400")


# ---- sizes and times -----------------------------------------------------------------------------------------------


@ON_BOTH
def test_a_body_that_says_it_is_too_large_is_not_read(settings: Callable[..., ServerSettings]) -> None:
    with running(settings(max_body=1_000)) as server:
        head = b"POST /api/conversations HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n"
        answer = raw(server, head + b"Connection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 413")
    assert b'"limit":1000' in answer


@ON_BOTH
def test_a_body_that_grows_too_large_is_cut_off(settings: Callable[..., ServerSettings]) -> None:
    def endless() -> Iterator[bytes]:
        for _ in range(100):
            yield b" " * 1_000

    with running(settings(max_body=10_000)) as server, server.client() as client:
        refused = client.post("/api/conversations", content=endless(), headers={"Content-Type": "application/json"})
        assert refused.status_code == 413


@ON_BOTH
def test_a_body_that_comes_too_slowly_is_given_up(settings: Callable[..., ServerSettings]) -> None:
    with running(settings(body_seconds=0.2)) as server:
        head = b"POST /api/conversations HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        answer = raw(server, head + b"Content-Length: 100\r\nConnection: close\r\n\r\n", more=b"{")
    assert answer.startswith(b"HTTP/1.1 408")


@pytest.mark.parametrize("path", ["/api/conversations", "/v1/chat/completions", "/v1/messages"])
def test_the_rest_of_a_body_that_was_given_up_is_not_waited_for(
    settings: Callable[..., ServerSettings], path: str
) -> None:
    with running(settings(body_seconds=0.2)) as server:
        answer = raw(server, f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{{".encode())
    assert answer.startswith(b"HTTP/1.1 408")
    assert b"\r\nconnection: close\r\n" in answer.lower()


async def test_the_time_before_the_server_reads_a_body_does_not_count(settings: Callable[..., ServerSettings]) -> None:
    """A server that waits for its database must not say that the client was slow."""

    async def slow_to_read(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.sleep(0.02)
        assert (await receive())["body"] == b"{}"
        await Response()(scope, receive, send)

    app = BodyLimitMiddleware(slow_to_read, settings(body_seconds=0.01))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test") as client:
        assert (await client.post("/api/conversations", content=b"{}")).status_code == 200


@pytest.mark.parametrize("path", ["/v1/chat/completions", "attachments"])
def test_hanging_up_in_the_middle_of_a_body_is_no_fault(
    server: Running, talk: str, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    caplog.set_level(logging.INFO, "palaver.server")
    path = path if path.startswith("/") else f"{talk}/{path}"
    with socket.create_connection(address(server), timeout=PATIENCE) as line:
        line.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{{".encode())
    lines = wait_until(lambda: [one for one in caplog.records if _is_of_a_body(one)], "the request in the log")
    assert [one.fields["status"] for one in lines] == [0]
    assert [one.getMessage() for one in caplog.records if one.levelno > logging.INFO] == []


def _is_of_a_body(record: logging.LogRecord) -> bool:
    told = getattr(record, "fields", {})
    return told.get("method") == "POST" and told["route"] != "/api/conversations"


@pytest.mark.parametrize(
    ("head", "more"),
    [
        (b"", b""),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n", b"X: "),
        (b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n", b"GET /"),
        (b"POST /api/conversations HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n", b"{"),
    ],
    ids="silence first-headers second-headers refused-body".split(),
)
def test_a_connection_that_never_becomes_a_request_is_closed(
    settings: Callable[..., ServerSettings], head: bytes, more: bytes
) -> None:
    class Impatient(KeepAliveProtocol):
        check_seconds = 0.1

    with (
        running(settings(), protocol=Impatient) as server,
        socket.create_connection(address(server), timeout=PATIENCE) as line,
    ):
        line.sendall(head + more)
        with suppress(ConnectionError):  # which is as good an end as any
            while line.recv(65_536):
                if more:
                    line.sendall(more[:1])


def test_readers_and_idle_connections_are_not_closed(settings: Callable[..., ServerSettings]) -> None:
    """Nor is one whose request was still on its way at the check before."""
    found: list[KeepAliveProtocol] = []

    class Recorded(KeepAliveProtocol):
        def connection_made(self, transport: Any) -> None:
            found.append(self)
            super().connection_made(transport)

    async def look_again() -> list[bool]:
        for one in found:
            one._check_connection(one)
            one._check_connection(one.cycle)
        return [one.transport.is_closing() for one in found]

    with (
        running(settings(), protocol=Recorded) as server,
        server.client() as client,
        server.client() as reader,
    ):
        talk = f"/api/conversations/{ok(client.post('/api/conversations', json={}))['id']}"
        with reader.stream("GET", f"{talk}/events") as response:
            stream = events(response)  # kept: letting go of it hangs up
            next(stream)
            assert server.do(look_again()) == [False, False]


def test_an_answer_that_takes_too_long_is_given_up_but_made(settings: Callable[..., ServerSettings]) -> None:
    go_on = threading.Event()
    with LoopbackProvider() as provider:
        provider.script(Say("At last.", hold=go_on))
        chosen = settings(model="chat", models=provider.models(), answer_seconds=2.0, generate={"titles": False})
        with running(chosen) as server, server.client() as client:
            talk = f"/api/conversations/{ok(client.post('/api/conversations', json={}))['id']}"
            assert client.post(f"{talk}/generate", json={"message": "?"}).status_code == 504
            with client.stream("GET", f"{talk}/events") as response:
                go_on.set()
                assert until(events(response), "commit")[-1].data["turn"]["content"] == "At last."


@pytest.mark.parametrize("rate_scope", ["server", "database"])
def test_callers_have_a_pace(settings: Callable[..., ServerSettings], rate_scope: str) -> None:
    chosen = settings(require_auth=True, jwt_secret="x" * 32, rate=0.001, burst=3, rate_scope=rate_scope)
    with (
        running(chosen) as server,
        server.client(server.key()) as client,
        server.client(server.key("globex")) as other,
    ):
        answers = [client.get("/api/conversations") for _ in range(4)]
        assert [one.status_code for one in answers] == [200, 200, 200, 429]
        assert int(answers[-1].headers["retry-after"]) >= 1
        assert other.get("/api/conversations").status_code == 200


def test_the_streams_of_a_caller_are_limited(settings: Callable[..., ServerSettings]) -> None:
    with running(settings(require_auth=True, jwt_secret="x" * 32, max_streams=1)) as server:
        key = server.key()
        with server.client(key) as client, server.client(key) as other:
            talk = f"/api/conversations/{ok(client.post('/api/conversations', json={}))['id']}"
            with client.stream("GET", f"{talk}/events") as response:
                stream = events(response)  # kept: letting go of it hangs up
                next(stream)
                assert other.get(f"{talk}/events").status_code == 429
                ok(other.delete(talk))
                assert list(stream)[-1].kind == "gone"
            assert other.get(f"{talk}/events").status_code == 410


def test_guessing_keys_is_slowed_down(settings: Callable[..., ServerSettings]) -> None:
    slow = settings(require_auth=True, jwt_secret="x" * 32, failed_login_rate=0.001)
    with running(slow) as server, server.client("plv.YQ.guess") as client:
        statuses = [client.get("/api/conversations").status_code for _ in range(31)]
    assert statuses == [401] * 30 + [429]


# ---- headers -------------------------------------------------------------------------------------------------------


def test_every_answer_has_an_id_and_safe_headers(client: httpx.Client, talk: str) -> None:
    for path in ("/", talk, "/nowhere", f"{talk}/turns/none"):
        answer = client.get(path, headers={"X-Request-Id": "mine-1"})
        assert answer.headers["x-request-id"] == "mine-1"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["x-frame-options"] == "DENY"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert "server" not in answer.headers


@pytest.mark.parametrize("id", ["a b", "x" * 65, "ü", "a;b", "<script>"])
def test_a_request_id_is_taken_only_when_it_is_harmless(client: httpx.Client, id: str) -> None:
    answer = client.get("/api/settings", headers={b"X-Request-Id": id.encode()})
    assert answer.headers["x-request-id"] != id


@ON_BOTH
def test_nothing_a_caller_says_becomes_a_header(client: httpx.Client, talk: str) -> None:
    hostile = "a\r\nX-Injected: yes"
    for path in (
        f"/api/conversations?cursor={hostile}",
        f"/api/conversations?workspace={hostile}&limit=1",
        f"{talk}/turns?before={hostile}",
        f"/api/conversations/{hostile}",
    ):
        answer = client.get(httpx.URL(path.replace("\r", "%0d").replace("\n", "%0a")))
        assert "x-injected" not in answer.headers
        assert answer.status_code < 500


@ON_BOTH
def test_paths_lead_nowhere_but_to_routes(server: Running) -> None:
    for path in (
        "/api/../etc/passwd", "/api/conversations/..%2f..%2fetc%2fpasswd", "/..%2f..%2fetc/passwd", "/static/../../x",
        "/api/conversations/%2e%2e/%2e%2e/x", "/api/conversations/%00", "/api/conversations/x/turns/%00", "/%ff%fe",
        "/api/conversations/x/attachments/..%2f..%2fetc%2fpasswd/content", "/healthz/../../etc/passwd",
        "/api/conversations/%ed%a0%80", "/metrics/..%2f..%2fetc%2fpasswd", "/api/conversations/" + "x" * 5_000,
    ):  # fmt: skip
        request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
        answer = raw(server, request)
        assert answer.split(b" ")[1] in (b"400", b"404", b"422"), (path, answer[:200])
        assert b"root:" not in answer


@ON_BOTH
def test_hostile_file_names_stay_names(settings: Callable[..., ServerSettings], tmp_path: Path) -> None:
    folder = tmp_path / "files"
    names = (
        "../../etc/passwd",
        "..\\..\\x",
        "/etc/passwd",
        "a\x00b",
        "x" * 300,
        "nul",
        "…/ü.txt",
        "a\r\nX: y.txt",
        "..",
        "%2e",
    )
    with running(settings(files=str(folder))) as server, server.client() as client:
        talk = f"/api/conversations/{ok(client.post('/api/conversations', json={}))['id']}"
        for name in names:
            answer = client.post(f"{talk}/attachments", params={"filename": name}, content=b"x")
            assert answer.status_code in (201, 413, 422), name
            if answer.status_code == 201:
                path = f"{talk}/attachments/{answer.json()['id']}/content"
                assert client.get(path).headers["content-disposition"].startswith("attachment; filename=")
    files = [one for one in tmp_path.rglob("*") if one.is_file() and "server.db" not in one.name]
    assert files
    assert all(one.resolve().is_relative_to(folder.resolve()) for one in files)


# ---- what it never does --------------------------------------------------------------------------------------------


@ON_BOTH
def test_an_image_by_url_is_fetched_by_nobody_here(settings: Callable[..., ServerSettings]) -> None:
    """SSRF: the address goes to the model as it is; this server never opens it."""
    visits: list[str] = []

    class Trap(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            visits.append(self.path)
            self.send_response(200)
            self.end_headers()

    trap = HTTPServer(("127.0.0.1", 0), Trap)
    threading.Thread(target=trap.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{trap.server_port}/metadata"
    with LoopbackProvider() as provider:
        chosen = settings(model="chat", models=provider.models(), generate={"titles": False})
        with running(chosen) as server, server.client() as client:
            talk = f"/api/conversations/{ok(client.post('/api/conversations', json={}))['id']}"
            parts = [{"type": "text", "text": "Look"}, {"type": "image", "url": url}]
            ok(client.post(f"{talk}/generate", json={"message": parts}))
            ok(client.post(f"{talk}/context", json={}))
    trap.shutdown()
    trap.server_close()
    assert visits == []


@ON_BOTH
def test_logs_and_refusals_hold_nothing_that_was_said(client: httpx.Client, talk: str, caplog: Any) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "the-secret-word"
    answers = [
        client.post(f"{talk}/turns", json={"role": "user", "content": secret}),
        client.post(f"{talk}/turns", json={"role": "user", "content": secret + "\x00"}),
        client.post(f"{talk}/turns", json={"role": secret, "content": secret}),
        client.post(f"{talk}/turns", content=f'{{"role": "user", "content": "{secret}'.encode()),
        client.get("/api/search", params={"q": secret}),
        client.post(f"{talk}/recall", json={"query": secret, "k": -1}),
        client.get(f"{talk}/turns", params={"since": secret}),
    ]
    refused = [one.text for one in answers if one.status_code >= 400]
    assert len(refused) == 5
    assert not [text for text in refused if secret in text]
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith("http")]
    assert ours
    assert not [line for line in ours if secret in line]


def test_a_fault_of_ours_says_nothing_of_what_it_held(
    server: Running, talk: str, caplog: Any, monkeypatch: Any
) -> None:
    async def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("the-secret-word")

    monkeypatch.setattr(engine_of(server.app.state.services.store), "usage", broken)
    with server.client() as client:
        answer = client.get("/api/usage")
    assert answer.status_code == 500
    assert answer.headers["content-type"] == "application/problem+json"
    assert "the-secret-word" not in answer.text + caplog.text


def test_the_docs_page_loads_nothing_from_elsewhere(client: httpx.Client) -> None:
    page = client.get("/docs")
    assert page.status_code == 200
    assert "append_turn" in page.text
    assert "src=" not in page.text
    assert "http://" not in page.text
    assert "https://" not in page.text


# ---- requests that a proxy or a browser may be tricked into ---------------------------------------------------------


@pytest.mark.parametrize("path", ["/api/conversations", "/v1/models", "/mcp", "/metrics"])
def test_a_page_of_another_site_reaches_nothing_on_loopback(client: httpx.Client, path: str) -> None:
    """A picture or a link in another site's page sends no Origin, but browsers say where it comes from."""
    refused = client.get(path, headers={"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"})
    assert refused.status_code == 403
    assert "another site" in refused.text


def test_a_link_of_another_site_may_open_the_page_itself(client: httpx.Client) -> None:
    followed = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert client.get("/", headers=followed).status_code == 200
    assert client.get("/api/conversations", headers=followed).status_code == 403
    assert client.get("/api/conversations", headers={"Sec-Fetch-Site": "same-origin"}).status_code == 200


def test_a_body_with_two_lengths_is_refused_and_its_connection_closed(server: Running) -> None:
    """Content-Length and Transfer-Encoding together are how requests are smuggled past a proxy (RFC 9112, 6.1)."""
    answer = raw(
        server,
        b"POST /api/conversations HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    )
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"connection: close" in answer.lower()


# ---- errors say what happened, in the words of HTTP -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/api/conversations", "GET, POST"),
        ("TRACE", "/v1/models", "GET"),
        ("TRACE", "/v1/responses/x", "DELETE, GET"),
        ("GET", "/v1/messages", "POST"),
    ],
)
def test_a_wrong_method_names_all_the_right_ones(client: httpx.Client, method: str, path: str, allowed: str) -> None:
    refused = client.request(method, path)
    assert refused.status_code == 405
    assert refused.headers["allow"] == allowed


def test_json_that_cannot_be_read_names_the_cause(client: httpx.Client) -> None:
    def detail(body: str) -> str:
        refused = client.post("/api/conversations", content=body, headers={"Content-Type": "application/json"})
        assert refused.status_code in (400, 422), refused.text
        return str(refused.json()["detail"])

    assert "nested" in detail('{"metadata": ' + '{"a":' * 30_000 + "1" + "}" * 30_001)
    assert "NaN" in detail('{"metadata": {"x": NaN}}')
    assert "Infinity" in detail('{"metadata": {"x": -Infinity}}')
    assert "valid JSON" in detail('{"metadata": ')


def test_a_deleted_conversation_is_explained_without_python(client: httpx.Client, talk: str) -> None:
    ok(client.delete(talk))
    gone = client.get(talk)
    assert gone.status_code == 410
    assert "(" not in gone.json()["detail"]
    assert "same key" in gone.json()["detail"]
