"""The server beside a bare FastAPI route of the same run: requests per second, p99, and live readers.

Both run under uvicorn in a process of their own; the client is plain sockets, so that it is not what is measured.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from bench.measure import Bench, Figure, Result

CONNECTIONS = 16
BARE = """
import sys, uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

class Body(BaseModel):
    role: str
    content: str

app = FastAPI()

@app.post("/echo")
async def echo(body: Body) -> Body:
    return body

uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning", access_log=False)
"""


async def run(bench: Bench) -> list[Result]:
    requests = bench.sizes.slices * bench.sizes.slice
    subscribers = min(1_000, requests)
    with _bare() as bare_port, _palaver(bench.folder) as (port, pid):
        path = await _a_talk(port, bench)
        body = {"role": "user", "content": "Hello there, how are you today? " * 4}
        bare = await _load(bare_port, "POST", "/echo", body, requests)
        found: list[Result] = []
        for what, method, end, sent in (
            ("append", "POST", "/turns", body),
            ("history of 50", "GET", "/turns?limit=50", None),
            ("context of 4,000", "POST", "/context", {"token_budget": 4_000, "semantic_recall": False}),
        ):
            count = requests if what == "append" else max(20, requests // 4)
            taken = await _load(port, method, path + end, sent, count)
            found += _figures(what, taken, bare)
        return found + await _live(port, pid, path, subscribers, rounds=max(3, bench.sizes.reads))


def _figures(what: str, taken: tuple[float, list[float]], bare: tuple[float, list[float]]) -> list[Result]:
    return [
        Figure("server", f"{what}, {CONNECTIONS} clients", _rate(taken), "/s", _rate(bare), "a bare FastAPI route"),
        Figure("server", f"{what}, p99", _p99(taken[1]), "ms", _p99(bare[1]), "a bare FastAPI route"),
    ]


def _rate(taken: tuple[float, list[float]]) -> float:
    return len(taken[1]) / taken[0]


def _p99(seconds: list[float]) -> float:
    return 1_000 * sorted(seconds)[int(len(seconds) * 0.99)] if seconds else 0.0


# ---- live readers --------------------------------------------------------------------------------------------------


async def _live(port: int, pid: int, path: str, subscribers: int, rounds: int) -> list[Result]:
    """Everybody follows one conversation; how long until an append has reached the last of them?"""
    before = _resident(pid)
    async with _following(port, path, 1) as alone:
        single = await _deliveries(port, path, alone, rounds)
    async with _following(port, path, subscribers) as readers:
        each = (_resident(pid) - before) * 1_024 / subscribers
        late = await _deliveries(port, path, readers, rounds)
    return [
        Figure("server", f"append to {subscribers:,} live readers, p99", _p99(late), "ms", _p99(single), "one reader"),
        Figure("server", "memory of an idle reader", each, "KiB", each, "itself"),
    ]


async def _deliveries(port: int, path: str, readers: list[asyncio.StreamReader], rounds: int) -> list[float]:
    late: list[float] = []
    line = await _connect(port)
    for number in range(rounds):
        mark = f"round-{number}-{time.time_ns()}"
        began = time.perf_counter()
        waiting = [asyncio.create_task(_hears(reader, mark)) for reader in readers]
        await _request(line, "POST", path + "/turns", {"role": "user", "content": mark})
        late += [moment - began for moment in await asyncio.gather(*waiting)]
    line[1].close()
    return late


async def _hears(reader: asyncio.StreamReader, mark: str) -> float:
    while mark.encode() not in await reader.readline():
        pass
    return time.perf_counter()


@asynccontextmanager
async def _following(port: int, path: str, count: int) -> AsyncIterator[list[asyncio.StreamReader]]:
    last = json.loads(await _once(port, "GET", path))["last_event"]
    lines = []
    for _ in range(count):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**22)
        writer.write(f"GET {path}/events?after={last} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        lines.append((reader, writer))
    for reader, _ in lines:
        while b"retry" not in await reader.readline():
            pass
    try:
        yield [reader for reader, _ in lines]
    finally:
        for _, writer in lines:
            writer.close()


def _resident(pid: int) -> float:
    """Megabytes."""
    text = Path(f"/proc/{pid}/status").read_text() if Path("/proc").exists() else "VmRSS: 0 kB"
    return int(text.partition("VmRSS:")[2].split()[0]) / 1_024


# ---- a client of plain sockets -------------------------------------------------------------------------------------

Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _connect(port: int) -> Line:
    return await asyncio.open_connection("127.0.0.1", port, limit=2**22)


async def _request(line: Line, method: str, path: str, body: Any) -> bytes:
    reader, writer = line
    data = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    answer = await reader.readuntil(b"\r\n\r\n")
    if answer[9:10] != b"2":
        raise RuntimeError(answer.decode())
    length = int(answer.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
    return await reader.readexactly(length)


async def _once(port: int, method: str, path: str, body: Any = None) -> bytes:
    line = await _connect(port)
    try:
        return await _request(line, method, path, body)
    finally:
        line[1].close()


async def _load(port: int, method: str, path: str, body: Any, count: int) -> tuple[float, list[float]]:
    """So many requests from several clients, each one after the other: all of the time, and that of each."""
    taken: list[float] = []

    async def client(share: int) -> None:
        line = await _connect(port)
        for _ in range(share):
            began = time.perf_counter()
            await _request(line, method, path, body)
            taken.append(time.perf_counter() - began)
        line[1].close()

    began = time.perf_counter()
    await asyncio.gather(*(client(max(1, count // CONNECTIONS)) for _ in range(CONNECTIONS)))
    return time.perf_counter() - began, taken


async def _a_talk(port: int, bench: Bench) -> str:
    """A conversation with a past."""
    made = json.loads(await _once(port, "POST", "/api/conversations", {}))
    path = f"/api/conversations/{made['id']}"
    turns = [{"role": ("user", "assistant")[n % 2], "content": f"Line {n}. " * 12} for n in range(200)]
    await _once(port, "POST", f"{path}/turns/batch", {"turns": turns})
    return path


# ---- processes -----------------------------------------------------------------------------------------------------


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _running(command: list[str], port: int, **environment: str) -> Iterator[int]:
    child = subprocess.Popen(command, env={**os.environ, **environment}, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                break
            except OSError:
                if child.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("the server did not start") from None
                time.sleep(0.05)
        yield child.pid
    finally:
        child.terminate()
        try:
            child.wait(15)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


@contextmanager
def _bare() -> Iterator[int]:
    port = _free_port()
    with _running([sys.executable, "-c", BARE, str(port)], port):
        yield port


@contextmanager
def _palaver(folder: Path) -> Iterator[tuple[int, int]]:
    port = _free_port()
    command = [sys.executable, "-m", "palaver.cli", "serve", "--port", str(port), "--db", str(folder / "server.db")]
    with _running(command, port, PALAVER_EMBEDDER="none", PALAVER_SHUTDOWN_SECONDS="1") as pid:
        yield port, pid
