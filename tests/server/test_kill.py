"""kill -9 in the middle of an answer: what was stored stays, the rest is sealed, and clients find their way back."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
from tests.server.conftest import Sent, events, ok, text_of, until

from palaver.testing.providers import LoopbackProvider, Say

WORDS = [f"word{n} " for n in range(60)]
WHOLE = "".join(WORDS)
Child = subprocess.Popen[bytes]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def process(
    folder: Path, port: int, provider: LoopbackProvider
) -> Iterator[tuple[subprocess.Popen[bytes], httpx.Client]]:
    environment = {
        **os.environ,
        "PALAVER_MODEL": "chat",
        "PALAVER_MODELS": json.dumps(provider.models()),
        "PALAVER_GENERATE": json.dumps({"titles": False}),
        "PALAVER_EMBEDDER": "none",
    }
    command = [sys.executable, "-m", "palaver.cli", "serve", "--port", str(port), "--db", str(folder / "kill.db")]
    child = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60)
    try:
        _wait_until_up(client, child)
        yield child, client
    finally:
        client.close()
        child.kill()
        child.communicate()


def _wait_until_up(client: httpx.Client, child: Child) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        assert child.poll() is None, child.stderr.read() if child.stderr else b""
        try:
            client.get("/api/settings")
            return
        except httpx.TransportError:
            time.sleep(0.05)
    raise AssertionError("the server did not come up")


def test_a_server_that_is_killed_in_the_middle_of_an_answer(tmp_path: Path) -> None:
    never, port = threading.Event(), free_port()
    with LoopbackProvider() as provider:
        provider.script(Say(WORDS, hold_after=(30, never)), Say("Again: all of it."))
        seen: list[Sent] = []
        with process(tmp_path, port, provider) as (child, client):
            talk = f"/api/conversations/{ok(client.post('/api/conversations', json={}))['id']}"
            generate = {"message": "Go on", "stream": True}
            headers = {"Idempotency-Key": "ask-1"}
            with (
                client.stream("POST", f"{talk}/generate", json=generate, headers=headers) as answer,
                client.stream("GET", f"{talk}/events") as response,
            ):
                until(events(answer), "delta")
                stream = events(response)
                while text_of(seen) != "".join(WORDS[:30]):
                    seen.append(next(stream))
                _wait_until_flushed(client, talk, "".join(WORDS[:30]))
                os.kill(child.pid, signal.SIGKILL)
                child.wait()
        kept = seen[-1].id
        never.set()
        with process(tmp_path, port, provider) as (child, client):
            with client.stream("GET", f"{talk}/events", headers={"Last-Event-ID": kept or ""}) as response:
                rest = until(events(response), "abort")
            aborted = rest[-1].data["turn"]
            assert text_of(seen + rest) == aborted["content"] == "".join(WORDS[:30])
            again = ok(client.post(f"{talk}/generate", json={"message": "Go on"}, headers=headers))
            assert again["turn"]["content"] == "Again: all of it."
            shown = [one["content"] for one in ok(client.get(f"{talk}/turns"))["items"]]
            assert shown == ["Go on", "Again: all of it."]
            assert ok(client.post(f"{talk}/verify"))["ok"]


def _wait_until_flushed(client: httpx.Client, talk: str, text: str) -> None:
    while ok(client.get(f"{talk}/turns"))["items"][-1]["content"] != text:
        time.sleep(0.02)


def test_a_server_that_is_asked_to_end_says_goodbye(tmp_path: Path) -> None:
    """Live readers are told, the answer in the making is sealed with what came, and the process ends by itself."""
    never, port = threading.Event(), free_port()
    os.environ["PALAVER_SHUTDOWN_SECONDS"] = "1"
    try:
        with LoopbackProvider() as provider:
            provider.script(Say(WORDS, hold_after=(30, never)))
            with process(tmp_path, port, provider) as (child, client):
                talk = f"/api/conversations/{ok(client.post('/api/conversations', json={}))['id']}"
                with client.stream("GET", f"{talk}/events") as response:
                    stream = events(response)
                    asking = threading.Thread(target=_ask, args=(str(client.base_url), talk))
                    asking.start()
                    until(stream, "delta")
                    child.send_signal(signal.SIGTERM)
                    assert list(stream)[-1].kind == "closing"
                assert child.wait(30) is not None
                asking.join()
            never.set()
            with process(tmp_path, port, provider) as (_, client):
                page = ok(client.get(f"{talk}/turns", params={"include_superseded": True}))
                last = page["items"][-1]
                assert last["status"] in ("complete", "aborted")
                assert WHOLE.startswith(last["content"])
                assert last["content"]
    finally:
        del os.environ["PALAVER_SHUTDOWN_SECONDS"]


def _ask(url: str, talk: str) -> None:
    try:
        httpx.post(f"{url.rstrip('/')}{talk}/generate", json={"message": "Go on"}, timeout=60)
    except httpx.TransportError:
        pass  # the server ended
