"""Waking readers: at once after a commit of this process, and some milliseconds after one of another.

A notification inside the writing transaction would make commits wait for each other. So writers are told nothing: what
was committed is gathered for a moment and announced on a connection of its own. One connection listens for the whole
process. A lost notification costs time and never an event: readers go on from a number, and look now and then anyway.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import asyncpg

from palaver.core.identity import canonical_json, digest, from_json
from palaver.engines.postgres.transports import address
from palaver.engines.wakeup import JOBS, WakeupHub

CHANNEL = "palaver"
GATHER = 0.005  # seconds
QUICK, SLOW, SAFE = 0.05, 1.0, 5.0  # seconds between two looks: after news, in silence, and beside notifications
BATCH = 200  # names in one notification, which may have 8,000 bytes
FAILURES = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError)


class Hub(WakeupHub):
    """The subscribers of this process, which also tells other processes of commits."""

    def __init__(self, url: str | None) -> None:
        super().__init__()
        self.url = url
        self._gathered: set[str] = set()
        self._announcer: asyncio.Task[None] | None = None
        self._pause = QUICK
        self._voice: Any = None

    def _name(self, conversation: str) -> str:
        """Return a hash: anyone who may connect to the database can listen to notifications."""
        return conversation if conversation == JOBS else digest((conversation,)).hex()[:24]

    def committed(self, conversation: str) -> None:
        """Wake subscribers here now, and those in other processes soon."""
        name = self._name(conversation)
        self.wake((name, JOBS))
        self._pause = QUICK  # where there is news, there may be more
        if self.url is not None:
            self._gathered.add(name)
            if self._announcer is None or self._announcer.done():
                self._announcer = asyncio.create_task(self._announce(), name="palaver-notify")

    async def close(self) -> None:
        await super().close()
        if self._announcer is not None:
            await asyncio.gather(self._announcer, return_exceptions=True)
        if self._voice is not None:
            with suppress(*FAILURES):
                await self._voice.close()

    def _wake_all(self) -> None:
        self.wake([name for name in self._wakers if name != JOBS])

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

    async def _follow(self) -> None:
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
            await connection.add_listener(CHANNEL, lambda *told: self.wake(from_json(told[-1])))
            while not connection.is_closed():
                self._wake_all()  # what was committed before we listened, or was lost
                await asyncio.sleep(SAFE)
        finally:
            with suppress(*FAILURES):
                await connection.close()


async def _connect(url: str | None) -> Any:
    assert url is not None
    return await asyncpg.connect(address(url)[0], statement_cache_size=0, timeout=10)
