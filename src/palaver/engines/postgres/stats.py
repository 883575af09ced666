"""Counts over everything that is stored, on Postgres, for operators. Each method is one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from palaver.core.identity import micros
from palaver.engines.postgres import migrate
from palaver.engines.postgres.rows import decode_json
from palaver.engines.postgres.rpc import EnginePart
from palaver.engines.rows import waiting_seconds
from palaver.model import Scope, Stats, UsageLine
from palaver.ports.jobs import JOB_KINDS, Health


class PostgresStats(EnginePart):
    async def stats(self, scope: Scope) -> Stats:
        row = (await self.read("stats", scope))[0]
        storage = {
            "engine": "postgres",
            "postgres": row["server"],
            "bytes": row["bytes"],
            "open_streams": row["open_streams"],
            "files_to_delete": row["files_to_delete"],
            "scrub_pending": False,
            "outbox": [{**one, "dead": bool(one["dead"])} for one in decode_json(row["outbox"])],
        }
        return Stats(
            conversations=row["conversations"],
            turns=row["turns"],
            tokens=row["tokens"],
            events=row["events"],
            attachments=row["attachments"],
            attachment_bytes=row["attachment_bytes"],
            storage=storage,
        )

    async def usage(self, scope: Scope, since: int | None, until: int | None, limit: int) -> list[UsageLine]:
        return [UsageLine(**row) for row in await self.read("usage", scope, most=limit, since=since, until=until)]

    async def tenants(self) -> list[str]:
        return await self.all_tenants()

    async def health(self, kinds: Sequence[str] = JOB_KINDS) -> Health:
        rows = await self.call_for_all_tenants("health", everywhere=True, kinds=list(kinds))
        row = (rows or await self.write("health", self.home_scope(), everywhere=False, kinds=list(kinds)))[0]
        lag = waiting_seconds(row["oldest"], micros(self.clock.now()))
        counts = {name: row[name] for name in ("schema", "waiting", "put_aside")}
        version = migrate.Version(row["schema"], row["oldest_code"])
        compatible = not (version.is_too_new or version.is_too_old)
        return Health(schema_known=migrate.known_version(), compatible=compatible, lag=lag, **counts)
