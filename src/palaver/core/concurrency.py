"""Work that survives cancellation, and pauses for long work in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
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


Breathe = Callable[[], None]


def hold_on() -> None:
    """For work that nobody runs beside."""


def strolling(items: Iterable[T], breathe: Breathe) -> Iterator[T]:
    for item in items:
        breathe()
        yield item
