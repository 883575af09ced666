"""The end of an open database, which is closed only once."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from palaver.core.concurrency import run_uncancelled


@dataclass(slots=True)
class Lifetime:
    """The means to close an open database. All its scopes share it."""

    manager: AbstractAsyncContextManager[object] | None = None

    async def close(self) -> None:
        """Close the database. If the caller is cancelled, the database is still closed."""
        manager, self.manager = self.manager, None
        if manager is not None:
            await run_uncancelled(_leave(manager))


async def _leave(manager: AbstractAsyncContextManager[object]) -> None:
    await manager.__aexit__(None, None, None)
