"""A server in its own process, and a client over plain sockets, so that the client is not what is measured."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

Line = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Failed(Exception):
    """A response that is not a success. The message is its first line."""


async def connect(port: int) -> Line:
    return await asyncio.open_connection("127.0.0.1", port, limit=2**22)


async def send(line: Line, method: str, path: str, body: Any = None) -> bytes:
    """Send a request on a connection, and return the head of the response."""
    reader, writer = line
    data = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    writer.write(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
    answer = await reader.readuntil(b"\r\n\r\n")
    if answer[9:10] != b"2":
        raise Failed(f"{method} {path}: {answer.splitlines()[0].decode()}")
    return answer


async def request(line: Line, method: str, path: str, body: Any = None) -> bytes:
    """Return the body of the response."""
    answer = (await send(line, method, path, body)).lower()
    if b"content-length:" not in answer:
        return b""
    length = int(answer.partition(b"content-length:")[2].split(b"\r\n")[0])
    return await line[0].readexactly(length)


async def once(port: int, method: str, path: str, body: Any = None) -> bytes:
    line = await connect(port)
    try:
        return await request(line, method, path, body)
    finally:
        line[1].close()


def resident(pid: int) -> float:
    """Return the resident memory of a process in megabytes."""
    text = Path(f"/proc/{pid}/status").read_text() if Path("/proc").exists() else "VmRSS: 0 kB"
    return int(text.partition("VmRSS:")[2].split()[0]) / 1_024


# ---- processes -----------------------------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(command: list[str], port: int, **environment: str) -> Iterator[int]:
    """Run a program from when it listens until the block ends. Its log is discarded."""
    child = subprocess.Popen(
        command, env={**os.environ, **environment}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _wait_for(child, port)
        yield child.pid
    finally:
        child.terminate()
        try:
            child.wait(30)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _wait_for(child: subprocess.Popen[bytes], port: int) -> None:
    deadline = time.monotonic() + 120
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if child.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("the server did not start") from None
            time.sleep(0.05)


@contextmanager
def palaver_server(folder: Path, url: str | None = None, embedder: str = "none") -> Iterator[tuple[int, int]]:
    """Run `palaver serve`. Yields its port and its process."""
    port, database = free_port(), url or str(folder / "server.db")
    command = [sys.executable, "-m", "palaver.cli", "serve", "--port", str(port), "--db", database]
    with running(command, port, PALAVER_EMBEDDER=embedder, PALAVER_SHUTDOWN_SECONDS="1") as pid:
        yield port, pid
