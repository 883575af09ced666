"""Work that survives cancellation, and pauses for long work in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")

Pause = Callable[[], None]
"""Called between two steps of long work in a thread; it may sleep, so that other threads get the processor."""


async def run_uncancelled(work: Coroutine[Any, Any, T]) -> T:
    """If the caller is cancelled, wait for `work` to finish, then re-raise.

    A second cancellation stops the waiting; `work` continues in the background.
    """
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # marks it as retrieved: the caller gets the cancellation instead
        raise


def no_pause() -> None:
    """No-op pause, for work that has the machine to itself."""


def iterate_with_pauses(items: Iterable[T], pause: Pause) -> Iterator[T]:
    """Yield the items, with a pause before each."""
    for item in items:
        pause()
        yield item
