"""Work that survives cancellation, and pauses for long work in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


async def run_uncancelled(work: Coroutine[Any, Any, T]) -> T:
    """Whoever is cancelled meanwhile waits on, and passes it on then; whoever is cancelled once more does not wait, and
    the work goes on alone."""
    task = asyncio.create_task(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()  # nobody will ask for it any more
        raise


Pause = Callable[[], None]


def no_pause() -> None:
    """For work that nobody runs beside."""


def iterate_with_pauses(items: Iterable[T], breathe: Pause) -> Iterator[T]:
    for item in items:
        breathe()
        yield item
