"""The end of an open database: it is closed once, by whoever comes first."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from palaver.core.concurrency import run_uncancelled


@dataclass(slots=True)
class Lifetime:
    """What closes an open database. All scopes of the database share it."""

    manager: AbstractAsyncContextManager[object] | None = None

    async def close(self) -> None:
        """Close the database. If the caller is cancelled, the database is closed all the same."""
        manager, self.manager = self.manager, None
        if manager is not None:
            await run_uncancelled(_leave(manager))


async def _leave(manager: AbstractAsyncContextManager[object]) -> None:
    await manager.__aexit__(None, None, None)
