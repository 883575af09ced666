"""Waking readers: at once after a commit of this process, and soon after one of another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

import apsw

from palaver.engines.sqlite.connection import DedicatedReader, Readers
from palaver.engines.wakeup import Waker
from palaver.errors import StoreClosed

JOBS = "*jobs*"  # the name under which a worker waits for work
QUICK, SLOW = 0.02, 0.25  # seconds between two looks at the file, after news and after a long silence


class Hub:
    """Who waits for which conversation. It looks for other processes' commits only while somebody waits."""

    def __init__(self, readers: Readers) -> None:
        self.readers = readers
        self._wakers: dict[str, set[tuple[asyncio.AbstractEventLoop, Waker]]] = {}
        self._poller: asyncio.Task[None] | None = None
        self._closed = False

    @asynccontextmanager
    async def watch(self, conversation: str) -> AsyncIterator[Waker]:
        """A signal for one conversation; for `*jobs*`, one that only this process's own writes set."""
        if self._closed:
            raise StoreClosed
        waker = Waker()
        entry = (asyncio.get_running_loop(), waker)
        self._wakers.setdefault(conversation, set()).add(entry)
        if conversation != JOBS and (self._poller is None or self._poller.done()):
            self._poller = asyncio.create_task(self._poll(), name="palaver-watch")
        try:
            yield waker
        finally:
            self._wakers[conversation].discard(entry)
            if not self._wakers[conversation]:
                del self._wakers[conversation]
            if not self._wakers.keys() - {JOBS}:
                await self._rest()

    def committed(self, conversations: set[str]) -> None:
        """Called by the writer thread."""
        self._tell_all(conversations, Waker.set)

    async def close(self) -> None:
        """Those who wait are told."""
        self._closed = True
        self._tell_all(set(self._wakers), Waker.close)
        await self._rest()

    def _tell_all(self, conversations: Iterable[str], news: Callable[[Waker], None]) -> None:
        for conversation in conversations:
            for loop, waker in list(self._wakers.get(conversation, ())):
                _tell(loop, news, waker)

    async def _rest(self) -> None:
        poller, self._poller = self._poller, None
        if poller is None or poller is asyncio.current_task():
            return
        if poller.get_loop() is asyncio.get_running_loop():
            poller.cancel()
            await asyncio.gather(poller, return_exceptions=True)
        else:
            _tell(poller.get_loop(), poller.cancel)

    async def _poll(self) -> None:
        reader = DedicatedReader(await asyncio.to_thread(self.readers.connect))
        try:
            await self._watch_file(reader)
        finally:
            await reader.close()

    async def _watch_file(self, reader: DedicatedReader) -> None:
        seen, pause = await reader.run(_data_version), QUICK
        while True:
            await asyncio.sleep(pause)
            found = await reader.run(_data_version)
            pause = QUICK if found != seen else min(SLOW, pause * 1.25)
            if found != seen:
                seen = found
                self.committed(set(self._wakers))


def _tell(loop: asyncio.AbstractEventLoop, call: Callable[..., object], *arguments: Any) -> None:
    try:
        loop.call_soon_threadsafe(call, *arguments)
    except RuntimeError:
        pass  # that loop is closed, and its subscriber with it


def _data_version(db: apsw.Connection) -> Any:
    """A number that changes when another connection has committed."""
    return db.execute("PRAGMA data_version").fetchall()[0][0]
