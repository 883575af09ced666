"""Requests that an SDK sends again. They carry no key of their own, only a count: the body tells which one is meant."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

SECONDS = 600.0  # so long after its end an answer is told again
MOST = 512  # that are remembered
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
class Retries(Generic[T]):
    """What was asked lately here, by who asked and what."""

    _known: OrderedDict[Key, asyncio.Task[T]] = field(default_factory=OrderedDict)

    async def once(self, key: Key, again: bool, begin: Callable[[], Awaitable[T]]) -> tuple[T, bool]:
        """What `begin` makes; for a retry, what it made before, and True. The first try may be beginning still."""
        known = self._known.get(key) if again else None
        if known is not None and not _is_usable(known):
            known = None
        task = known or self._begun(key, begin)
        # Whoever hangs up here does not end what another connection waits for.
        return await asyncio.shield(task), known is not None

    def _begun(self, key: Key, begin: Callable[[], Awaitable[T]]) -> asyncio.Task[T]:
        task = asyncio.ensure_future(begin())
        assert isinstance(task, asyncio.Task)
        self._known.pop(key, None)
        self._known[key] = task
        while len(self._known) > MOST:
            self._known.popitem(last=False)
        return task

    def forget(self, key: Key) -> None:
        self._known.pop(key, None)


def _is_usable(task: asyncio.Task[T]) -> bool:
    if not task.done():
        return True
    if task.cancelled() or task.exception() is not None:
        return False
    ended = task.result().ended
    return ended is None or time.monotonic() - ended < SECONDS
