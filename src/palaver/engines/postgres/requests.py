"""Requests to models, and what their token counts taught us, on Postgres. Each method is one transaction."""

from __future__ import annotations

from palaver.core.identity import micros, moment
from palaver.engines.postgres.rpc import EnginePart
from palaver.engines.postgres.transports import Row, as_json
from palaver.engines.rows import from_json_or_none, to_json_or_none
from palaver.model import Request, Scope
from palaver.ports.memory import CallCount
from palaver.ports.models import CounterBound

NAMES = ("id", "turn", "purpose", "model", "adapter")
JSON = ("body", "explanation", "response")


class PostgresRequests(EnginePart):
    async def put_request(self, scope: Scope, conversation: str, request: Request, bodies: int | None) -> None:
        row = as_json(_request_row(request))
        await self.write("put_request", scope, conversation=conversation, request=row, bodies=bodies)

    async def requests(
        self, scope: Scope, conversation: str, turn: str | None, before: str | None, limit: int
    ) -> list[Request]:
        rows = await self.read("requests", scope, conversation=conversation, most=limit, turn=turn, before=before)
        return [_read_request(conversation, row) for row in reversed(rows)]

    async def count_calls(self, scope: Scope, conversation: str, since: int) -> CallCount:
        (row,) = await self.read("count_calls", scope, conversation=conversation, since=since)
        return CallCount(calls=row["calls"], in_use=row["in_use"])

    async def counter_bound(self, scope: Scope, model: str) -> CounterBound | None:
        rows = await self.read("counter_bound", scope, model=model)
        return CounterBound(model=model, ratio=rows[0]["ratio"], samples=rows[0]["samples"]) if rows else None

    async def put_counter_bound(self, scope: Scope, bound: CounterBound) -> None:
        await self.write("put_counter_bound", scope, model=bound.model, ratio=bound.ratio, samples=bound.samples)


def _request_row(request: Request) -> dict[str, object]:
    values = {name: getattr(request, name) for name in NAMES}
    texts = {name: to_json_or_none(getattr(request, name)) for name in JSON}
    return {**values, **texts, "at": micros(request.at), "quoted": request.quoted}


def _read_request(conversation: str, row: Row) -> Request:
    values = {name: row[name] for name in NAMES}
    texts = {name: from_json_or_none(row[name]) for name in JSON}
    return Request(conversation=conversation, at=moment(row["at"]), **values, **texts)
