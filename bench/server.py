"""The server next to a bare FastAPI route of the same run: requests per second, p99, and live readers.

Both run under uvicorn in a process of their own; the client is plain sockets, so that it is not what is measured.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any

from bench.http import connect, free_port, once, palaver_server, request, resident, running
from bench.measure import Bench, Figure, Result

CONNECTIONS, ROUNDS = 16, 4
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
    with _bare() as bare_port, palaver_server(bench.folder) as (port, pid):
        path = await _a_talk(port, bench)
        body = {"role": "user", "content": "Hello there, how are you today? " * 4}
        found: list[Result] = []
        for what, method, end, sent in (
            ("append", "POST", "/turns", body),
            ("history of 50", "GET", "/turns?limit=50", None),
            ("context of 4,000", "POST", "/context", {"token_budget": 4_000, "semantic_recall": False}),
        ):
            count = requests if what == "append" else max(20, requests // 4)
            ours, bare = Load(), Load()
            for _ in range(ROUNDS):  # in turns: neighbours in time see the same weather
                bare.add(await _load(bare_port, "POST", "/echo", body, count // ROUNDS))
                ours.add(await _load(port, method, path + end, sent, count // ROUNDS))
            found += _figures(what, ours, bare)
        return found + await _live(port, pid, path, subscribers, rounds=max(3, bench.sizes.reads))


@dataclass(slots=True)
class Load:
    """The duration of all requests together, and of each one."""

    seconds: float = 0.0
    each: list[float] = field(default_factory=list)

    def add(self, more: Load) -> None:
        self.seconds += more.seconds
        self.each += more.each

    @property
    def rate(self) -> float:
        return len(self.each) / self.seconds


def _figures(what: str, ours: Load, bare: Load) -> list[Result]:
    than = "a bare FastAPI route"
    return [
        Figure("server", f"{what}, {CONNECTIONS} clients", ours.rate, "/s", bare.rate, than),
        Figure("server", f"{what}, p99", _p99(ours.each), "ms", _p99(bare.each), than),
    ]


def _p99(seconds: list[float]) -> float:
    return 1_000 * sorted(seconds)[int(len(seconds) * 0.99)] if seconds else 0.0


# ---- live readers --------------------------------------------------------------------------------------------------


async def _live(port: int, pid: int, path: str, subscribers: int, rounds: int) -> list[Result]:
    """Measure the time until an append has reached the last of many readers of one conversation."""
    before = resident(pid)
    async with _following(port, path, 1) as alone:
        single = await _deliveries(port, path, alone, rounds)
    async with _following(port, path, subscribers) as readers:
        each = (resident(pid) - before) * 1_024 / subscribers
        late = await _deliveries(port, path, readers, rounds)
    return [
        Figure("server", f"append to {subscribers:,} live readers, p99", _p99(late), "ms", _p99(single), "one reader"),
        Figure("server", "memory of an idle reader", each, "KiB", each, "itself"),
    ]


async def _deliveries(port: int, path: str, readers: list[asyncio.StreamReader], rounds: int) -> list[float]:
    late: list[float] = []
    line = await connect(port)
    for number in range(rounds):
        mark = f"round-{number}-{time.time_ns()}"
        began = time.perf_counter()
        waiting = [asyncio.create_task(_hears(reader, mark)) for reader in readers]
        await request(line, "POST", path + "/turns", {"role": "user", "content": mark})
        late += [moment - began for moment in await asyncio.gather(*waiting)]
    line[1].close()
    return late


async def _hears(reader: asyncio.StreamReader, mark: str) -> float:
    while mark.encode() not in await reader.readline():
        pass
    return time.perf_counter()


@asynccontextmanager
async def _following(port: int, path: str, count: int) -> AsyncIterator[list[asyncio.StreamReader]]:
    last = json.loads(await once(port, "GET", path))["last_event"]
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


# ---- load ---------------------------------------------------------------------------------------------------------


async def _load(port: int, method: str, path: str, body: Any, count: int) -> Load:
    """Send requests from several clients, each one after the other."""
    taken: list[float] = []

    async def client(share: int) -> None:
        line = await connect(port)
        for _ in range(share):
            began = time.perf_counter()
            await request(line, method, path, body)
            taken.append(time.perf_counter() - began)
        line[1].close()

    began = time.perf_counter()
    await asyncio.gather(*(client(max(1, count // CONNECTIONS)) for _ in range(CONNECTIONS)))
    return Load(time.perf_counter() - began, taken)


async def _a_talk(port: int, bench: Bench) -> str:
    """Make a conversation with earlier turns."""
    made = json.loads(await once(port, "POST", "/api/conversations", {}))
    path = f"/api/conversations/{made['id']}"
    turns = [{"role": ("user", "assistant")[n % 2], "content": f"Line {n}. " * 12} for n in range(200)]
    await once(port, "POST", f"{path}/turns/batch", {"turns": turns})
    return path


@contextmanager
def _bare() -> Iterator[int]:
    port = free_port()
    with running([sys.executable, "-c", BARE, str(port)], port):
        yield port
