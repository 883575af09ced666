"""Token buckets: `rate` requests per second per caller, with bursts.

In this process, shared by all workers of a server, or shared by all servers of one database.
"""

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
from palaver.core.budgets import WINDOW, Amounts
from palaver.errors import EngineError
from palaver.ports.budgets import Account, BudgetStore, Charge

REMEMBERED_CALLERS = 10_000
SLOTS, PROBES = 16_384, 8  # callers that a shared table remembers, and places where one is looked for
_SLOT = struct.Struct("<Qdd")  # the hash of a caller, its tokens, and when they were counted
LEASES = 20  # parts of a window that processes take
Clock = Callable[[], float]


class RateLimit(Protocol):
    """A limit per caller. A rate of 0 means unlimited."""

    rate: float

    async def take(self, caller: str, counts: BudgetStore) -> float | None:
        """Take a token. Returns None, or the seconds to wait if there is none. `counts` are those of the database."""
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

    async def take(self, caller: str, counts: BudgetStore) -> float | None:
        return self.take_token(caller)

    def take_token(self, caller: str) -> float | None:
        """Take a token. Returns None, or the seconds to wait if there is none."""
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

    async def take(self, caller: str, counts: BudgetStore) -> float | None:
        return self.take_token(caller)

    def take_token(self, caller: str) -> float | None:
        """Take a token. Returns None, or the seconds to wait if there is none."""
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


@dataclass(slots=True)
class _Lease:
    """Tokens of one window that this process has taken from the database, and whether there are no more."""

    window: int
    left: int = 0
    is_used_up: bool = False


@dataclass(slots=True)
class DatabaseTokenBucket:
    """One limit for all servers of a database: `burst` requests per caller in each window of `burst / rate` seconds.

    A process takes a twentieth of a window at a time, so that few requests wait for the database. Tokens that it took
    and did not use end with the window. While the database cannot be reached, each process limits alone.
    """

    name: str
    rate: float
    burst: int
    tenant: str
    clock: Clock = time.time  # that of all machines
    _leases: BoundedDict[str, _Lease] = field(default_factory=lambda: BoundedDict(REMEMBERED_CALLERS))
    _alone: TokenBucket = field(init=False)

    def __post_init__(self) -> None:
        self._alone = TokenBucket(self.rate, self.burst)

    async def take(self, caller: str, counts: BudgetStore) -> float | None:
        if not self.rate:
            return None
        seconds, now = self.burst / self.rate, self.clock()
        window = int(now / seconds)
        lease = self._leases.pop(caller, None)
        if lease is None or lease.window != window:
            lease = _Lease(window)
        self._leases[caller] = lease
        try:
            if lease.left < 1 and not lease.is_used_up:
                await self._renew(caller, lease, counts)
        except EngineError:
            return self._alone.take_token(caller)
        if lease.left < 1:
            return (window + 1) * seconds - now
        lease.left -= 1
        return None

    async def _renew(self, caller: str, lease: _Lease, counts: BudgetStore) -> None:
        """Take a part of the window, or as much as is left of it."""
        name = blake2b(f"{self.name} {caller}".encode(), digest_size=16).hexdigest()
        account = Account("key", name, f"{WINDOW}{lease.window:012d}")
        wanted = max(1, self.burst // LEASES)
        while wanted:
            charge = Charge(account, Amounts(requests=wanted), {"requests": self.burst})
            over = await counts.spend(self.tenant, [charge])
            if over is None:
                lease.left += wanted
                return
            wanted = min(wanted - 1, self.burst - over.used)
        lease.is_used_up = lease.left < 1


def make_limit(name: str, rate: float, burst: int, folder: Path | None, tenant: str | None = None) -> RateLimit:
    """Make a limit: shared by the servers of a database if `tenant` is given, else by the processes of a folder."""
    if tenant is not None:
        return DatabaseTokenBucket(name, rate, burst, tenant)
    return TokenBucket(rate, burst) if folder is None else SharedTokenBucket(rate, burst, folder / f"{name}.limits")
