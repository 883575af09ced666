"""The log of one conversation: following it, reading it, and checking that nothing was changed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from dataclasses import dataclass

from palaver.audit.archive import read_events
from palaver.audit.verifier import Verifier
from palaver.conversations.attachments import AttachmentReader
from palaver.conversations.handle import Handle
from palaver.core.validation import clean_limit
from palaver.errors import RowUnreadable, VerificationFailed
from palaver.model import READ, Event, Verified
from palaver.ports.queries import EventQuery, Record

FOLLOW_PAGE = 500


def _before(archived: Sequence[Record], first: Record) -> list[Record]:
    """Return the archived events that come before the first one in the database."""
    return [record for record in archived if record.row["n"] < first.row["n"]]


@dataclass(frozen=True, slots=True)
class ConversationLog:
    """Reads the log of one conversation."""

    handle: Handle
    attachments: AttachmentReader

    async def subscribe(self, after: int) -> AsyncGenerator[Event]:
        self.handle.require(READ)
        seen = clean_limit("after", after, 2**53)
        await self.handle.refresh()
        engine, scope, id = self.handle.engine, self.handle.scope, self.handle.id
        async with engine.watch(id) as signal:
            while True:
                page = await engine.events(scope, id, EventQuery(after=seen, limit=FOLLOW_PAGE))
                for event in page:
                    yield event
                    seen = event.n
                    if event.kind in ("forget", "expire") and event.turn is None:
                        return
                if not page:
                    await signal.wait()

    async def verify(self, archive: Iterable[str] = ()) -> Verified:
        verifier = Verifier()
        files: list[str] = []
        archived = await asyncio.to_thread(read_events, archive, self.handle.id)
        try:
            async for page in self._all_records():
                known = [*page]
                if known[0].kind == "event":
                    known, archived = [*_before(archived, known[0]), *known], []
                await asyncio.to_thread(verifier.feed, known)
                files.extend(record.row["id"] for record in page if record.kind == "attachment")
        except RowUnreadable as problem:
            raise VerificationFailed(self.handle.id, problem.row, "it holds bytes that are not text") from None
        verified = verifier.finish()
        for id in files:
            await self.attachments.read(id)
        return verified

    def _all_records(self) -> AsyncIterator[Sequence[Record]]:
        self.handle.require(READ)
        return self.handle.engine.records(self.handle.scope, self.handle.id, derived=True)

    def records(self) -> AsyncIterator[Sequence[Record]]:
        self.handle.require(READ)
        return self.handle.engine.records(self.handle.scope, self.handle.id)
