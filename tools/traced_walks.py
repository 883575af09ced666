"""Trace what four requests run through, over HTTP against `palaver serve` in this process.

    python -m tools.traced_walks                 a table: calls, functions, files, jumps between files, threads
    python -m tools.traced_walks --path append   the functions of one walk in the order of their first call

Only the package's own files are counted. Nothing of the package is imported by name: the server starts from its console
script, and everything else goes over its routes, so that the figures can be compared after modules have moved. Each
walk runs several times on a warm server, and the run with the fewest calls counts: background work adds to the others.
"""

from __future__ import annotations

import argparse
import dis
import importlib.util
import json
import os
import signal
import socket
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.metadata import entry_points
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from types import CodeType, FrameType
from typing import Any

QUIET_SECONDS = 0.3
QUIET_CALLS = 30  # in that time: only timers run, background work is done
PATIENCE_SECONDS = 10.0
START_SECONDS = 120.0
NOTES = 12
NOT_FUNCTIONS = {"<module>", "<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}


@dataclass(frozen=True, slots=True)
class Call:
    code: CodeType
    thread: int

    @property
    def file(self) -> str:
        return self.code.co_filename

    def __str__(self) -> str:
        name = Path(self.file).relative_to(package_directory())
        return f"{name}:{self.code.co_firstlineno} {self.code.co_qualname}"


@dataclass(frozen=True)
class Walk:
    """The calls of one request, in order."""

    calls: tuple[Call, ...]

    @property
    def distinct(self) -> list[Call]:
        return list({call.code: call for call in reversed(self.calls)}.values())[::-1]

    def figures(self) -> tuple[int, int, int, int, int]:
        files = [call.file for call in self.calls]
        jumps = sum(before != after for before, after in pairwise(files))
        threads = len({call.thread for call in self.calls})
        return len(files), len(self.distinct), len(set(files)), jumps, threads


@dataclass
class Tracer:
    """Records calls of the package's functions while `recorded` is a list."""

    recorded: list[Call] | None = None
    count: int = 0

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "call" or not is_ours(frame.f_code):
            return
        self.count += 1
        if self.recorded is not None and frame.f_lasti <= first_instruction(frame.f_code):
            self.recorded.append(Call(frame.f_code, threading.get_ident()))

    def wait_until_quiet(self) -> None:
        until = time.monotonic() + PATIENCE_SECONDS
        before = -QUIET_CALLS - 1
        while self.count - before > QUIET_CALLS and time.monotonic() < until:
            before = self.count
            time.sleep(QUIET_SECONDS)

    @contextmanager
    def recording(self) -> Iterator[list[Call]]:
        self.wait_until_quiet()
        self.recorded = calls = []
        try:
            yield calls
        finally:
            self.recorded = None


@cache
def package_directory() -> str:
    spec = importlib.util.find_spec("palaver")
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).parent)


@cache
def is_ours(code: CodeType) -> bool:
    return code.co_filename.startswith(package_directory()) and code.co_name not in NOT_FUNCTIONS


@cache
def first_instruction(code: CodeType) -> int:
    """The offset at which a call begins. A coroutine that is resumed continues behind it."""
    return next((one.offset for one in dis.get_instructions(code) if one.opname == "RESUME"), 0)


# The requests


@dataclass(frozen=True)
class Client:
    """One conversation of a running server."""

    url: str
    conversation: str = ""

    def send(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=START_SECONDS) as response:
            text = response.read()
        return json.loads(text) if text else None

    def at(self, path: str) -> str:
        return f"/api/conversations/{self.conversation}{path}"

    def append(self, text: str) -> str:
        turn: str = self.send("POST", self.at("/turns"), {"role": "user", "content": text})["id"]
        return turn


Prepared = Callable[[], object]


def append(client: Client) -> Prepared:
    return lambda: client.append("I like walks by the river.")


def forget(client: Client) -> Prepared:
    turn = client.append("This one will be deleted.")
    return lambda: client.send("DELETE", client.at(f"/turns/{turn}"))


def context(client: Client) -> Prepared:
    body = {"token_budget": 250, "query": "What am I allergic to?", "semantic_recall": True}
    return lambda: client.send("POST", client.at("/context"), body)


def generate(client: Client) -> Prepared:
    body = {"message": "What am I allergic to?", "model": "offline"}
    return lambda: client.send("POST", client.at("/generate"), body)


WALKS = {
    "append": ("POST turns", append),
    "forget": ("DELETE turn", forget),
    "context": ("POST context, with recall", context),
    "generate": ("POST generate, offline model", generate),
}


def new_conversation(url: str) -> Client:
    """A conversation that is a little longer than the budget of the context below, so that something is recalled."""
    bare = Client(url)
    client = Client(url, bare.send("POST", "/api/conversations", {})["id"])
    client.append("I'm allergic to peanuts.")
    for number in range(NOTES):
        client.append(f"Note {number}: the weather in town was mild, and the market had fresh bread and apples.")
    return client


def trace(tracer: Tracer, url: str, name: str, times: int) -> Walk:
    _, prepare = WALKS[name]
    prepare(new_conversation(url))()  # loads what is loaded at first use
    walks = (_traced_once(tracer, prepare(new_conversation(url))) for _ in range(times))
    return min(walks, key=lambda walk: len(walk.calls))


def _traced_once(tracer: Tracer, request: Prepared) -> Walk:
    with tracer.recording() as calls:
        request()
        return Walk(tuple(calls))


# The server


def serve(directory: str, port: int) -> None:
    """Run `palaver serve` in this thread until it gets a signal."""
    database = f"sqlite:///{directory}/walks.db"
    sys.argv = ["palaver", "serve", "--port", str(port), "--db", database, "--model", "offline"]
    (script,) = entry_points(group="console_scripts", name="palaver")
    try:
        script.load()()
    except SystemExit as end:
        if end.code:
            raise


def wait_for(url: str) -> None:
    until = time.monotonic() + START_SECONDS
    while True:
        try:
            urllib.request.urlopen(f"{url}/healthz", timeout=START_SECONDS).close()
            return
        except (urllib.error.URLError, ConnectionError):
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def run_walks(names: list[str], times: int) -> dict[str, Walk]:
    """Serve in the main thread, which signals need, and send requests from another one, which is not traced."""
    tracer, walks, port = Tracer(), {}, free_port()

    def send_requests() -> None:
        url = f"http://127.0.0.1:{port}"
        try:
            wait_for(url)
            walks.update({name: trace(tracer, url, name, times) for name in names})
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGTERM, lambda *_: None)  # uvicorn sends it once more when the server has closed
    with TemporaryDirectory() as directory:
        requests = threading.Thread(target=send_requests)
        requests.start()
        threading.setprofile(tracer)
        sys.setprofile(tracer)
        try:
            serve(directory, port)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
        requests.join()
    return walks


def table(walks: dict[str, Walk]) -> str:
    rows = [("walk", "request", "calls", "functions", "files", "jumps", "threads")]
    rows += [(name, WALKS[name][0], *map(str, walk.figures())) for name, walk in walks.items()]
    rows.insert(1, ("---",) * 7)
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("walks", nargs="*", choices=[*WALKS, []], help="default: all four")
    parser.add_argument("--path", action="store_true", help="print the functions of each walk")
    parser.add_argument("--times", type=int, default=5, help="how often each walk is run (default 5)")
    given = parser.parse_args()
    walks = run_walks(given.walks or list(WALKS), given.times)
    print(table(walks))
    for name, walk in walks.items() if given.path else ():
        print(f"\n## {name}", *walk.distinct, sep="\n")


if __name__ == "__main__":
    main()
