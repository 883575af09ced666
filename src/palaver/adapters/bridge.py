"""Runs the work of a store from wherever a framework calls: its own event loop, another one, or a thread.

Frameworks have synchronous and asynchronous methods side by side. A store of `palaver.open` belongs to one event loop;
one of `palaver.sync.open` brings its own, and can be called from anywhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import suppress
from typing import Any, TypeVar

from palaver import sync
from palaver.conversations.store import Store
from palaver.errors import InvalidInput, WrongEventLoop

T = TypeVar("T")
AnyStore = Store | sync.Store


class Bridge:
    """A store, and the event loop on which it is called."""

    def __init__(self, store: AnyStore) -> None:
        self.store: Store
        self._home: asyncio.AbstractEventLoop | None = None
        if isinstance(store, sync.Store):
            self.store, self._home = sync.home_of(store)  # type: ignore[attr-defined]  # not in the stub, which is for callers
        elif isinstance(store, Store):
            self.store = store
            with suppress(RuntimeError):  # made outside a loop: the first call decides
                self._home = asyncio.get_running_loop()
        else:
            raise InvalidInput("store", f"must be a store of palaver.open, not {type(store).__name__}")

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work from synchronous code, and wait for it."""
        running = _running_loop()
        if self._home is None or running is self._home:
            work.close()
            raise WrongEventLoop(
                "this store belongs to an event loop: await the asynchronous method, or give the adapter a store of "
                "palaver.sync.open, which can be called from anywhere"
            )
        return asyncio.run_coroutine_threadsafe(work, self._home).result()

    async def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work from asynchronous code, on the store's own loop."""
        running = asyncio.get_running_loop()
        if self._home is None:
            self._home = running
        if running is self._home:
            return await work
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._home))

    def iterate(self, source: AsyncIterator[T]) -> Iterator[T]:
        """Yield what an asynchronous iterator yields, in synchronous code."""
        while True:
            found, value = self.call(_step(source))
            if not found:
                return
            yield value  # type: ignore[misc]


async def _step(source: AsyncIterator[T]) -> tuple[bool, T | None]:
    try:
        return True, await anext(source)
    except StopAsyncIteration:
        return False, None


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
