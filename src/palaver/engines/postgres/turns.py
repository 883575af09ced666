"""Turns and branches on Postgres. Each method is one transaction."""

from __future__ import annotations

import time

from palaver.core.concurrency import run_in_strides
from palaver.engines.postgres import rows
from palaver.engines.postgres.append_batching import AppendBatcher
from palaver.engines.postgres.rpc import EnginePart
from palaver.engines.postgres.transports import as_json
from palaver.model import Branch, Scope, Turn
from palaver.ports.queries import AppendBatch, HistoryQuery


class PostgresTurns(EnginePart):
    batcher: AppendBatcher | None = None  # None: every append is a call of its own

    async def append(self, scope: Scope, conversation: str, batch: AppendBatch) -> list[Turn]:
        self.last_append = time.monotonic()
        size = sum(len(draft.content) for draft in batch.drafts)
        drafts = await run_in_strides(lambda: as_json([rows.draft_json(draft) for draft in batch.drafts]), size)
        keyed = all(draft.idempotency_key is not None for draft in batch.drafts)
        if batch.replaces is None and self.batcher is not None:
            count, expected = len(batch.drafts), batch.expected_seq
            found = await self.batcher.append(scope, conversation, drafts, count, expected, keyed=keyed)
        else:
            args = {"conversation": conversation, "drafts": drafts, **rows.append_place(batch)}
            found = await (self.write_once if keyed else self.write)("append", scope, **args)
        self.hub.committed(conversation)
        return [rows.read_appended(row, draft, conversation) for row, draft in zip(found, batch.drafts, strict=True)]

    async def history(self, scope: Scope, conversation: str, query: HistoryQuery) -> list[Turn]:
        filtered = {"filter": rows.filter_json(query.metadata)} if query.metadata else {}
        found = await self.read(
            "history_where" if query.metadata else "history",
            scope,
            **filtered,
            conversation=conversation,
            most=query.limit,
            before=query.before,
            after=query.after,
            since=query.since,
            until=query.until,
            whole=query.include_superseded,
            actors=rows.list_or_none(query.participants),
            roles=rows.list_or_none(query.roles),
        )
        return [rows.read_turn(row, conversation) for row in found]

    async def turn(self, scope: Scope, conversation: str, id: str) -> Turn:
        return rows.read_turn((await self.read("turn", scope, conversation=conversation, turn=id))[0], conversation)

    async def branches(self, scope: Scope, conversation: str, turn: str | None) -> list[Branch]:
        versions: dict[tuple[int, str | None], list[Turn]] = {}
        for row in await self.read("branches", scope, conversation=conversation, turn=turn):
            versions.setdefault((row["position"], row["parent"]), []).append(rows.read_turn(row, conversation))
        return [Branch(position, tuple(turns)) for (position, _), turns in versions.items()]

    async def switch(self, scope: Scope, conversation: str, turn: str) -> None:
        await self.write("switch", scope, conversation=conversation, turn=turn)
        self.hub.committed(conversation)
