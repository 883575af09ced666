"""Periodic deletion of expired data while a store is open."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from dataclasses import dataclass

from palaver.conversations.internals import engine_of, maintenance_of
from palaver.conversations.open_options import clean_minutes, clean_seconds
from palaver.conversations.store import Store
from palaver.errors import ScrubPending
from palaver.model import Scope
from palaver.ports.engine import TokenEngine

_log = logging.getLogger("palaver.sweeper")

LEASED_SHARE = 0.8  # of an interval: shorter than the shortest pause, so that the next round finds the lease ended
BUSY_SHARE = 9  # times as long as a sweep took is the least pause after it
LIST_FILES_EVERY = 86_400.0  # seconds: a bucket may hold millions of files


@dataclass(slots=True)
class Sweeper:
    """Sweeps periodically while a store is open: for its own scope, or for every tenant.

    Of many processes that sweep for every tenant, one sweeps a tenant in each interval: the first that takes its lease.
    If two should sweep at once nevertheless, each row is deleted by one of them.
    """

    store: Store
    every: float  # seconds
    retention_minutes: float | None = None
    every_tenant: bool = False
    listed: float | None = None  # when the files were last listed, by the monotonic clock

    def __post_init__(self) -> None:
        clean_seconds("sweep_every", self.every)
        if self.retention_minutes is not None:
            clean_minutes(self.retention_minutes)

    async def run(self) -> None:
        """Sweep until cancelled."""
        while True:
            began = time.monotonic()
            await self.sweep()
            # With many tenants a sweep may take long: it gets a tenth of the time at most.
            pause = max(self.every, BUSY_SHARE * (time.monotonic() - began))
            # Processes that were started together drift apart, so that they do not all sweep at once.
            await asyncio.sleep(pause * random.uniform(0.9, 1.1))

    async def sweep(self) -> int:
        """Sweep once, and return how many tenants were swept. A failure is logged by its type; the next round tries
        again."""
        list_files = self.listed is None or time.monotonic() - self.listed >= LIST_FILES_EVERY
        swept = 0
        try:
            for store in await self._stores():
                if await self._may_sweep(store):
                    await self._sweep_one(store, list_files)
                    swept += 1
            await engine_of(self.store).scrub()  # bytes that had to wait for a reader in an earlier round
        except Exception as problem:  # a full disk, a lost database or bucket must not end the sweeper
            _log.warning("a sweep was postponed (%s)", type(problem).__name__)
        else:
            self.listed = time.monotonic() if list_files else self.listed
        return swept

    async def _may_sweep(self, store: Store) -> bool:
        """Take the lease of a tenant, if others may sweep it, too."""
        lease = round(self.every * LEASED_SHARE * 1_000_000)
        return not self.every_tenant or await engine_of(store).take_lease(store.scope.tenant, "sweep", lease)

    async def _sweep_one(self, store: Store, list_files: bool) -> None:
        try:
            await maintenance_of(store).sweep(self.retention_minutes, list_files=list_files)
        except ScrubPending:
            pass  # deleted; the last bytes go when another reader closes its transaction

    async def _stores(self) -> list[Store]:
        engine = engine_of(self.store)
        if not self.every_tenant or (isinstance(engine, TokenEngine) and not engine.is_service):
            return [self.store]
        return [self.store.scoped(Scope.of(tenant, None)) for tenant in await engine.tenants()]
