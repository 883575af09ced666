"""`palaver serve --workers 2` over Postgres: two processes that are one server."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from palaver.testing.providers import LoopbackProvider, Say
from tests.server.conftest import Sent, events, ok, text_of, until
from tests.server.processes import Process, serving, wait_until

WORDS = [f"word{n} " for n in range(60)]
WHOLE = "".join(WORDS)
HALF = "".join(WORDS[:30])


@pytest.fixture
def provider() -> Iterator[LoopbackProvider]:
    with LoopbackProvider() as one:
        yield one


@pytest.fixture
def server(postgres_url: str, tmp_path: Path, provider: LoopbackProvider) -> Iterator[Process]:
    with serving(postgres_url, tmp_path, "--workers", "2", provider=provider) as one:
        yield one


def figure(client: httpx.Client, name: str) -> float:
    families = text_string_to_metric_families(client.get("/metrics").text)
    return sum(one.value for family in families for one in family.samples if one.name == name)


def test_two_workers_are_one_server(server: Process, provider: LoopbackProvider) -> None:
    """The other sends what one writes, a stop reaches the one that makes the answer, and one may die."""
    never = threading.Event()
    held = Say(WORDS, hold_after=(30, never))
    provider.script(Say(WORDS), held, held, Say("Again: all of it."))
    (one, first), (two, second) = list(server.lines_to_workers(2, each=3).items())[:2]
    client = server.client()
    talk = f"/api/conversations/{ok(client.post('/api/conversations', json={}))['id']}"
    with first[0].stream("GET", f"{talk}/events") as here, second[0].stream("GET", f"{talk}/events") as there:
        streams = events(here), events(there)

        # Both send every event, of either process.
        ok(second[1].post(f"{talk}/turns", json={"role": "user", "content": "by the second"}))
        ok(first[1].post(f"{talk}/generate", json={"message": "by the first"}))
        heard = [until(stream, "commit") for stream in streams]
        assert [[frame.id for frame in told if frame.kind == "append"] for told in heard] == [["2", "3"]] * 2
        assert [text_of(told) for told in heard] == [WHOLE] * 2

        # A stop that one receives is obeyed by the other.
        asking = threading.Thread(target=first[1].post, args=(f"{talk}/generate",), kwargs={"json": {"message": "?"}})
        asking.start()
        told = _half(streams[1])
        ok(second[1].post(f"{talk}/stop"), 202)
        told += until(streams[1], "commit")
        asking.join()
        assert told[-1].data["turn"]["finish_reason"] == "stopped"
        assert text_of(told) == told[-1].data["turn"]["content"]
        assert WHOLE.startswith(text_of(told))

        # One is killed in the middle of an answer: the other seals it, and what was sent stays as it was sent.
        assert figure(client, "palaver_live_readers") == 2
        asking = threading.Thread(target=_ask, args=(first[1], talk))
        asking.start()
        told = _half(streams[1])
        os.kill(one, signal.SIGKILL)
        died = f"worker {one} died with exit code -9 and is replaced"
        wait_until(lambda: died in server.log.read_text(), "the line in the log")
        asking.join()
        told += until(streams[1], "abort")
        assert text_of(told) == told[-1].data["turn"]["content"] == HALF
    never.set()

    # A third takes its place; the question gets its answer; the figures are those of all of them.
    again = ok(client.post(f"{talk}/generate", json={"message": "go on"}, headers={"Idempotency-Key": "ask"}))
    assert again["turn"]["content"] == "Again: all of it."
    assert ok(client.post(f"{talk}/verify"))["ok"]
    workers = server.lines_to_workers(2, each=1)
    assert one not in workers
    assert two in workers
    assert figure(client, "palaver_turns_stored_total") == 8, "the retry of a question counts"
    wait_until(lambda: figure(client, "palaver_live_readers") == 0, "readers of the killed worker to be forgotten")


def _half(stream: Iterator[Sent]) -> list[Sent]:
    """The first half of an answer, as far as it is sent from the log of another process."""
    told: list[Sent] = []
    while text_of(told) != HALF:
        told.append(next(stream))
    return told


def _ask(client: httpx.Client, talk: str) -> None:
    with pytest.raises(httpx.TransportError):
        client.post(f"{talk}/generate", json={"message": "go on"}, headers={"Idempotency-Key": "ask"})
