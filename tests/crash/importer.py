"""Imports an export, and kills itself with SIGKILL after some steps: `importer.py URL EXPORT [STEPS]`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import palaver
from palaver.interchange.exports.formats import open_export
from palaver.interchange.exports.importer import import_export

left = int(sys.argv[3]) if len(sys.argv) > 3 else -1


def counted(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def run(*args: Any, **options: Any) -> Any:
        global left
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        left -= 1
        return await method(*args, **options)

    return run


for name in ("append", "append_many", "switch", "attach"):
    setattr(palaver.Conversation, name, counted(getattr(palaver.Conversation, name)))


async def main() -> None:
    export = open_export(Path(sys.argv[2]))
    assert export is not None
    async with palaver.open(sys.argv[1], worker=False, embedder=None) as store:
        await import_export(store, export)


asyncio.run(main())
