"""Wakes readers of a log: at once after a commit of this process, and milliseconds after a commit of another one.

NOTIFY inside the writing transaction would serialise commits. So the names of changed conversations are collected for a
moment and sent on a connection of their own. One connection listens for the whole process. A lost notification delays a
reader and never loses an event: readers continue from an event number, and poll from time to time anyway.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import lru_cache

import asyncpg

from palaver.core.identity import canonical_json, digest, from_json
from palaver.engines.postgres.address import Address
from palaver.engines.postgres.failures import DRIVER_ERRORS
from palaver.engines.postgres.transports import CLOSE_SECONDS, Connection
from palaver.engines.wakeup import JOBS, WakeupHub

CHANNEL = "palaver"
COLLECT_SECONDS = 0.005
POLL_FAST, POLL_SLOW = 0.05, 1.0  # seconds between polls without notifications: after a commit, and when it is quiet
POLL_LISTENING = 5.0  # seconds between polls while notifications arrive
BATCH = 200  # names in one notification, whose limit is 8,000 bytes


@lru_cache(maxsize=4_096)
def _hashed_name(conversation: str) -> str:
    return digest((conversation,)).hex()[:24]


class CommitHub(WakeupHub):
    """The subscribers of this process. It also notifies other processes of commits."""

    def __init__(self, address: Address | None) -> None:
        super().__init__()
        self.address = address  # None: this process can neither send nor receive notifications
        self._changed: set[str] = set()
        self._notifier: asyncio.Task[None] | None = None
        self._pause = POLL_FAST
        self._sending: Connection | None = None

    def _name(self, conversation: str) -> str:
        """Return a hash: every login of the database can listen, and must not learn ids."""
        return conversation if conversation == JOBS else _hashed_name(conversation)

    def committed(self, conversation: str) -> None:
        """Wake the subscribers of this process now, and those of others soon."""
        name = self._name(conversation)
        self.wake((name, JOBS))
        self._pause = POLL_FAST  # a change is often followed by more
        if self.address is not None:
            self._changed.add(name)
            if self._notifier is None or self._notifier.done():
                self._notifier = asyncio.create_task(self._notify(), name="palaver-notify")

    async def close(self) -> None:
        await super().close()
        if self._notifier is not None:
            await self._finish_notifying(self._notifier)
        if self._sending is not None and not self._sending.is_closed():
            with suppress(*DRIVER_ERRORS):
                await self._sending.close(timeout=CLOSE_SECONDS)

    async def _finish_notifying(self, notifier: asyncio.Task[None]) -> None:
        """Send what is left, as long as the server answers."""
        await asyncio.wait([notifier], timeout=CLOSE_SECONDS)
        if not notifier.done():
            if self._sending is not None:
                self._sending.terminate()
            notifier.cancel()
        await asyncio.gather(notifier, return_exceptions=True)

    def _wake_all(self) -> None:
        self.wake([name for name in self._wakers if name != JOBS])

    async def _notify(self) -> None:
        while self._changed:
            await asyncio.sleep(COLLECT_SECONDS)
            names = [self._changed.pop() for _ in range(min(BATCH, len(self._changed)))]
            try:
                connection = await self._sending_connection()
                # Hashes need no quoting. A statement without parameters takes one round trip instead of two.
                await connection.execute(f"NOTIFY {CHANNEL}, '{canonical_json(names)}'")
            except DRIVER_ERRORS:
                return  # readers in other processes poll

    async def _sending_connection(self) -> Connection:
        if self._sending is None or self._sending.is_closed():
            self._sending = await _connect(self.address)
            await self._sending.execute("SET synchronous_commit = off")  # a notification may be lost: see above
        return self._sending

    async def _follow(self) -> None:
        """Receive notifications. While that fails, poll: fast after a commit, then less and less often."""
        self._pause = POLL_FAST
        while True:
            try:
                await self._receive()
            except DRIVER_ERRORS:
                self._wake_all()
            await asyncio.sleep(self._pause)
            self._pause = min(POLL_SLOW, self._pause * 1.25)

    async def _receive(self) -> None:
        if self.address is None:
            raise ConnectionError
        connection = await _connect(self.address)
        try:
            await connection.add_listener(CHANNEL, lambda *notice: self.wake(from_json(str(notice[-1]))))
            while not connection.is_closed():
                self._wake_all()  # for commits before LISTEN, and for lost notifications
                await asyncio.sleep(POLL_LISTENING)
        finally:
            with suppress(*DRIVER_ERRORS):
                await connection.close(timeout=CLOSE_SECONDS)


async def _connect(address: Address | None) -> Connection:
    assert address is not None
    options = {**address.driver_options(), "statement_cache_size": 0, "command_timeout": address.command_timeout}
    return await asyncpg.connect(address.dsn, **options)
