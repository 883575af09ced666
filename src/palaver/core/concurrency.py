"""Work that survives cancellation, and long work in a thread, in strides."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, TypeVar

from palaver.core.strides import LARGE, pause_between_strides

T = TypeVar("T")

Pause = Callable[[], None]
"""Called between two steps of long work in a thread; it may sleep, so that other threads get the processor."""

LARGE_WORK_THREADS = 2  # one caller's large text must not wait for another's; more would only share one interpreter
STRIDE_SECONDS, REST_SECONDS = 0.002, 0.0005


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


# ---- large work ----------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Rest:
    """Sleeps for a moment after each stride, so that the event loop gets the interpreter's lock at once.

    Without it the loop would wait for the interpreter's switch interval, 5 ms, at each of its steps. When the caller
    has been cancelled, it ends the work.
    """

    cancelled: bool = False
    resumed: float = 0.0

    def __call__(self) -> None:
        if self.cancelled:
            raise asyncio.CancelledError
        if time.perf_counter() - self.resumed >= STRIDE_SECONDS:
            time.sleep(REST_SECONDS)
            self.resumed = time.perf_counter()


class _Threads:
    """The threads for large work: started at the first use, and again in a forked process, which has none of them."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        os.register_at_fork(after_in_child=self._forget)

    def _forget(self) -> None:
        self._pool = None

    def get(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(LARGE_WORK_THREADS, thread_name_prefix="palaver-large")
        return self._pool


_threads = _Threads()


def start_in_strides(work: Callable[[], T]) -> Future[T]:
    """Start large work in a thread, as `run_in_strides` does. Any thread may call it."""
    context = copy_context()
    context.run(pause_between_strides.set, _Rest())
    return _threads.get().submit(context.run, work)


async def run_in_strides(work: Callable[[], T], size: int) -> T:
    """Run work whose time grows with `size`, in characters: directly, or in a thread if it is large.

    A thread alone would not keep the event loop free, because regular expressions and other calls into C hold the
    interpreter's lock. So the work consists of strides, between which it calls `between_strides`.
    """
    if size <= LARGE:
        return work()
    rest, context = _Rest(), copy_context()
    context.run(pause_between_strides.set, rest)
    try:
        return await asyncio.get_running_loop().run_in_executor(_threads.get(), context.run, work)
    except asyncio.CancelledError:
        rest.cancelled = True
        raise
