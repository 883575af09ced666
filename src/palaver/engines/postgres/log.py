"""The hash-chained log of a conversation and the seals over it, on Postgres. Each method is one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from palaver.core.identity import micros, moment
from palaver.engines.postgres.rows import list_or_none, read_event, read_hex
from palaver.engines.postgres.rpc import EnginePart, application_scope
from palaver.engines.postgres.transports import Row, as_json
from palaver.model import Event, LogSeal, Scope, Tip
from palaver.ports.engine import Signal
from palaver.ports.queries import ArchivedRows, EventQuery


class PostgresLog(EnginePart):
    async def events(self, scope: Scope, conversation: str, audit: EventQuery) -> list[Event]:
        found = await self.read(
            "events",
            scope,
            conversation=conversation,
            after=audit.after,
            most=audit.limit,
            kinds=list_or_none(audit.kinds),
            actors=list_or_none(audit.actors),
            turn=audit.turn,
            since=audit.since,
            until=audit.until,
        )
        return [read_event(row, conversation) for row in found]

    def watch(self, conversation: str) -> AbstractAsyncContextManager[Signal]:
        return self.hub.watch(conversation)

    async def announce(self, scope: Scope, conversation: str, kind: str, turn: str | None) -> int:
        rows = await self.write("announce", scope, conversation=conversation, kind=kind, turn=turn)
        self.hub.committed(conversation)
        return int(rows[0]["n"])

    async def archive_log(self, scope: Scope, tip: Tip, requests_before: int) -> ArchivedRows:
        args = {"through": tip.n, "tip": bytes.fromhex(tip.hash), "requests_before": requests_before}
        (row,) = await self.write("archive_log", scope, conversation=tip.conversation, **args)
        self.hub.committed(tip.conversation)
        return ArchivedRows(row["archived_events"], row["archived_requests"])

    async def prove_rows(self, scope: Scope, conversation: str, limit: int) -> bool:
        (row,) = await self.write("prove_rows", scope, conversation=conversation, most=limit)
        self.hub.committed(conversation)
        return bool(row["more"])

    async def mismatched_rows(self, scope: Scope, conversation: str) -> list[str]:
        rows = await self.read("mismatched_rows", scope, conversation=conversation)
        return [row["key"] for row in rows]

    # ---- seals

    async def tips(self, scope: Scope, after: str, limit: int) -> list[Tip]:
        return [_read_tip(row) for row in await self.read("tips", scope, after=after, most=limit)]

    async def unsealed(self, tenant: str, limit: int) -> list[Tip]:
        return [_read_tip(row) for row in await self.write("unsealed", application_scope(tenant), most=limit)]

    async def put_seals(self, tenant: str, seals: Sequence[LogSeal]) -> None:
        rows = [_seal_json(seal) for seal in seals]
        await self.write("put_seals", application_scope(tenant), seals=as_json(rows))

    async def seals(self, scope: Scope, conversation: str) -> list[LogSeal]:
        rows = await self.read("seals", scope, conversation=conversation)
        return [_read_seal(row, conversation) for row in rows]


def _read_tip(row: Row) -> Tip:
    return Tip(conversation=row["conversation"], n=row["n"], hash=read_hex(row["hash"]))


def _read_seal(row: Row, conversation: str) -> LogSeal:
    tip = Tip(conversation=conversation, n=row["n"], hash=read_hex(row["tip"]))
    return LogSeal(tip=tip, at=moment(row["at"]), seal=read_hex(row["seal"]))


def _seal_json(seal: LogSeal) -> dict[str, object]:
    return {
        "conversation": seal.tip.conversation,
        "n": seal.tip.n,
        "tip": "\\x" + seal.tip.hash,
        "seal": "\\x" + seal.seal,
        "at": micros(seal.at),
    }
