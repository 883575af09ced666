"""kill -9 in the middle of an answer: what was stored stays, the rest is sealed, and clients find their way back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import httpx

from palaver.testing.providers import LoopbackProvider, Say
from tests.server.conftest import PATIENCE, Sent, events, ok, text_of, until
from tests.server.processes import serving, wait_until

WORDS = [f"word{n} " for n in range(60)]
WHOLE = "".join(WORDS)
HALF = "".join(WORDS[:30])


def new_talk(client: httpx.Client) -> str:
    return f"/api/conversations/{ok(client.post('/api/conversations', json={}))['id']}"


def flushed(client: httpx.Client, talk: str) -> bool:
    """Whether the first half of an answer is on disk."""
    return bool(ok(client.get(f"{talk}/turns"))["items"][-1]["content"] == HALF)


def test_a_server_that_is_killed_in_the_middle_of_an_answer(tmp_path: Path, database_url: str) -> None:
    never = threading.Event()
    with LoopbackProvider() as provider:
        provider.script(Say(WORDS, hold_after=(30, never)), Say("Again: all of it."))
        seen: list[Sent] = []
        headers = {"Idempotency-Key": "ask-1"}
        with serving(database_url, tmp_path, provider=provider) as server:
            client = server.client()
            talk = new_talk(client)
            generate = {"message": "Go on", "stream": True}
            with (
                client.stream("POST", f"{talk}/generate", json=generate, headers=headers) as answer,
                client.stream("GET", f"{talk}/events") as response,
            ):
                until(events(answer), "delta")
                stream = events(response)
                while text_of(seen) != HALF:
                    seen.append(next(stream))
                wait_until(lambda: flushed(client, talk), "the text to reach the disk")
                os.kill(server.child.pid, signal.SIGKILL)
                server.child.wait()
        kept = seen[-1].id
        never.set()
        with serving(database_url, tmp_path, provider=provider) as server:
            client = server.client()
            with client.stream("GET", f"{talk}/events", headers={"Last-Event-ID": kept or ""}) as response:
                rest = until(events(response), "abort")
            aborted = rest[-1].data["turn"]
            assert text_of(seen + rest) == aborted["content"] == HALF
            again = ok(client.post(f"{talk}/generate", json={"message": "Go on"}, headers=headers))
            assert again["turn"]["content"] == "Again: all of it."
            shown = [one["content"] for one in ok(client.get(f"{talk}/turns"))["items"]]
            assert shown == ["Go on", "Again: all of it."]
            assert ok(client.post(f"{talk}/verify"))["ok"]


def test_a_server_that_is_asked_to_end_says_goodbye(tmp_path: Path, database_url: str) -> None:
    """Live readers are notified, the text of a running answer is kept, and the process ends by itself.

    A turn that a client writes in pieces continues on the next server.
    """
    never = threading.Event()
    with LoopbackProvider() as provider:
        provider.script(Say(WORDS, hold_after=(30, never)))
        with serving(database_url, tmp_path, provider=provider, shutdown_seconds=1, stream_lease=600) as server:
            client = server.client()
            talk, other = new_talk(client), new_talk(client)
            piece = ok(client.post(f"{other}/streams", json={}))["id"]
            ok(client.post(f"{other}/streams/{piece}/chunks", json={"n": 0, "text": "before "}))
            with client.stream("GET", f"{talk}/events") as response:
                stream = events(response)
                asking = threading.Thread(target=_ask, args=(server.url, talk))
                asking.start()
                until(stream, "delta")
                server.child.send_signal(signal.SIGTERM)
                assert list(stream)[-1].kind == "closing"
            server.child.wait(PATIENCE)
            asking.join()
            last = [line["message"] for line in server.told() if "message" in line][-2:]
            assert last == ["closing, with 1 running answers", "closed"]
        never.set()
        with serving(database_url, tmp_path, provider=provider) as server:
            client = server.client()
            page = ok(client.get(f"{talk}/turns", params={"include_superseded": True}))
            answer = page["items"][-1]
            assert answer["status"] in ("complete", "aborted")
            assert WHOLE.startswith(answer["content"])
            assert answer["content"]
            ok(client.post(f"{other}/streams/{piece}/chunks", json={"n": 1, "text": "and after"}))
            assert ok(client.post(f"{other}/streams/{piece}/commit", json={}))["content"] == "before and after"
            assert ok(client.post(f"{talk}/verify"))["ok"]
            assert ok(client.post(f"{other}/verify"))["ok"]


def _ask(url: str, talk: str) -> None:
    try:
        httpx.post(f"{url}{talk}/generate", json={"message": "Go on"}, timeout=PATIENCE)
    except httpx.TransportError:
        pass  # the server ended


def test_one_that_cannot_start_says_why_and_no_secret(tmp_path: Path) -> None:
    url = "postgresql://ada:hunter2@127.0.0.1:1/none"
    command = [sys.executable, "-m", "palaver.cli", "serve", "--port", "0", "--db", url]
    for options in ([], ["--workers", "2"]):
        done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=PATIENCE, cwd=tmp_path)
        assert done.returncode != 0
        assert "cannot start: the database cannot be reached" in done.stderr
        assert "hunter2" not in done.stderr + done.stdout
        assert "Traceback" not in done.stderr
