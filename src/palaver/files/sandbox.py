"""Reads files in a process of its own, so that what a hostile one does to its reader is done to nobody else."""

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

AT_ONCE = 4  # processes; each may take a gigabyte, and whoever sends many files waits for room
WAIT_SECONDS = 30.0  # for the whole of it, whatever the child is doing
MAX_ANSWER = 16_000_000  # bytes; a million characters are less, also when each is escaped
TOO_SLOW = "takes too long to read"
KEPT_ENVIRONMENT = (
    "PATH",
    "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH",
    "SYSTEMROOT",
)  # what Python needs to start; no secrets


@dataclass(frozen=True, slots=True)
class Extracted:
    """The words of a file; or why there are none."""

    text: str = ""
    problem: str | None = None


async def extract(media_type: str, data: bytes) -> Extracted:
    """What a file says. Never raises for what is in it."""
    if media_type not in kinds.READABLE:
        return Extracted(problem="holds no text")
    found = await _ask("text", media_type, data)
    text = found.get("text", "")
    return Extracted(text, found.get("problem") if text else found.get("problem") or "holds no text")


async def check_archive(media_type: str, data: bytes) -> None:
    """Raises `FileRefused` for an archive that unpacks to too much, or that cannot be looked into."""
    if media_type not in kinds.ARCHIVES:
        return
    problem = (await _ask("weigh", media_type, data)).get("problem")
    if problem is not None:
        raise FileRefused("data", problem, media_type=media_type)


_rooms: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


async def _ask(task: str, kind: str, data: bytes) -> dict[str, Any]:
    async with _rooms.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(AT_ONCE)):
        return await _asked(task, kind, data)


async def _asked(task: str, kind: str, data: bytes) -> dict[str, Any]:
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-I", "-m", "palaver.files.child", task, kind,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={name: os.environ[name] for name in KEPT_ENVIRONMENT if name in os.environ},
    )  # fmt: skip
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            feeding = asyncio.ensure_future(_feed(child, data))
            told = await _read(child)
            await feeding
            await child.wait()
    except TimeoutError:
        return {"problem": TOO_SLOW}
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()
    return _understood(told)


async def _feed(child: asyncio.subprocess.Process, data: bytes) -> None:
    assert child.stdin is not None
    try:
        child.stdin.write(data)
        await child.stdin.drain()
        child.stdin.close()
    except (BrokenPipeError, ConnectionResetError):
        pass  # it has ended already; its answer says why


async def _read(child: asyncio.subprocess.Process) -> bytes:
    assert child.stdout is not None
    told = bytearray()
    while len(told) <= MAX_ANSWER and (piece := await child.stdout.read(65_536)):
        told += piece
    return bytes(told)


def _understood(told: bytes) -> dict[str, Any]:
    """What the child said; one that was ended by a limit has said nothing."""
    try:
        found = json.loads(told)
    except ValueError:
        return {"problem": TOO_SLOW if not told else "is damaged"}
    return found if isinstance(found, dict) else {"problem": "is damaged"}
