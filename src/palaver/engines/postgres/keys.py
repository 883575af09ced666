"""API keys of the server's callers, and each tenant's log of them, on Postgres. Each method is one transaction.

Keys are read from the primary: on a replica a key may still be valid that was revoked a moment ago.
"""

from __future__ import annotations

from collections.abc import Mapping

from palaver.core.identity import canonical_json, micros, moment
from palaver.engines.postgres.rows import read_event, read_hex, to_hex
from palaver.engines.postgres.rpc import EnginePart, application_scope
from palaver.engines.postgres.transports import Row, as_json
from palaver.engines.rows import scope_from_json, scope_to_json
from palaver.model import ApiKey, Event, Scope
from palaver.ports.engine import KEY_ID


class PostgresKeys(EnginePart):
    async def put_key(self, scope: Scope, key: ApiKey, hash: bytes) -> None:
        row = {
            "hash": to_hex(hash),
            "name": key.name,
            "scope": scope_to_json(key.scope),
            "created": micros(key.created),
            "expires_at": None if key.expires_at is None else micros(key.expires_at),
        }
        await self.write("put_key", scope, key=as_json(row), payload=canonical_json({"name": key.name}))

    async def api_key(self, tenant: str, hash: bytes) -> ApiKey | None:
        rows = await self.write("api_key", application_scope(tenant), hash=hash)
        return _read_key(rows[0]) if rows else None

    async def api_keys(self, scope: Scope) -> list[ApiKey]:
        """Read as the application: the server looks up a caller's key whatever rights that caller has."""
        return [_read_key(row) for row in await self.write("api_keys", application_scope(scope.tenant))]

    async def revoke_key(self, scope: Scope, id: str) -> ApiKey | None:
        rows = await self.write("revoke_key", scope, id=id)
        return _read_key(rows[0]) if rows else None

    async def has_key(self) -> bool:
        rows = await self.call_for_all_tenants("any_key")
        if rows is not None:
            return bool(rows[0]["found"])
        now = self.clock.now()
        return any(key.works(now) for key in await self.api_keys(self.home_scope()))

    async def log_key(self, scope: Scope, kind: str, key: str, payload: Mapping[str, object] | None) -> None:
        text = canonical_json(payload) if payload else None
        args = {"kind": kind, "key": key, "actor": scope.user or "", "payload": text}
        await self.write("log_key", application_scope(scope.tenant), **args)

    async def key_events(self, scope: Scope, after: int, limit: int) -> list[Event]:
        return [read_event(row, "") for row in await self.read("key_events", scope, after=after, most=limit)]


def _read_key(row: Row) -> ApiKey:
    return ApiKey(
        id=read_hex(row["hash"])[:KEY_ID],
        name=row["name"],
        scope=scope_from_json(row["tenant"], row["scope"]),
        created=moment(row["created"]),
        expires_at=None if row["expires_at"] is None else moment(row["expires_at"]),
        revoked_at=None if row["revoked_at"] is None else moment(row["revoked_at"]),
    )
