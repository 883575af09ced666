"""`python -m bench.soak`: a server under mixed load for minutes, to see whether its memory grows.

Clients open conversations, append, read, recall, build contexts, ask the offline model, follow live events and hang up,
and delete what is old. Memory counts as flat if the last fifth of the time uses at most a tenth more than the second
fifth, when all caches are filled.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.http import Failed, Line, connect, once, palaver_server, request, resident, send

CLIENTS = 8
KEPT = 5  # conversations of a client; older ones are deleted
TURNS = 40  # rounds until a client opens the next one
SAMPLE_SECONDS = 1.0
BOUND = 1.10
SAID = ("I am allergic to peanuts, and I like rice.", "What can I eat today?", "We decided to meet on Friday. ") * 3


@dataclass(slots=True)
class Report:
    """The requests, the errors, and the memory in megabytes, second by second."""

    requests: int = 0
    failures: list[str] = field(default_factory=list)
    memory: list[float] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def before(self) -> float:
        fifth = len(self.memory) // 5
        return statistics.median(self.memory[fifth : 2 * fifth] or self.memory)

    @property
    def after(self) -> float:
        fifth = len(self.memory) // 5
        return statistics.median(self.memory[-fifth:] if fifth else self.memory)

    @property
    def is_flat(self) -> bool:
        return self.after <= self.before * BOUND

    def as_json(self) -> str:
        shown = {**asdict(self), "before": self.before, "after": self.after, "flat": self.is_flat}
        return json.dumps(shown)


class Client:
    """One of many clients. It does everything that an application does, one thing after another."""

    def __init__(self, port: int, report: Report, seed: int) -> None:
        self.port, self.report, self.dice = port, report, random.Random(seed)
        self.talks: deque[str] = deque()

    async def work(self, goes_on: Callable[[], bool]) -> None:
        line = await connect(self.port)
        rounds = 0
        while goes_on():
            if rounds % TURNS == 0:
                await self._open(line)
            rounds += 1
            try:
                await self._round(line)
            except Failed as problem:
                self.report.failures.append(str(problem))
                line = await connect(self.port)
        line[1].close()

    async def _call(self, line: Line, method: str, path: str, body: object = None) -> bytes:
        self.report.requests += 1
        return await request(line, method, path, body)

    async def _open(self, line: Line) -> None:
        made = json.loads(await self._call(line, "POST", "/api/conversations", {}))
        self.talks.append(f"/api/conversations/{made['id']}")
        if len(self.talks) > KEPT:
            await self._call(line, "DELETE", self.talks.popleft())

    async def _round(self, line: Line) -> None:
        talk, said = self.dice.choice(self.talks), self.dice.choice(SAID) * self.dice.randint(1, 20)
        await self._call(line, "POST", f"{talk}/turns", {"role": "user", "content": said})
        match self.dice.randint(0, 5):
            case 0:
                await self._call(line, "GET", f"{talk}/turns?limit=50")
            case 1:
                await self._call(line, "POST", f"{talk}/context", {"token_budget": 2_000, "query": said[:40]})
            case 2:
                await self._call(line, "POST", f"{talk}/recall", {"query": "peanuts"})
            case 3:
                await self._call(line, "POST", f"{talk}/generate", {"message": "What can I eat?"})
            case 4:
                await self._follow(talk)
            case 5:
                await self._call(line, "GET", "/api/search?q=peanuts")

    async def _follow(self, talk: str) -> None:
        """Listen for a while, then close the connection."""
        self.report.requests += 1
        line = await connect(self.port)
        await send(line, "GET", f"{talk}/events")
        for _ in range(self.dice.randint(1, 30)):
            await line[0].readline()
        line[1].close()


async def soak(port: int, pid: int, goes_on: Callable[[], bool]) -> Report:
    """Load a server while `goes_on` returns true, and watch it."""
    report, began = Report(), time.monotonic()
    watching = asyncio.create_task(_watch(pid, report))
    await asyncio.gather(*(Client(port, report, seed).work(goes_on) for seed in range(CLIENTS)))
    watching.cancel()
    report.memory.append(resident(pid))
    report.seconds = time.monotonic() - began
    return report


async def _watch(pid: int, report: Report) -> None:
    while True:
        report.memory.append(resident(pid))
        await asyncio.sleep(SAMPLE_SECONDS)


async def figure(port: int, name: str) -> float:
    """Return one of the server's own metrics."""
    text = (await once(port, "GET", "/metrics")).decode()
    return float(text.partition(f"\n{name} ")[2].split("\n")[0])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--db", metavar="URL", help="another database than a new SQLite file")
    parser.add_argument("--embedder", default="auto", help="none: without the encoder, which takes 230 MB by itself")
    parser.add_argument("--json", action="store_true", help="print JSON, with every sample")
    chosen = parser.parse_args()
    results = Path(__file__).parent / "results"
    results.mkdir(exist_ok=True)
    end = time.monotonic() + chosen.minutes * 60
    with (
        TemporaryDirectory(dir=results, prefix="soak-") as folder,
        palaver_server(Path(folder), chosen.db, chosen.embedder) as (port, pid),
    ):
        report = asyncio.run(soak(port, pid, lambda: time.monotonic() < end))
    if chosen.json:
        print(report.as_json())
    else:
        rate = report.requests / report.seconds
        print(f"{report.requests:,} requests in {report.seconds:.0f} s ({rate:,.0f}/s), {len(report.failures)} failed")
        print(f"memory {report.before:.1f} MB, then {report.after:.1f} MB: {'flat' if report.is_flat else 'NOT FLAT'}")
        for one in sorted(set(report.failures))[:10]:
            print(one)
    sys.exit(0 if report.is_flat and not report.failures else 1)


if __name__ == "__main__":
    main()
