"""The blocking face, for scripts and notebooks: the same verbs, run on one background event loop.

    with palaver.sync.open("sqlite:///chat.db") as store:
        talk = store.conversation("support/42")
        talk.append("user", "I'm allergic to peanuts.")

Every method is the async one of the same name: what it would await is waited for, what it would iterate is iterated,
what it would enter with `async with` is entered with `with`.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Coroutine, Iterator
from concurrent.futures import CancelledError
from contextlib import AbstractAsyncContextManager, contextmanager, suppress
from types import TracebackType
from typing import Any, TypeVar
from weakref import WeakSet

from palaver.conversations.conversation import Conversation
from palaver.conversations.opening import open as open_store
from palaver.conversations.store import Store
from palaver.conversations.turn_writer import TurnWriter
from palaver.errors import StoreClosed

T = TypeVar("T")
# What has verbs of its own; everything else is a value and is handed over as it is.
FACED = (Store, Conversation, TurnWriter)


class Portal:
    """One event loop on one background thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._closed = False
        self._gate = threading.RLock()  # whoever gets in before it closes is answered
        self._thread = threading.Thread(target=self.loop.run_forever, name="palaver-sync", daemon=True)
        self._thread.start()
        _portals.add(self)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        with self._gate:
            if self._closed:
                work.close()
                raise StoreClosed
            future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except CancelledError:
            if self._closed:
                raise StoreClosed from None
            raise
        except BaseException:
            future.cancel()  # a KeyboardInterrupt here must not leave the work running there
            raise

    @property
    def is_here(self) -> bool:
        """Not in the child of a fork, which has nothing to close."""
        return self._thread.is_alive()

    def close(self) -> None:
        with self._gate:
            self._closed = True
        if not self.is_here:
            return
        asyncio.run_coroutine_threadsafe(self._wind_up(), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    async def _wind_up(self) -> None:
        """As `asyncio.run` does: what other threads still wait for, then what somebody holds half read."""
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self.loop.shutdown_asyncgens()


_portals: WeakSet[Portal] = WeakSet()


def _forked() -> None:
    """The child of a fork has no thread that would ever answer."""
    for portal in _portals:
        portal._closed, portal._gate = True, threading.RLock()  # which somebody may have held


os.register_at_fork(after_in_child=_forked)


class Blocking:
    """A store, a conversation or a writer, with blocking verbs."""

    def __init__(self, portal: Portal, target: Any) -> None:
        self._portal, self._target = portal, target

    def __repr__(self) -> str:
        return f"<blocking {self._target!r}>"

    def __dir__(self) -> list[str]:
        return [name for name in dir(self._target) if not name.startswith("_")]

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if not inspect.ismethod(value):
            return self._face(value)

        @functools.wraps(value)
        def verb(*args: Any, **kwargs: Any) -> Any:
            args = tuple(map(_bare, args))
            return self._face(value(*args, **{name: _bare(arg) for name, arg in kwargs.items()}))

        return verb

    def _face(self, value: Any) -> Any:
        if isinstance(value, Awaitable):
            return self._face(self._portal.call(value if isinstance(value, Coroutine) else _wait(value)))
        if isinstance(value, FACED):
            return Blocking(self._portal, value)
        if isinstance(value, AsyncIterator):
            return self._iterate(value)
        return value

    def _iterate(self, source: AsyncIterator[Any]) -> Iterator[Any]:
        async def step() -> tuple[bool, Any]:
            try:
                return True, await anext(source)
            except StopAsyncIteration:
                return False, None

        try:
            while True:
                more, value = self._portal.call(step())
                if not more:
                    return
                yield self._face(value)
        finally:
            if hasattr(source, "aclose"):
                with suppress(StoreClosed):  # it was closed with the store
                    self._portal.call(_close(source))

    def __enter__(self) -> Blocking:
        self._portal.call(_enter(self._target))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._portal.call(self._target.__aexit__(kind, problem, trace))


def _bare(value: Any) -> Any:
    return value._target if isinstance(value, Blocking) else value


async def _wait(work: Awaitable[T]) -> T:
    return await work


async def _enter(manager: AbstractAsyncContextManager[T]) -> T:
    return await manager.__aenter__()


async def _close(source: Any) -> None:
    await source.aclose()


@contextmanager
def open(*args: Any, **kwargs: Any) -> Iterator[Blocking]:
    """`palaver.open`, for `with`."""
    portal = Portal()
    try:
        manager = open_store(*args, **kwargs)
        store = portal.call(_enter(manager))
        try:
            yield Blocking(portal, store)
        finally:
            if portal.is_here:
                portal.call(manager.__aexit__(None, None, None))
    finally:
        portal.close()
