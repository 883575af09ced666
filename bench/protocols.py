"""The time that the server adds to an answer in another protocol: to the first piece of text, and per piece.

The same request goes to the upstream directly and through the server, in turns, from the same plain sockets. The
upstream is a process of its own on this machine that answers at once, so that nothing but the overhead is left. Through
the server each message is stored and gets a context from its conversation; `passed on` has neither.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.generate import TOKENS, _provider
from bench.http import free_port, running
from bench.measure import Bench, Figure, Result
from palaver.testing.providers import KEY

HELLO = {"role": "user", "content": "Hello there, how are you today?"}
UI = {"id": "bench-ui", "message": {"id": "1", "role": "user", "parts": [{"type": "text", "text": HELLO["content"]}]}}
# What is measured: where it goes, with which body; and the same at the upstream.
SHAPES: dict[str, tuple[str, dict[str, Any], str]] = {
    "Chat Completions": ("/v1/chat/completions", {"model": "chat", "messages": [HELLO]}, "/v1/chat/completions"),
    "Responses": ("/v1/responses", {"model": "responses", "input": HELLO["content"]}, "/v1/responses"),
    "Messages": ("/v1/messages", {"model": "messages", "max_tokens": 999, "messages": [HELLO]}, "/v1/messages"),
    "AI SDK": ("/api/chat", {**UI, "model": "chat"}, "/v1/chat/completions"),
}
DIRECT = {
    "/v1/chat/completions": {"model": "test", "messages": [HELLO], "stream": True},
    "/v1/responses": {"model": "test", "input": HELLO["content"], "stream": True},
    "/v1/messages": {"model": "test", "max_tokens": 999, "messages": [HELLO], "stream": True},
}
PASSED_ON = "Chat Completions, passed on"


async def run(bench: Bench) -> list[Result]:
    with _provider() as upstream, _server(bench.folder, upstream) as port:
        taken: dict[str, list[tuple[float, float]]] = {}
        for round in range(-1, bench.sizes.slices):
            found = await _round(port, int(upstream.rpartition(":")[2]))
            if round >= 0:  # the first one opens what stays open
                for name, one in found.items():
                    taken.setdefault(name, []).append(one)
    return [figure for name in (*SHAPES, PASSED_ON) for figure in _figures(name, taken)]


async def _round(port: int, upstream: int) -> dict[str, tuple[float, float]]:
    found = {}
    for path, body in DIRECT.items():
        found[path] = await _timed(upstream, path, body, "")
    for name, (path, body, _) in SHAPES.items():
        found[name] = await _timed(port, path, {**body, "stream": True}, f"X-Conversation-Id: bench/{name}\r\n")
    path, body, _ = SHAPES["Chat Completions"]
    found[PASSED_ON] = await _timed(port, path, {**body, "stream": True}, "")
    return found


def _figures(name: str, taken: dict[str, list[tuple[float, float]]]) -> list[Result]:
    direct = SHAPES[name.removesuffix(", passed on")][2]
    ours, theirs = taken[name], taken[direct]
    added = statistics.median(a[0] - b[0] for a, b in zip(ours, theirs, strict=True))
    first = statistics.median(one[0] for one in theirs)
    ratio = statistics.median(a[0] / b[0] for a, b in zip(ours, theirs, strict=True))
    each = [statistics.median((end - start) / (TOKENS - 1) * 1_000 for start, end in one) for one in (ours, theirs)]
    than = "the upstream directly"
    return [
        Figure("protocols", f"{name}: added to the first piece", added, "ms", first, than, paired=ratio),
        Figure("protocols", f"{name}: per piece, of {TOKENS}", each[0], "µs", each[1], than),
    ]


async def _timed(port: int, path: str, body: dict[str, Any], headers: str) -> tuple[float, float]:
    """Return the milliseconds to the first piece of text, and to the last."""
    data = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n"
    start = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**22)
    writer.write(f"{head}{headers}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    moments = []
    while line := await reader.readline():
        if b"delta" in line and b" word" in line:
            moments.append((time.perf_counter() - start) * 1_000)
    writer.close()
    if len(moments) != TOKENS:
        raise RuntimeError(f"{path}: {len(moments)} pieces of {TOKENS}")
    return moments[0], moments[-1]


@contextmanager
def _server(folder: Path, upstream: str) -> Iterator[int]:
    port = free_port()
    command = [sys.executable, "-m", "palaver.cli", "serve", "--port", str(port), "--db", str(folder / "faces.db")]
    of_openai = {"base_url": f"{upstream}/v1", "api_key": KEY}
    models = {
        "chat": {"model": "openai:test", **of_openai},
        "responses": {"model": "responses:test", **of_openai},
        "messages": {"model": "anthropic:test", "base_url": upstream, "api_key": KEY},
    }
    more = {"PALAVER_MODEL": "chat", "PALAVER_MODELS": json.dumps(models), "PALAVER_EMBEDDER": "none"}
    with running(command, port, PALAVER_SHUTDOWN_SECONDS="1", **more):
        yield port
