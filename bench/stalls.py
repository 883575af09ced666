"""How long one caller's large input delays all others: `python -m bench.stalls [--server]`

A ticker on the event loop wakes up every millisecond while an operation runs with 4.8 MB of text. The figures are the
longest time between two ticks, and in that of processor time, which does not grow when other programs keep the
processors busy, the most that the loop's own thread used between two ticks, and that the whole process used. The last
says how long another thread kept the interpreter's lock, at most. With `--server`, a client asks `/healthz` again
and again while another one posts the text; the figure is the 99th percentile, next to that of an idle server.
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

import httpx

import palaver
from bench.http import Failed, connect, once, palaver_server, request
from palaver import Conversation, Store
from palaver.interchange.jsonl import export_lines
from palaver.server.app import create_app
from palaver.server.settings import ServerSettings

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
# One of them, or `all`, is chosen by name: `python -m bench.stalls context all`.
MORE_TEXTS = {
    name: (unit * (SIZE // len(unit.encode())))
    for name, unit in {
        "spaces": " ", "tabs": "\t", "no-break spaces": "\u00a0", "zero width": "\u200b", "combining": "\u0301",
        "emoji": "😀", "dots": ".", "quotes": '"', "less than": "<", "backslashes": "\\", "backticks": "`",
        "fences": "```\n", "table": "|a|b|c|\n", "list": "- a\n", "headings": "# a\n", "quoted lines": "> a\n",
        "brackets": "[", "JSON": '{"a":[', "control": "\x01", "stop words": "the ", "hyphens": "a-",
        "apostrophes": "a'", "capitals": "Ab ", "sentences": "a. ", "questions": "what? ", "addresses of pages":
        "http://a.b/", "years": "in 2019, ", "sigma": "Σ-", "Arabic": "سلام ", "Thai": "ภาษา", "Korean": "한국 ",
        "Japanese": "ひらがな", "rules": "please always use, ", "dates": "1/2/2019 ",
    }.items()
}  # fmt: skip
Operation = Callable[[Store, str], Awaitable[object]]


class Ticker:
    """The longest time between two ticks of the event loop, in milliseconds: on the clock, and of the processor."""

    def __init__(self) -> None:
        self.longest = self.own = self.whole = 0.0

    def __str__(self) -> str:
        return f"{self.longest:.0f} ({self.own:.0f}, {self.whole:.0f})"

    async def run(self) -> None:
        last = self._clocks()
        while True:
            await asyncio.sleep(0.001)
            now = self._clocks()
            passed = [(one - other) * 1000 for one, other in zip(now, last, strict=True)]
            self.longest, self.own, self.whole = map(max, (self.longest, self.own, self.whole), passed)
            last = now

    def _clocks(self) -> tuple[float, float, float]:
        return time.perf_counter(), time.thread_time(), time.process_time()


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


async def recall(store: Store, text: str) -> None:
    talk = await store.conversation()
    await talk.append("user", text)
    await talk.recall("What did we say about the harbour?")
    await talk.recall(text)


async def export(store: Store, text: str) -> None:
    talk = await store.conversation()
    await talk.append("user", text)
    async for _ in export_lines(talk):
        pass


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
    recall,
    export,
    remember,
    file_text,
    background,
)


async def measure_loop(chosen: list[str]) -> None:
    everything = TEXTS | MORE_TEXTS
    names = list(everything) if "all" in chosen else [one for one in everything if one in chosen] or list(TEXTS)
    operations = [one for one in OPERATIONS if one.__name__ in chosen]
    requests = [one for one in REQUESTS if one in chosen]
    if not operations and not requests:
        operations, requests = list(OPERATIONS), list(REQUESTS)
    print("| longest pause of the event loop, ms (processor time: own thread, process) |", " | ".join(names), "|")
    async with ticking() as idle:
        await asyncio.sleep(0.5)
    print(f"| idle | {idle} |")
    for operation in operations:
        row = [str(await _one(operation, everything[name])) for name in names]
        print(f"| {operation.__name__.replace('_', ' ')} |", " | ".join(row), "|", flush=True)
    for one in requests:
        row = [str(await _one_request(one, everything[name])) for name in names]
        print(f"| {one} |", " | ".join(row), "|", flush=True)


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


# ---- requests to an application in this process --------------------------------------------------------------------


def _asked(text: str) -> dict[str, Any]:
    return {"model": "offline", "messages": [{"role": "user", "content": text}]}


REQUESTS: dict[str, tuple[str, Callable[[str], dict[str, Any]]]] = {
    "chat": ("/v1/chat/completions", _asked),
    "responses": ("/v1/responses", lambda text: {"model": "offline", "input": text}),
    "messages": ("/v1/messages", lambda text: {**_asked(text), "max_tokens": 100}),
}
HEADERS = {"Content-Type": "application/json"}


async def _one_request(name: str, text: str) -> Ticker:
    path, make_body = REQUESTS[name]
    with TemporaryDirectory() as folder:
        app = create_app(ServerSettings(url=f"sqlite:///{folder}/a.db", model="offline", embedder="none"))
        transport = httpx.ASGITransport(app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", headers=HEADERS) as client,
        ):
            small, large = (json.dumps(make_body(one)).encode() for one in ("Some words to warm up.", text))
            await client.post(path, content=small)
            async with ticking() as ticker:
                reply = await client.post(path, content=large)
            if reply.status_code >= 300:
                print(reply.status_code, reply.content[:100], end=" ")
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
