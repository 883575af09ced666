"""Waking the subscribers of a conversation, on every engine."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from palaver.errors import StoreClosed

JOBS = "*jobs*"  # the name under which a worker waits for jobs


class Waker:
    """The Signal of one subscriber. A wake-up that comes while it is not waiting is kept."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._event = asyncio.Event()
        self._closed = False

    def set(self) -> None:
        """Wake the subscriber. Safe from any thread."""
        call_in(self._loop, self._event.set)

    def close(self) -> None:
        """Make the current and every later `wait` raise StoreClosed. Safe from any thread."""
        self._closed = True
        self.set()

    async def wait(self) -> None:
        await self._event.wait()
        if self._closed:
            raise StoreClosed
        self._event.clear()


class WakeupHub(ABC):
    """The subscribers of this process. It follows other processes only while a conversation has a subscriber."""

    def __init__(self) -> None:
        self._wakers: dict[str, set[Waker]] = {}
        self._follower: asyncio.Task[None] | None = None
        self._closed = False

    @abstractmethod
    async def _follow(self) -> None:
        """Wake subscribers after commits of other processes, until cancelled."""

    def _name(self, conversation: str) -> str:
        """Return the name under which the subscribers of a conversation are kept."""
        return conversation

    def watch(self, conversation: str) -> Subscription:
        """Subscribe to a conversation. Subscribers of `JOBS` are woken only by commits of this process."""
        return Subscription(self, conversation)

    def _add(self, conversation: str) -> Waker:
        if self._closed:
            raise StoreClosed
        waker = Waker()
        self._wakers.setdefault(self._name(conversation), set()).add(waker)
        if conversation != JOBS and (self._follower is None or self._follower.done()):
            self._follower = asyncio.create_task(self._follow(), name="palaver-watch")
        return waker

    async def _remove(self, conversation: str, waker: Waker) -> None:
        name = self._name(conversation)
        self._wakers[name].discard(waker)
        if not self._wakers[name]:
            del self._wakers[name]
        if not self._wakers.keys() - {JOBS}:
            await self._stop_following()

    async def close(self) -> None:
        """Make every subscriber raise StoreClosed."""
        self._closed = True
        for wakers in list(self._wakers.values()):
            for waker in list(wakers):
                waker.close()
        await self._stop_following()

    def wake(self, names: Iterable[str]) -> None:
        """Wake the subscribers of these names. Safe from any thread."""
        for name in names:
            for waker in list(self._wakers.get(name, ())):
                waker.set()

    async def _stop_following(self) -> None:
        follower, self._follower = self._follower, None
        if follower is None or follower is asyncio.current_task():
            return
        if follower.get_loop() is asyncio.get_running_loop():
            follower.cancel()
            await asyncio.gather(follower, return_exceptions=True)
        else:
            call_in(follower.get_loop(), follower.cancel)


def call_in(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    """Call a function in an event loop, from any thread."""
    try:
        loop.call_soon_threadsafe(call)
    except RuntimeError:
        pass  # that loop is closed, and its subscribers are gone with it


class Subscription:
    """The block of one subscriber.

    Not an async generator: at exit the event loop closes all of those at once, while its user is still in the block.
    """

    def __init__(self, hub: WakeupHub, conversation: str) -> None:
        self._hub, self._conversation = hub, conversation

    async def __aenter__(self) -> Waker:
        self._waker = self._hub._add(self._conversation)
        return self._waker

    async def __aexit__(self, *problem: object) -> None:
        await self._hub._remove(self._conversation, self._waker)
