"""Requests that an SDK sends again. They carry only a retry count, no key, so the body identifies them."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from palaver.core.bounded_dict import BoundedDict

RETRY_SECONDS = 600.0  # how long after its end an answer is replayed to a retry
REMEMBERED = 512  # requests
COUNT = "x-stainless-retry-count"


class Repeatable(Protocol):
    @property
    def ended(self) -> float | None:
        """When it ended, by the monotonic clock; None while it runs."""
        ...


T = TypeVar("T", bound=Repeatable)
Key = tuple[str, ...]


def fingerprint(path: str, body: bytes) -> str:
    return hashlib.sha256(path.encode() + b"\0" + body).hexdigest()


def is_retry(count: str | None) -> bool:
    return count is not None and count.isascii() and count.isdigit() and int(count[:9]) > 0


@dataclass(slots=True)
class RetriedRequests(Generic[T]):
    """The latest requests of this process, by caller and body."""

    _known: BoundedDict[Key, asyncio.Task[T]] = field(default_factory=lambda: BoundedDict(REMEMBERED))

    async def run_once(self, key: Key, again: bool, begin: Callable[[], Awaitable[T]]) -> tuple[T, bool]:
        """Return the result of `begin`; for a retry, the earlier result and True. Waits if that is still running."""
        known = self._known.get(key) if again else None
        if known is not None and not _is_usable(known):
            known = None
        task = known or self._start_task(key, begin)
        # Shielded: a client that disconnects must not cancel what another connection waits for.
        return await asyncio.shield(task), known is not None

    def _start_task(self, key: Key, begin: Callable[[], Awaitable[T]]) -> asyncio.Task[T]:
        task = asyncio.ensure_future(begin())
        assert isinstance(task, asyncio.Task)
        self._known[key] = task
        return task


def _is_usable(task: asyncio.Task[T]) -> bool:
    if not task.done():
        return True
    if task.cancelled() or task.exception() is not None:
        return False
    ended = task.result().ended
    return ended is None or time.monotonic() - ended < RETRY_SECONDS
