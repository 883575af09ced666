"""Turns that are written piece by piece, on Postgres. Each method is one transaction."""

from __future__ import annotations

import time
from dataclasses import asdict
from datetime import datetime

from palaver.core.concurrency import run_in_strides
from palaver.core.identity import micros, moment
from palaver.core.turn_draft import decode_content, preview, words
from palaver.engines.postgres import rows
from palaver.engines.postgres.rpc import EnginePart, application_scope
from palaver.engines.postgres.transports import as_json
from palaver.model import Scope, Turn
from palaver.ports.queries import AppendBatch, StreamChunk, StreamEnd


class PostgresStreams(EnginePart):
    async def stream_open(self, scope: Scope, conversation: str, batch: AppendBatch, lease: int) -> Turn:
        draft = as_json(rows.draft_json(batch.drafts[0]))
        args = {"draft": draft, "lease": lease, **rows.append_place(batch)}
        found = await self.write("stream_open", scope, conversation=conversation, **args)
        self.hub.committed(conversation)
        return rows.read_turn(found[0], conversation)

    async def stream_chunk(self, scope: Scope, conversation: str, turn: str, chunk: StreamChunk, lease: int) -> int:
        self.last_append = time.monotonic()
        args = {"turn": turn, "n": chunk.n, "piece": chunk.text, "lease": lease}
        found = await self.write("stream_chunk", scope, conversation=conversation, **args)
        self.hub.committed(conversation)
        return int(found[0]["stream_chunk"])

    async def stream_renew(self, scope: Scope, conversation: str, turn: str, lease: int) -> None:
        await self.write("stream_renew", scope, conversation=conversation, turn=turn, lease=lease)

    async def stream_commit(self, scope: Scope, conversation: str, turn: str, seal: StreamEnd) -> Turn:
        text = words(decode_content(seal.content, False))
        values = {name: value for name, value in asdict(seal).items() if name != "tail"}
        found = await self.write(
            "stream_commit",
            scope,
            conversation=conversation,
            turn=turn,
            seal=as_json({**values, "preview": preview(text)}),
            words=await run_in_strides(lambda: as_json(rows.index_words(text)), len(text)),
            **_tail(seal.tail),
        )
        self.hub.committed(conversation)
        return rows.read_turn(found[0], conversation)

    async def stream_abort(self, scope: Scope, conversation: str, turn: str, tail: StreamChunk | None) -> Turn:
        found = await self.write("stream_abort", scope, conversation=conversation, turn=turn, **_tail(tail))
        self.hub.committed(conversation)
        return rows.read_turn(found[0], conversation)

    async def abort_expired_streams(self) -> int:
        now = micros(self.clock.now())
        aborted = 0
        for row in await self.tenants_with_maintenance():
            if row["lease_end"] is not None and row["lease_end"] <= now:
                aborted += await self._abort_expired_in(row["tenant"])
        return aborted

    async def _abort_expired_in(self, tenant: str) -> int:
        found = await self.write("seal_expired", application_scope(tenant))
        for row in found:
            self.hub.committed(row["seal_expired"])
        return len(found)

    async def next_lease_end(self) -> datetime | None:
        found = await self.tenants_with_maintenance()
        ends = [row["lease_end"] for row in found if row["lease_end"] is not None]
        return moment(min(ends)) if ends else None


def _tail(tail: StreamChunk | None) -> dict[str, object]:
    """The last piece of text, which arrives with the end of the stream."""
    return {} if tail is None else {"tail_n": tail.n, "tail": tail.text}
