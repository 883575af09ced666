"""The event loop that an open database belongs to."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from palaver.errors import WrongEventLoop


def require_asyncio() -> asyncio.AbstractEventLoop:
    """Return the running event loop, or raise `WrongEventLoop` where there is none (as under trio)."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise WrongEventLoop(
            "no asyncio event loop is running here; Palaver needs asyncio. Without one, and under trio "
            "(in a thread: trio.to_thread.run_sync), use palaver.sync"
        ) from None


class LoopGuard:
    """Rejects calls from any event loop but its own: the one that made it or, after a thread did, the first caller's.

    Connections, futures and tasks of an open database belong to one loop. Used from another one they would wait for
    ever, or fail with an error that names neither the store nor the reason.
    """

    def __init__(self) -> None:
        self._home: asyncio.AbstractEventLoop | None = None
        with suppress(RuntimeError):
            self._home = asyncio.get_running_loop()

    def check(self) -> None:
        running = require_asyncio()
        if self._home is None:
            self._home = running
        elif running is not self._home:
            raise WrongEventLoop(
                "this store was opened in another event loop. Open one store per event loop (palaver.open), "
                "or share one store of palaver.sync among threads and loops"
            )
