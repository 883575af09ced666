"""The server as its users run it: `palaver serve` in a process of its own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from palaver.core.identity import new_id
from palaver.testing.providers import LoopbackProvider
from tests.server.conftest import PATIENCE

# How long a writer that was killed is waited for. One that lives says so three times in it.
LEASE = 10.0


def wait_until(met: Callable[[], Any], what: str) -> Any:
    """Look again and again until there is something; fail when it takes far too long."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if found := met():
            return found
        time.sleep(0.02)
    raise AssertionError(f"waited in vain for {what}")


@dataclass
class Process:
    """A server that runs, its log, and clients of it."""

    child: subprocess.Popen[bytes]
    url: str
    log: Path
    clients: list[httpx.Client] = field(default_factory=list)

    def client(self, **options: Any) -> httpx.Client:
        made = httpx.Client(base_url=self.url, timeout=PATIENCE, **options)
        self.clients.append(made)
        return made

    def told(self) -> list[dict[str, Any]]:
        """The lines of the log so far; one that is being written is none yet."""
        lines = self.log.read_text().split("\n")[:-1]
        return [json.loads(line) for line in lines if line.startswith("{")]

    def worker_of(self, request: str) -> int:
        """Which process has answered a request."""

        def look() -> int | None:
            return next((line["process"] for line in self.told() if line.get("request") == request), None)

        return int(wait_until(look, "the line of a request in the log"))

    def lines_to_workers(self, workers: int, each: int) -> dict[int, list[httpx.Client]]:
        """Clients with one connection each, by the worker that it leads to."""
        found: dict[int, list[httpx.Client]] = {}

        def more() -> bool:
            client, id = self.client(limits=httpx.Limits(max_connections=1)), new_id()
            client.get("/api/settings", headers={"X-Request-Id": id}).raise_for_status()
            found.setdefault(self.worker_of(id), []).append(client)
            return len([one for one in found.values() if len(one) >= each]) >= workers

        wait_until(more, f"connections to {workers} workers")
        return found


@contextmanager
def serving(
    url: str,
    folder: Path,
    *options: str,
    port: int | None = None,
    provider: LoopbackProvider | None = None,
    **settings: Any,
) -> Iterator[Process]:
    """`palaver serve` on a free port, or on the one where it was before, until the block ends. Settings are passed as
    PALAVER_…"""
    environment = {
        "PALAVER_EMBEDDER": "none",
        "PALAVER_GENERATE": json.dumps({"titles": False}),
        "PALAVER_LOG_FORMAT": "json",
        "PALAVER_STREAM_LEASE": str(LEASE),
        **({"PALAVER_MODEL": "chat", "PALAVER_MODELS": json.dumps(provider.models())} if provider else {}),
        **{f"PALAVER_{name.upper()}": str(value) for name, value in settings.items()},
    }
    process = _started(url, folder, options, environment, port)
    try:
        yield process
    finally:
        for client in process.clients:
            client.close()
        process.child.terminate()
        try:
            process.child.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.child.kill()
            process.child.wait()


def _started(
    url: str, folder: Path, options: tuple[str, ...], environment: dict[str, str], wanted: int | None
) -> Process:
    for _ in range(3):  # a port that is free now may be taken a moment later
        port, log = wanted or free_port(), folder / f"{new_id()}.log"
        command = [sys.executable, "-m", "palaver.cli", "serve", "--port", str(port), "--db", url, *options]
        with log.open("wb") as out:
            child = subprocess.Popen(
                command, env={**os.environ, **environment}, stdout=subprocess.DEVNULL, stderr=out, cwd=folder
            )
        process = Process(child, f"http://127.0.0.1:{port}", log)
        wait_until(partial(_is_settled, process), "the server to come up")
        if child.poll() is None:
            return process
    raise AssertionError(f"the server did not start: {process.log.read_text()}")


def _is_settled(process: Process) -> bool:
    """Whether the server responds, or its process has ended."""
    if process.child.poll() is not None:
        return True
    try:
        return httpx.get(f"{process.url}/healthz", timeout=PATIENCE).status_code == 200
    except httpx.TransportError:
        return False


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
