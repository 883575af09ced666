"""How those who follow a conversation are woken, on every engine."""

from __future__ import annotations

import asyncio

from palaver.errors import StoreClosed


class Waker:
    """The Signal of one subscriber. A wake-up that comes while nobody waits is kept."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._closed = False

    def set(self) -> None:
        self._event.set()

    def close(self) -> None:
        """There will be no more news: whoever waits, or comes back to wait, hears that."""
        self._closed = True
        self._event.set()

    async def wait(self) -> None:
        await self._event.wait()
        if self._closed:
            raise StoreClosed
        self._event.clear()
