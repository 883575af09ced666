"""A deploy: the old process is asked to stop, the new one takes over, and clients that reconnect notice nothing."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from palaver.testing.providers import LoopbackProvider, Say
from tests.server.conftest import PATIENCE, Sent, events, ok, text_of, until
from tests.server.processes import Process, serving, wait_until

WORDS = [f"word{n} " for n in range(60)]
WHOLE = "".join(WORDS)
HALF = "".join(WORDS[:30])
pytestmark = pytest.mark.costly


def new_talk(client: httpx.Client) -> str:
    return f"/api/conversations/{ok(client.post('/api/conversations', json={}))['id']}"


class Asking(threading.Thread):
    """A client that asks and reads the answer as a stream, to its last frame."""

    def __init__(self, url: str, talk: str) -> None:
        super().__init__()
        self.url, self.talk, self.frames = url, talk, list[Sent]()

    def run(self) -> None:
        body = {"message": "Go on", "stream": True}
        with httpx.stream("POST", f"{self.url}{self.talk}/generate", json=body, timeout=PATIENCE) as response:
            self.frames = list(events(response))


def half_an_answer(server: Process, client: httpx.Client, talk: str, seen: list[Sent]) -> Asking:
    """Ask, and read live events until half of the answer is there."""
    asking = Asking(server.url, talk)
    with client.stream("GET", f"{talk}/events") as response:
        stream = events(response)
        asking.start()
        while text_of(seen) != HALF:
            seen.append(next(stream))
        server.child.send_signal(signal.SIGTERM)
        seen += list(stream)
    return asking


def test_no_character_is_lost_or_doubled_and_the_answer_ends(tmp_path: Path, database_url: str) -> None:
    go_on = threading.Event()
    with LoopbackProvider() as provider:
        provider.script(Say(WORDS, hold_after=(30, go_on)))
        seen: list[Sent] = []
        with serving(database_url, tmp_path, provider=provider, shutdown_seconds=60) as old:
            client = old.client()
            talk = new_talk(client)
            asking = half_an_answer(old, client, talk, seen)
            assert seen[-1].kind == "closing"
            assert seen[-1].data["after"] == seen[-1].id  # how to resume
            with old.client() as other:  # the socket still listens
                ready = other.get("/readyz")
                assert (ready.status_code, ready.headers["Connection"]) == (503, "close")
                assert ok(other.get(f"{talk}/turns"))["items"]
                refused = other.post(f"{talk}/generate", json={"message": "One more"})
                assert refused.status_code == 503
                assert refused.headers["Retry-After"]
                chat = {"model": "chat", "messages": [{"role": "user", "content": "One more"}]}
                assert other.post("/v1/chat/completions", json=chat).status_code == 503
            go_on.set()
            asking.join()
            assert asking.frames[-1].kind == "done"
            assert old.child.wait(PATIENCE) in (0, -signal.SIGTERM)
            assert len(provider.received) == 1
        with serving(database_url, tmp_path, provider=provider) as new:
            client = new.client()
            with client.stream("GET", f"{talk}/events", headers={"Last-Event-ID": seen[-1].id or ""}) as response:
                rest = until(events(response), "commit")
            assert text_of(seen + rest) == rest[-1].data["turn"]["content"] == WHOLE
            assert ok(client.post(f"{talk}/verify"))["ok"]


def test_an_answer_that_takes_too_long_is_kept_as_it_is_within_one_deadline(tmp_path: Path, database_url: str) -> None:
    never, seconds = threading.Event(), 8.0
    with LoopbackProvider() as provider:
        provider.script(Say(WORDS, hold_after=(30, never)))
        seen: list[Sent] = []
        with serving(database_url, tmp_path, provider=provider, shutdown_seconds=seconds) as old:
            client = old.client()
            talk = new_talk(client)
            asking = half_an_answer(old, client, talk, seen)
            began = time.monotonic()
            assert old.child.wait(PATIENCE) in (0, -signal.SIGTERM)
            assert time.monotonic() - began < 2 * seconds  # it used to be that long at least
            asking.join()
            assert asking.frames[-1].kind in ("done", "closing")
            assert text_of(asking.frames) == HALF
            errors = [line for line in old.told() if line["level"] == "error"]
            assert errors == []
        never.set()
        with serving(database_url, tmp_path, provider=provider) as new:
            client = new.client()
            with client.stream("GET", f"{talk}/events", headers={"Last-Event-ID": seen[-1].id or ""}) as response:
                rest = until(events(response), "commit")
            assert text_of(seen + rest) == rest[-1].data["turn"]["content"] == HALF


def test_another_process_answers_again_where_that_is_set(tmp_path: Path, database_url: str) -> None:
    never = threading.Event()
    with LoopbackProvider() as provider:
        provider.script(Say(WORDS, hold_after=(30, never)), Say(WORDS))
        again: dict[str, Any] = {"interrupted_answers": "ask_again", "shutdown_seconds": 2}
        seen: list[Sent] = []
        with serving(database_url, tmp_path, provider=provider, **again) as old:
            client = old.client()
            talk = new_talk(client)
            asking = half_an_answer(old, client, talk, seen)
            old.child.wait(PATIENCE)
            asking.join()
            assert asking.frames[-1].kind == "closing"
            assert "/events?after=" in asking.frames[-1].data["events"]
        never.set()
        with serving(database_url, tmp_path, provider=provider, **again) as new:
            client = new.client()

            def answered() -> Any:
                shown = ok(client.get(f"{talk}/turns"))["items"]
                return [one for one in shown if one["content"] == WHOLE and one["status"] == "complete"]

            wait_until(answered, "the second answer")
            with client.stream("GET", f"{talk}/events", headers={"Last-Event-ID": seen[-1].id or ""}) as response:
                rest = until(events(response), "commit")
            assert text_of([one for one in rest if one.data.get("turn") == rest[-1].data["turn"]["id"]]) == WHOLE
            assert ok(client.post(f"{talk}/verify"))["ok"]
        assert len(provider.received) == 2
