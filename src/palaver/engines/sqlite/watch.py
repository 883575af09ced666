"""Waking readers: at once after a commit of this process, and soon after one of another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import apsw

from palaver.engines.sqlite.connection import Readers

JOBS = "*jobs*"  # the name under which a worker waits for work
QUICK, SLOW = 0.02, 0.25  # seconds between two looks at the file, after news and after a long silence


class Waker:
    """The Signal of one subscriber. A wake-up that comes while nobody waits is kept."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        self._event.set()

    async def wait(self) -> None:
        await self._event.wait()
        self._event.clear()


class Hub:
    """Who waits for which conversation. It looks for other processes' commits only while somebody waits."""

    def __init__(self, readers: Readers) -> None:
        self.readers = readers
        self._wakers: dict[str, set[tuple[asyncio.AbstractEventLoop, Waker]]] = {}
        self._poller: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def watch(self, conversation: str) -> AsyncIterator[Waker]:
        """A signal for one conversation; for `*jobs*`, one that only this process's own writes set."""
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
                await self.close()

    def committed(self, conversations: set[str]) -> None:
        """Called by the writer thread."""
        for conversation in conversations:
            for loop, waker in list(self._wakers.get(conversation, ())):
                try:
                    loop.call_soon_threadsafe(waker.set)
                except RuntimeError:
                    pass  # that loop is closed, and its subscriber with it

    async def close(self) -> None:
        poller, self._poller = self._poller, None
        if poller is not None and poller is not asyncio.current_task():
            poller.cancel()
            await asyncio.gather(poller, return_exceptions=True)

    async def _poll(self) -> None:
        db = await asyncio.to_thread(self.readers.connect)
        try:
            await self._watch_file(db)
        finally:
            db.close()

    async def _watch_file(self, db: apsw.Connection) -> None:
        seen, pause = await asyncio.to_thread(_data_version, db), QUICK
        while True:
            await asyncio.sleep(pause)
            found = await asyncio.to_thread(_data_version, db)
            pause = QUICK if found != seen else min(SLOW, pause * 1.25)
            if found != seen:
                seen = found
                self.committed(set(self._wakers))


def _data_version(db: apsw.Connection) -> Any:
    """A number that changes when another connection has committed."""
    return db.execute("PRAGMA data_version").fetchall()[0][0]
