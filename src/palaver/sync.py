"""Synchronous API, for scripts, web applications without asyncio, and notebooks.

    with palaver.sync.open("sqlite:///chat.db") as store:
        talk = store.conversation("support/42")
        talk.append("user", "I'm allergic to peanuts.")

    store = palaver.sync.open("sqlite:///chat.db")      # held for as long as you like
    store.close()                                       # or when the interpreter exits

Every method is the async one of the same name, run on a background event loop: the result is waited for, an async
iterator becomes an iterator, and `async with` becomes `with`. A store may be shared among threads.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures.thread  # noqa: F401  (registers its exit function before ours)
import functools
import inspect
import logging
import os
import threading
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import AbstractAsyncContextManager, suppress
from types import TracebackType
from typing import Any, Self, TypeVar
from weakref import WeakSet

from palaver.conversations.conversation import Conversation as AsyncConversation
from palaver.conversations.opener import open as open_store
from palaver.conversations.store import Store as AsyncStore
from palaver.conversations.subjects import Subject as AsyncSubject
from palaver.conversations.turn_writer import TurnWriter as AsyncTurnWriter
from palaver.errors import InvalidInput, StoreClosed, WrongEventLoop
from palaver.interchange.replication.report import ReplicationReport
from palaver.model import caller_level

T = TypeVar("T")

_log = logging.getLogger("palaver")
EXIT_SECONDS = 5.0  # for each open store, when the interpreter exits


class Portal:
    """One event loop on one background thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._closed = False
        self._gate = threading.RLock()  # a call that got in before the portal was closed gets an answer
        self._thread = threading.Thread(target=self.loop.run_forever, name="palaver-sync", daemon=True)
        self._thread.start()
        _portals.add(self)

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work` on the loop, and wait for it."""
        try:
            self._check_caller()
        except BaseException:
            work.close()
            raise
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

    def _check_caller(self) -> None:
        """Warn if this blocks a running event loop. Raise in the portal's own loop, which would wait for itself."""
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            return
        if running is self.loop:
            raise WrongEventLoop("palaver.sync cannot be called from its own event loop: use the async API here")
        warnings.warn(
            "palaver.sync blocks the running event loop; in async code and notebooks use "
            "`store = await palaver.open(…)` and await its methods",
            RuntimeWarning,
            stacklevel=caller_level(),
        )

    @property
    def is_here(self) -> bool:
        """Whether the thread runs. It does not in the child of a fork, which has nothing to close."""
        return self._thread.is_alive()

    def close(self, timeout: float | None = None) -> None:
        """Cancel what is running, stop the loop and wait for the thread, for at most `timeout` seconds each."""
        with self._gate:
            self._closed = True
        if not self.is_here:
            return
        asyncio.run_coroutine_threadsafe(self._wind_up(), self.loop).result(timeout)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(timeout)
        if not self._thread.is_alive():
            self.loop.close()

    async def _wind_up(self) -> None:
        """Wind up as `asyncio.run` does: cancel the tasks that other threads wait for, then close async generators."""
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self.loop.shutdown_asyncgens()


_portals: WeakSet[Portal] = WeakSet()
_open_stores: dict[Portal, AsyncStore] = {}  # kept here, so that a store nobody closes is still closed at exit


def _after_fork() -> None:
    """Close the portals in the child of a fork, where their threads do not exist."""
    _open_stores.clear()
    for portal in _portals:
        portal._closed, portal._gate = True, threading.RLock()  # another thread may have held the old one


os.register_at_fork(after_in_child=_after_fork)


def _close_at_exit() -> None:
    """Close the stores that are still open. Nothing here may keep the interpreter from exiting."""
    for portal, store in list(_open_stores.items()):
        try:
            asyncio.run_coroutine_threadsafe(store.aclose(), portal.loop).result(EXIT_SECONDS)
            portal.close(EXIT_SECONDS)
        except Exception as problem:  # the process ends anyway: say so, and continue with the next one
            _log.warning("a store was not closed at exit (%s)", type(problem).__name__)
        finally:
            _open_stores.pop(portal, None)
            portal._closed = True


# Closing a store needs executors, which are shut down before `atexit` functions run. So this is registered where they
# register themselves (in CPython, under a private name), and behind them: the last one registered is called first.
_register: Callable[[Callable[[], None]], object] = getattr(threading, "_register_atexit", atexit.register)
_register(_close_at_exit)


class Blocking:
    """An async object, with blocking methods. `Store`, `Conversation` and `TurnWriter` derive from it."""

    def __init__(self, portal: Portal, target: Any) -> None:
        self._portal, self._target = portal, target

    def __repr__(self) -> str:
        return f"<blocking {self._target!r}>"

    def __dir__(self) -> list[str]:
        return [name for name in dir(self._target) if not name.startswith("_")]

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._target, name)
        if not inspect.ismethod(value):
            return self._wrap(value)

        @functools.wraps(value)
        def method(*args: Any, **kwargs: Any) -> Any:
            bare = {name: _unwrap(arg) for name, arg in kwargs.items()}
            return self._wrap(value(*map(_unwrap, args), **bare))

        return method

    def _wrap(self, value: Any) -> Any:
        if isinstance(value, Awaitable):
            return self._wrap(self._portal.call(value if isinstance(value, Coroutine) else _wait(value)))
        for kind, blocking in _BLOCKING.items():
            if isinstance(value, kind):
                return blocking(self._portal, value)
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
                yield self._wrap(value)
        finally:
            if hasattr(source, "aclose"):
                with suppress(StoreClosed):  # it was closed with the store
                    self._portal.call(_close(source))

    def __enter__(self) -> Self:
        self._portal.call(_enter(self._target))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._portal.call(self._target.__aexit__(kind, problem, trace))


class Store(Blocking):
    """`palaver.Store`, with blocking methods."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the database for this store and all stores made from it. Later calls raise `StoreClosed`."""
        portal = self._portal
        if _open_stores.pop(portal, None) is None:  # closed already, or in the child of a fork
            return
        try:
            portal.call(self._target.aclose())
        finally:
            portal.close()


class Conversation(Blocking):
    """`palaver.Conversation`, with blocking methods."""


class Subject(Blocking):
    """`palaver.Subject`, with blocking methods."""


class TurnWriter(Blocking):
    """`palaver.TurnWriter`, with blocking methods."""


_BLOCKING: dict[type, type[Blocking]] = {
    AsyncStore: Store,
    AsyncConversation: Conversation,
    AsyncSubject: Subject,
    AsyncTurnWriter: TurnWriter,
}


def _unwrap(value: Any) -> Any:
    return value._target if isinstance(value, Blocking) else value


async def _wait(work: Awaitable[T]) -> T:
    return await work


async def _enter(manager: AbstractAsyncContextManager[T]) -> T:
    return await manager.__aenter__()


async def _close(source: Any) -> None:
    await source.aclose()


def home_of(store: Store) -> tuple[AsyncStore, asyncio.AbstractEventLoop]:
    """Return the asynchronous store behind `store`, and the event loop that it belongs to."""
    target: AsyncStore = store._target
    return target, store._portal.loop


def open(*args: Any, **kwargs: Any) -> Store:
    """Open a database, with the options of `palaver.open`. Close it with `close()`, or use it as a `with` block.

    A store that is still open when the interpreter exits is closed then.
    """
    portal = Portal()
    try:
        store = portal.call(_wait(open_store(*args, **kwargs)))
    except BaseException:
        portal.close()
        raise
    _open_stores[portal] = store
    return Store(portal, store)


def replicate(left: str | Mapping[str, Any], right: str | Mapping[str, Any], **options: Any) -> ReplicationReport:
    """Exchange conversations between two stores: `palaver.replicate`, which has the options.

    Both are addresses, or the options of `palaver.open`. An open store belongs to an event loop of its own.
    """
    from palaver.interchange.replication.run import replicate as replicate_stores

    for name, one in (("left", left), ("right", right)):
        if isinstance(one, Blocking):
            raise InvalidInput(name, "must be an address, or the options of palaver.open")
    portal = Portal()
    try:
        return portal.call(replicate_stores(left, right, **options))
    finally:
        portal.close()
