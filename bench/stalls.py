"""How long one caller's large input holds up everybody else: `python -m bench.stalls [--server]`

A ticker on the event loop wakes up every millisecond while an operation runs with 4.8 MB of text. The figures are the
longest time between two ticks, and the most processor time of the loop's own thread between two ticks, which does
not grow when other programs keep the processors busy. With `--server`, a client asks `/healthz` again and again
while another one posts the text; the figure is the 99th percentile, next to that of an idle server.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import palaver
from bench.http import Failed, connect, once, palaver_server, request
from palaver import Conversation, Store

SIZE = 4_800_000
PROSE = "The harbour lay still under a thin fog while gulls cried over the boats, and nobody spoke. "
TEXTS = {
    "prose": (PROSE * (SIZE // len(PROSE) + 1))[:SIZE],
    "digits": "1 " * (SIZE // 2),
    "addresses": "a@" * (SIZE // 2),
    "one word": "a" * SIZE,
    "lines": "\n" * (SIZE - 1) + "x",
    "Chinese": "密码" * (SIZE // 6),
}
Operation = Callable[[Store, str], Awaitable[object]]


class Ticker:
    """The longest time between two ticks of the event loop, in milliseconds: on the clock, and of its own thread."""

    def __init__(self) -> None:
        self.longest = self.busiest = 0.0

    def __str__(self) -> str:
        return f"{self.longest:.0f} ({self.busiest:.0f})"

    async def run(self) -> None:
        last, used = time.perf_counter(), time.thread_time()
        while True:
            await asyncio.sleep(0.001)
            now, using = time.perf_counter(), time.thread_time()
            self.longest = max(self.longest, (now - last) * 1000)
            self.busiest = max(self.busiest, (using - used) * 1000)
            last, used = now, using


@asynccontextmanager
async def ticking() -> AsyncIterator[Ticker]:
    ticker = Ticker()
    task = asyncio.create_task(ticker.run())
    await asyncio.sleep(0.01)
    try:
        yield ticker
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


# ---- operations ----------------------------------------------------------------------------------------------------


async def _redacted(store: Store) -> Conversation:
    return await store.conversation(settings={"redact": True})


async def append(store: Store, text: str) -> None:
    await (await store.conversation()).append("user", text)


async def append_parts(store: Store, text: str) -> None:
    await (await store.conversation()).append("user", [{"type": "text", "text": text}])


async def append_redacted(store: Store, text: str) -> None:
    await (await _redacted(store)).append("user", text)


async def append_results_redacted(store: Store, text: str) -> None:
    talk = await _redacted(store)
    await talk.append("assistant", "", tool_calls=[{"id": "c", "name": "f", "arguments": {}}])
    await talk.append("tool", "", tool_results=[{"id": "c", "content": {"said": text}}])


async def stream_redacted(store: Store, text: str) -> None:
    async with (await _redacted(store)).stream("assistant") as out:
        await out.write(text)


async def chunks_redacted(store: Store, text: str) -> None:
    talk = await _redacted(store)
    turn = await talk.append_open("assistant")
    await talk.append_chunk(turn, 0, text)
    await talk.append_commit(turn)


async def context(store: Store, text: str) -> None:
    talk = await store.conversation()
    await talk.append("user", text)
    await talk.append("user", "What was it about?")
    await talk.build_context(token_budget=4_000, message="What was it about?")


async def generate(store: Store, text: str) -> None:
    talk = await _redacted(store)
    await talk.generate(text)


async def background(store: Store, text: str) -> None:
    talk = await store.conversation(settings={"facts": True})
    await talk.append("user", text)
    for n in range(120):
        await talk.append("user" if n % 2 else "assistant", f"Some words about the harbour, number {n}. " * 8)
    await store.settle()


async def search(store: Store, text: str) -> None:
    await store.search(text)


async def remember(store: Store, text: str) -> None:
    talk = await _redacted(store)
    try:
        await talk.remember("open_questions", text)
    except palaver.PalaverError:
        pass  # it is too long for a note; refusing it may not take long either


async def file_text(store: Store, text: str) -> None:
    talk = await _redacted(store)
    file = await talk.attach(text.encode(), filename="a.txt", media_type="text/plain")
    await talk.append("user", "Here it is.", attachments=[file])
    await talk.attachment_text(file)


async def edit(store: Store, text: str) -> None:
    talk = await _redacted(store)
    turn = await talk.append("user", "first")
    await talk.append("user", text, replaces=turn)


async def history(store: Store, text: str) -> None:
    talk = await store.conversation()
    await talk.append("user", text)
    await talk.history()
    await talk.verify()


OPERATIONS: tuple[Operation, ...] = (
    append,
    append_parts,
    append_redacted,
    append_results_redacted,
    edit,
    stream_redacted,
    chunks_redacted,
    generate,
    history,
    context,
    search,
    remember,
    file_text,
    background,
)


async def measure_loop(chosen: list[str]) -> None:
    names = list(TEXTS)
    print("| longest pause of the event loop, ms (of processor time) |", " | ".join(names), "|")
    async with ticking() as idle:
        await asyncio.sleep(0.5)
    print(f"| idle | {idle} |")
    for operation in OPERATIONS:
        if chosen and operation.__name__ not in chosen:
            continue
        row = [str(await _one(operation, TEXTS[name])) for name in names]
        print(f"| {operation.__name__.replace('_', ' ')} |", " | ".join(row), "|", flush=True)


async def _warm_up(store: Store) -> None:
    """Import what the operations import when they are first used."""
    talk = await _redacted(store)
    await talk.append("user", "Some words to warm up.")
    async with talk.stream("assistant") as out:
        await out.write("Some more.")
    await talk.build_context(token_budget=1_000, message="Which words?")
    await store.settle()


async def _one(operation: Operation, text: str) -> Ticker:
    with TemporaryDirectory() as folder:
        url = f"sqlite:///{folder}/a.db"
        async with palaver.open(url, embedder=None, model="offline", worker=False) as store:
            await _warm_up(store)
            async with ticking() as ticker:
                try:
                    await operation(store, text)
                except palaver.PalaverError as problem:
                    print(type(problem).__name__, end=" ")
            return ticker


# ---- the server ----------------------------------------------------------------------------------------------------


async def measure_server() -> None:
    with TemporaryDirectory() as folder, palaver_server(Path(folder)) as (port, _):
        settings: dict[str, Any] = {"key": "a", "settings": {"redact": True}}
        talk = json.loads(await once(port, "POST", "/api/conversations", settings))["id"]
        _, idle = await _health(port, asyncio.sleep(3))
        print(f"| idle server | {idle:.1f} |")
        for name, text in TEXTS.items():
            body = {"role": "user", "content": text}
            took, found = await _health(port, _post(port, f"/api/conversations/{talk}/turns", body))
            print(f"| append redacted, {name} | {found:.1f} | ({took:.1f} s)", flush=True)
        took, found = await _health(port, once(port, "GET", f"/api/conversations/{talk}/search?q=harbour"))
        print(f"| search in these | {found:.1f} | ({took:.1f} s)", flush=True)
        for name, text in TEXTS.items():
            body = {"model": "offline", "messages": [{"role": "user", "content": text}]}
            took, found = await _health(port, _post(port, "/v1/chat/completions", body))
            print(f"| chat completions, {name} | {found:.1f} | ({took:.1f} s)", flush=True)


async def _post(port: int, path: str, body: Any) -> None:
    try:
        await once(port, "POST", path, body)
    except Failed as problem:
        print(problem)


async def _health(port: int, work: Awaitable[object]) -> tuple[float, float]:
    """Return the seconds that `work` took, and the 99th percentile of the health checks in that time, in ms."""
    line, task, times = await connect(port), asyncio.ensure_future(work), []
    began = time.perf_counter()
    while not task.done():
        asked = time.perf_counter()
        await request(line, "GET", "/healthz")
        times.append((time.perf_counter() - asked) * 1000)
        await asyncio.sleep(0.002)
    line[1].close()
    await task
    return time.perf_counter() - began, sorted(times)[int(len(times) * 0.99)]


if __name__ == "__main__":
    named = [one for one in sys.argv[1:] if not one.startswith("-")]
    asyncio.run(measure_server() if "--server" in sys.argv else measure_loop(named))
