"""Reading files in a separate process, so that a hostile file cannot harm this one."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

from palaver.errors import FileRefused
from palaver.files import kinds

AT_ONCE = 4  # processes; each may use a gigabyte, so further files wait
WAIT_SECONDS = 30.0  # for one file, whatever the child is doing
MAX_ANSWER = 16_000_000  # bytes; a million characters fit, even when each is escaped
TOO_SLOW = "takes too long to read"
NO_TEXT = "holds no text"
KEPT_ENVIRONMENT = (
    "PATH",
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
    "SYSTEMROOT",
)  # all that Python needs to start; no secrets


@dataclass(frozen=True, slots=True)
class Extracted:
    """The text of a file, or the reason why there is none."""

    text: str = ""
    problem: str | None = None


async def extract(media_type: str, data: bytes, *, wait_seconds: float = WAIT_SECONDS) -> Extracted:
    """Extract the text of a file. Never raises because of its content."""
    if media_type not in kinds.READABLE:
        return Extracted(problem=NO_TEXT)
    found = await _ask("text", media_type, data, wait_seconds)
    text = found.get("text", "")
    return Extracted(text, found.get("problem") if text else found.get("problem") or NO_TEXT)


async def check_archive(media_type: str, data: bytes, *, wait_seconds: float = WAIT_SECONDS) -> None:
    """Raise `FileRefused` for an archive that unpacks to too much, or that cannot be unpacked."""
    if media_type not in kinds.ARCHIVES:
        return
    problem = (await _ask("weigh", media_type, data, wait_seconds)).get("problem")
    if problem is not None:
        raise FileRefused("data", problem, media_type=media_type)


_semaphores: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


async def _ask(task: str, kind: str, data: bytes, wait_seconds: float) -> dict[str, Any]:
    """Run the task in a child process, when there is room for one."""
    async with _semaphores.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(AT_ONCE)):
        return await run_child(task, kind, data, wait_seconds)


async def run_child(task: str, kind: str, data: bytes, wait_seconds: float) -> dict[str, Any]:
    """Start a child process, send it the file and return its answer."""
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-m", "palaver.files.child", task, kind,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={name: os.environ[name] for name in KEPT_ENVIRONMENT if name in os.environ},
    )  # fmt: skip
    try:
        async with asyncio.timeout(wait_seconds):
            feeding = asyncio.ensure_future(_feed(child, data))
            answer = await _read(child)
            await feeding
            await child.wait()
    except TimeoutError:
        return {"problem": TOO_SLOW}
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    return _decode(answer)


async def _feed(child: asyncio.subprocess.Process, data: bytes) -> None:
    assert child.stdin is not None
    try:
        child.stdin.write(data)
        await child.stdin.drain()
        child.stdin.close()
    except (BrokenPipeError, ConnectionResetError):
        pass  # it has exited already; its answer says why


async def _read(child: asyncio.subprocess.Process) -> bytes:
    assert child.stdout is not None
    answer = bytearray()
    while len(answer) <= MAX_ANSWER and (piece := await child.stdout.read(65_536)):
        answer += piece
    return bytes(answer)


def _decode(answer: bytes) -> dict[str, Any]:
    """Decode the answer of the child. It is empty when a limit ended the child."""
    try:
        found = json.loads(answer)
    except ValueError:
        return {"problem": TOO_SLOW if not answer else "is damaged"}
    return found if isinstance(found, dict) else {"problem": "is damaged"}
