"""Waking readers: at once after a commit of this process, and some milliseconds after one of another.

A notification inside the writing transaction would make commits wait for each other. So writers are told nothing: what
was committed is gathered for a moment and announced on a connection of its own. One connection listens for the whole
process. A lost notification costs time and never an event: readers go on from a number, and look now and then anyway.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from itertools import chain
from typing import Any

import asyncpg

from palaver.core.identity import canonical_json, digest, from_json
from palaver.engines.postgres.transports import address
from palaver.engines.wakeup import Waker
from palaver.errors import StoreClosed

JOBS = "*jobs*"  # the name under which a worker waits for work
CHANNEL = "palaver"
GATHER = 0.005  # seconds
QUICK, SLOW, SAFE = 0.05, 1.0, 5.0  # seconds between two looks: after news, in silence, and beside notifications
BATCH = 200  # names in one notification, which may have 8,000 bytes
FAILURES = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError)


class Hub:
    """Who waits for which conversation. It listens only while somebody waits."""

    def __init__(self, url: str | None) -> None:
        self.url = url
        self._wakers: dict[str, set[Waker]] = {}
        self._gathered: set[str] = set()
        self._announcer: asyncio.Task[None] | None = None
        self._listener: asyncio.Task[None] | None = None
        self._pause = QUICK
        self._voice: Any = None
        self._closed = False

    @asynccontextmanager
    async def watch(self, conversation: str) -> AsyncIterator[Waker]:
        if self._closed:
            raise StoreClosed
        waker = Waker()
        name = _name(conversation)
        self._wakers.setdefault(name, set()).add(waker)
        if conversation != JOBS and (self._listener is None or self._listener.done()):
            self._listener = asyncio.create_task(self._listen(), name="palaver-watch")
        try:
            yield waker
        finally:
            self._wakers[name].discard(waker)
            if not self._wakers[name]:
                del self._wakers[name]
            if not self._wakers.keys() - {JOBS}:
                await self._deafen()

    def committed(self, conversation: str) -> None:
        """Something was stored: those here hear of it now, those elsewhere soon."""
        name = _name(conversation)
        self._wake((name, JOBS))
        self._pause = QUICK  # where there is news, there may be more
        if self.url is not None:
            self._gathered.add(name)
            if self._announcer is None or self._announcer.done():
                self._announcer = asyncio.create_task(self._announce(), name="palaver-notify")

    async def close(self) -> None:
        """Those who wait are told."""
        self._closed = True
        for waker in chain(*self._wakers.values()):
            waker.close()
        await self._deafen()
        if self._announcer is not None:
            await asyncio.gather(self._announcer, return_exceptions=True)
        if self._voice is not None:
            with suppress(*FAILURES):
                await self._voice.close()

    async def _deafen(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.cancel()
            await asyncio.gather(listener, return_exceptions=True)

    def _wake(self, names: Iterable[str]) -> None:
        for name in names:
            for waker in self._wakers.get(name, ()):
                waker.set()

    def _wake_all(self) -> None:
        self._wake([name for name in self._wakers if name != JOBS])

    async def _announce(self) -> None:
        while self._gathered:
            await asyncio.sleep(GATHER)
            names = [self._gathered.pop() for _ in range(min(BATCH, len(self._gathered)))]
            try:
                if self._voice is None or self._voice.is_closed():
                    self._voice = await _connect(self.url)
                    await self._voice.execute("SET synchronous_commit = off")  # it may be lost: see above
                await self._voice.execute("SELECT pg_notify($1, $2)", CHANNEL, canonical_json(names))
            except FAILURES:
                return  # readers elsewhere look now and then anyway

    async def _listen(self) -> None:
        """Hear what others announce; where that is not to be had, look again and again, less often in silence."""
        self._pause = QUICK
        while True:
            try:
                await self._hear()
            except FAILURES:
                self._wake_all()
            await asyncio.sleep(self._pause)
            self._pause = min(SLOW, self._pause * 1.25)

    async def _hear(self) -> None:
        if self.url is None:
            raise ConnectionError
        connection = await _connect(self.url)
        try:
            await connection.add_listener(CHANNEL, lambda *told: self._wake(from_json(told[-1])))
            while not connection.is_closed():
                self._wake_all()  # what was committed before we listened, or was lost
                await asyncio.sleep(SAFE)
        finally:
            with suppress(*FAILURES):
                await connection.close()


async def _connect(url: str | None) -> Any:
    assert url is not None
    return await asyncpg.connect(address(url)[0], statement_cache_size=0, timeout=10)


def _name(conversation: str) -> str:
    """A conversation, to those who know it: anybody who may connect can listen."""
    return conversation if conversation == JOBS else digest((conversation,)).hex()[:24]
