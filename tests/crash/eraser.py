"""Erases a person, and kills itself with SIGKILL after some steps: `eraser.py URL FILES USER STEPS`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import palaver
from palaver.conversations.internals import engine_of

STEPS = ("put_erasure", "note_erased", "erase_turns", "erase_names", "erase_keys", "forget_conversation", "update",
         "put_working_memory", "blobs_deleted")  # fmt: skip


async def main(url: str, files: str, user: str, last: int) -> None:
    async with palaver.open(url, files=Path(files), embedder=None, worker=False) as store:
        engine: Any = engine_of(store)
        for name in STEPS:
            setattr(engine, name, _counted(getattr(engine, name), last))
        await store.erase_user(user)
    print("finished")


done = 0


def _counted(step: Callable[..., Awaitable[Any]], last: int) -> Callable[..., Awaitable[Any]]:
    async def run(*arguments: Any, **options: Any) -> Any:
        global done
        result = await step(*arguments, **options)
        done += 1
        if done == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return run


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))
