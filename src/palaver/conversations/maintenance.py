"""Maintenance of a database: expiry, sweeping, and waiting for background work."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from palaver.conversations.clock_watch import ClockWatch
from palaver.conversations.deletion import BLOB_BATCH, check_scrubbed, delete_pending_blobs
from palaver.conversations.open_options import clean_minutes
from palaver.core.identity import micros
from palaver.core.rights import require_right
from palaver.core.validation import clean_moment
from palaver.errors import FilesNotConfigured
from palaver.memory.worker.loop import Worker
from palaver.model import WRITE, Scope, Swept
from palaver.ports.blobs import Blobs
from palaver.ports.clock import Clock
from palaver.ports.engine import Engine
from palaver.ports.queries import Deletion

UNATTACHED = timedelta(days=1)  # how long a file may wait for the turn that it is attached to


@dataclass(frozen=True, slots=True)
class Maintenance:
    """Deletes expired data that the scope may see."""

    engine: Engine
    scope: Scope
    blobs: Blobs
    clock: Clock
    clock_watch: ClockWatch
    worker: Worker
    resume_erasures: Callable[[], Awaitable[None]]

    async def expire(self) -> list[str]:
        require_right(self.scope, WRITE)
        expired = await self._repeat(lambda: self.engine.expire(self.scope))
        await self.delete_pending_blobs()
        await self._scrub(expired)
        return list(expired.conversations)

    async def sweep(self, retention_minutes: float | None, *, list_files: bool = True) -> Swept:
        """Sweep once. Listing all files may be slow: a bucket may hold millions of them."""
        require_right(self.scope, WRITE)
        await self.resume_erasures()
        sealed = await self.engine.abort_expired_streams()
        expired = await self._repeat(lambda: self.engine.expire(self.scope))
        aged = Deletion()
        if retention_minutes is not None:
            before = clean_moment("retention_minutes", self.clock.now() - clean_minutes(retention_minutes))
            aged = await self._repeat(lambda: self.engine.forget_older(self.scope, before))
        files = await self._delete_unattached_files()
        if list_files:
            files += await self._delete_unknown_blobs()
        await self._scrub(expired, aged)
        return Swept(conversations=expired.conversations, turns=len(aged.turns), streams=sealed, files=files)

    async def settle(self) -> None:
        await self.engine.abort_expired_streams()
        await self.delete_pending_blobs()
        await self.worker.drain(self.scope.tenant)
        check_scrubbed(self.engine, await self.engine.scrub())

    async def finish_deletions(self) -> None:
        """Finish the deletions that an earlier process began."""
        await self.engine.finish_deletions(self.scope)
        await self.delete_pending_blobs()

    async def _scrub(self, *deletions: Deletion) -> None:
        """Remove the old bytes of what was deleted."""
        if any(one.conversations or one.turns for one in deletions):
            check_scrubbed(self.engine, await self.engine.scrub())

    async def delete_pending_blobs(self) -> None:
        await delete_pending_blobs(self.engine, self.blobs)

    async def _repeat(self, step: Callable[[], Awaitable[Deletion]]) -> Deletion:
        """Delete batch by batch until nothing is left. The old bytes are removed at the end.

        It stops when the clock jumps ahead. A missing location for files is reported at the end: it must not keep rows
        from being deleted.
        """
        whole = Deletion()
        while self.clock_watch.is_steady() and ((one := await step()).conversations or one.turns):
            with suppress(FilesNotConfigured):
                await self.delete_pending_blobs()
            whole = Deletion(whole.conversations + one.conversations, whole.turns + one.turns)
        return whole

    async def _delete_unattached_files(self) -> int:
        """Delete the files that were uploaded and never attached to a turn."""
        if not self.clock_watch.is_steady():
            return 0
        deleted, long_ago = 0, micros(self.clock.now() - UNATTACHED)
        while count := await self.engine.drop_loose_files(self.scope, long_ago):
            deleted += count
        await self.delete_pending_blobs()
        return deleted

    async def _delete_unknown_blobs(self) -> int:
        """Delete the bytes that no row names. This lists the whole folder or bucket."""
        if not self.clock_watch.is_steady():
            return 0
        deleted, long_ago = 0, self.clock.now() - UNATTACHED
        batch: list[str] = []
        async for path, since in self.blobs.listed():
            if since < long_ago:
                batch.append(path)
            if len(batch) == BLOB_BATCH:
                deleted += await self._delete_orphans(batch)
                batch = []
        return deleted + await self._delete_orphans(batch)

    async def _delete_orphans(self, paths: list[str]) -> int:
        orphans = await self.engine.orphans(self.scope, paths) if paths else []
        for path in orphans:
            await self.blobs.delete(path)
        return len(orphans)
