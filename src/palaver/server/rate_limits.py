"""Token buckets: `rate` requests per second per caller, with bursts. In this process, or shared by all workers."""

from __future__ import annotations

import fcntl
import mmap
import os
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Protocol

from palaver.core.bounded_dict import BoundedDict

REMEMBERED_CALLERS = 10_000
SLOTS, PROBES = 16_384, 8  # callers that a shared table remembers, and places where one is looked for
_SLOT = struct.Struct("<Qdd")  # the hash of a caller, its tokens, and when they were counted
Clock = Callable[[], float]


class RateLimit(Protocol):
    """A limit per caller. A rate of 0 means unlimited."""

    rate: float

    def take_token(self, caller: str) -> float | None:
        """Take a token. Returns None, or the seconds to wait if there is none."""
        ...


def _take(rate: float, burst: int, left: float, then: float, now: float) -> tuple[float, float | None]:
    """Return the tokens that are left, and the seconds to wait if there was none."""
    left = min(float(burst), left + max(0.0, now - then) * rate)
    return (left - 1, None) if left >= 1 else (left, (1 - left) / rate)


@dataclass(slots=True)
class TokenBucket:
    """The limit of one process."""

    rate: float
    burst: int
    _left: BoundedDict[str, tuple[float, float]] = field(default_factory=lambda: BoundedDict(REMEMBERED_CALLERS))

    def take_token(self, caller: str) -> float | None:
        if not self.rate:
            return None
        now = time.monotonic()
        left, wait = _take(self.rate, self.burst, *self._left.pop(caller, (float(self.burst), now)), now)
        self._left[caller] = (left, now)
        return wait


class SharedTokenBucket:
    """One limit for all processes on this machine: a table in a file that each of them maps into its memory.

    It takes some microseconds, under a lock of the file. A caller that is pushed out of a full table starts again
    with a full burst.
    """

    def __init__(self, rate: float, burst: int, path: Path, clock: Clock = time.monotonic) -> None:
        self.rate, self.burst, self._clock = rate, burst, clock  # the monotonic clock is the machine's, not a process's
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        os.ftruncate(self._file, SLOTS * _SLOT.size)
        self._table = mmap.mmap(self._file, SLOTS * _SLOT.size)

    def take_token(self, caller: str) -> float | None:
        if not self.rate:
            return None
        key = int.from_bytes(blake2b(caller.encode(), digest_size=8).digest(), "little") or 1
        with self._locked():
            now = self._clock()
            place, left, then = self._find(key, now)
            left, wait = _take(self.rate, self.burst, left, then, now)
            _SLOT.pack_into(self._table, place, key, left, now)
        return wait

    def _find(self, key: int, now: float) -> tuple[int, float, float]:
        """Return the place of a caller and its tokens. A new caller gets the place that was unused the longest."""
        places = [(key + probe) % SLOTS * _SLOT.size for probe in range(PROBES)]
        slots = [(*_SLOT.unpack_from(self._table, place), place) for place in places]
        for found, left, then, place in slots:
            if found == key:
                return place, left, then
        return min(slots, key=lambda slot: (slot[0] != 0, slot[2]))[3], float(self.burst), now

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)


def make_limit(name: str, rate: float, burst: int, folder: Path | None) -> RateLimit:
    """Make a limit: shared by the processes that have the same folder, otherwise for this process alone."""
    return TokenBucket(rate, burst) if folder is None else SharedTokenBucket(rate, burst, folder / f"{name}.limits")
