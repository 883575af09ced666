"""Signals: live readers never disconnect by themselves, so the server must close them before it waits for them."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def handle_signals(work: Callable[[], None]) -> Iterator[None]:
    """Call `work` as soon as the process is asked to stop, before the handlers that were installed earlier."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread receives signals
        return
    before: dict[int, Any] = {}

    def on_signal(number: int, frame: FrameType | None) -> None:
        work()
        if callable(before[number]):
            before[number](number, frame)

    for one in SIGNALS:
        before[one] = signal.signal(one, on_signal)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
