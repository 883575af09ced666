"""Hearing of the end in time: a server waits for its readers, and readers of live feeds never leave by themselves."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGTERM, signal.SIGINT)


@contextmanager
def heeding_signals(work: Callable[[], None]) -> Iterator[None]:
    """Call `work` as soon as the process is asked to end, before whoever listened already."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's business
        return
    before: dict[int, Any] = {}

    def heard(number: int, frame: FrameType | None) -> None:
        work()
        if callable(before[number]):
            before[number](number, frame)

    for one in SIGNALS:
        before[one] = signal.signal(one, heard)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
