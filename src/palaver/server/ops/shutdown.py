"""Signals: a server that is asked to stop drains first, while its socket still listens.

Uvicorn closes the socket as soon as it learns of a signal. So it learns of it only after the drain.
"""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def handle_signals(drain: Callable[[], Awaitable[None]]) -> Iterator[None]:
    """Run `drain` when the process is asked to stop, and after it the handlers that were installed earlier.

    A second signal calls them at once.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread receives signals
        return
    before: dict[int, Any] = {}
    loop, tasks = asyncio.get_running_loop(), set[asyncio.Task[None]]()

    async def drain_and_stop(number: int, frame: FrameType | None) -> None:
        try:
            await drain()
        finally:
            before[number](number, frame)

    def begin(number: int, frame: FrameType | None) -> None:
        tasks.add(loop.create_task(drain_and_stop(number, frame), name="palaver-drain"))

    def on_signal(number: int, frame: FrameType | None) -> None:
        if not callable(before[number]):
            return
        if tasks:
            before[number](number, frame)
        else:
            loop.call_soon_threadsafe(begin, number, frame)

    for one in SIGNALS:
        before[one] = signal.signal(one, on_signal)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
