"""Waking subscribers: at once after a commit of this process, and soon after one of another process."""

from __future__ import annotations

import asyncio

import apsw

from palaver.engines.sqlite.readers import DedicatedReader, Readers
from palaver.engines.wakeup import WakeupHub

# Seconds between two looks at the file: after a change, and after a long time without one.
QUICK, SLOW = 0.02, 0.25


class FileWatcher(WakeupHub):
    """The subscribers of one SQLite file. SQLite has no notifications, so other processes' commits are polled for."""

    def __init__(self, readers: Readers) -> None:
        super().__init__()
        self.readers = readers

    async def _follow(self) -> None:
        reader = DedicatedReader(await asyncio.to_thread(self.readers.connect))
        try:
            await self._poll(reader)
        finally:
            await reader.close()

    async def _poll(self, reader: DedicatedReader) -> None:
        seen, pause = await reader.run(_data_version), QUICK
        while True:
            await asyncio.sleep(pause)
            version = await reader.run(_data_version)
            pause = QUICK if version != seen else min(SLOW, pause * 1.25)
            if version != seen:
                seen = version
                self.wake(list(self._wakers))


def _data_version(db: apsw.Connection) -> int:
    """Return a number that changes whenever another connection has committed."""
    return int(str(db.execute("PRAGMA data_version").get))
