"""What a server needs: keys of its callers and their log, stops, usage, seals. Each method is one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from palaver.core.identity import canonical_json, micros, moment
from palaver.engines.postgres.rows import event_of, hexed
from palaver.engines.postgres.rpc import Caller, Row
from palaver.engines.postgres.transports import as_json, unhex
from palaver.engines.postgres.watch import Hub
from palaver.engines.rows import scope_from_json, scope_to_json
from palaver.model import ApiKey, Event, LogSeal, Scope, Tip, UsageLine
from palaver.ports.engine import KEY_ID


class ServingVerbs(Caller):
    hub: Hub

    # ---- keys: never asked of a copy, where one that was revoked may still work

    async def put_key(self, scope: Scope, key: ApiKey, hash: bytes) -> None:
        row = {
            "hash": hexed(hash),
            "name": key.name,
            "scope": scope_to_json(key.scope),
            "created": micros(key.created),
            "expires_at": None if key.expires_at is None else micros(key.expires_at),
        }
        await self.write("put_key", scope, key=as_json(row), payload=canonical_json({"name": key.name}))

    async def api_key(self, tenant: str, hash: bytes) -> ApiKey | None:
        rows = await self.write("api_key", Scope.of(tenant, None), hash=hash)
        return _key(rows[0]) if rows else None

    async def api_keys(self, scope: Scope) -> list[ApiKey]:
        """Asked as the application: the server looks a caller's key up, whatever that caller may do."""
        return [_key(row) for row in await self.write("api_keys", Scope.of(scope.tenant, None))]

    async def revoke_key(self, scope: Scope, id: str) -> ApiKey | None:
        rows = await self.write("revoke_key", scope, id=id)
        return _key(rows[0]) if rows else None

    async def has_key(self) -> bool:
        rows = await self.as_worker("any_key")
        if rows is not None:
            return bool(rows[0]["found"])
        now = self.clock.now()
        return any(key.works(now) for key in await self.api_keys(Scope.of(self.home, None)))

    async def log_key(self, scope: Scope, kind: str, key: str, payload: Mapping[str, Any] | None) -> None:
        told = canonical_json(payload) if payload else None
        application = Scope.of(scope.tenant, None)
        await self.write("log_key", application, kind=kind, key=key, actor=scope.user or "", payload=told)

    async def key_events(self, scope: Scope, after: int, limit: int) -> list[Event]:
        return [event_of(row, "") for row in await self.read("key_events", scope, after=after, most=limit)]

    # ---- the log

    async def announce(self, scope: Scope, conversation: str, kind: str, turn: str | None) -> int:
        rows = await self.write("announce", scope, conversation=conversation, kind=kind, turn=turn)
        self.hub.committed(conversation)
        return int(rows[0]["n"])

    async def usage(self, scope: Scope, since: int | None, until: int | None, limit: int) -> list[UsageLine]:
        return [UsageLine(**row) for row in await self.read("usage", scope, most=limit, since=since, until=until)]

    # ---- seals

    async def tenants(self) -> list[str]:
        """Of everybody, where this login works for everybody; or only the own one."""
        rows = await self.as_worker("tenants")
        return [self.home] if rows is None else [row["tenant"] for row in rows]

    async def tips(self, scope: Scope, after: str, limit: int) -> list[Tip]:
        return [_tip(row) for row in await self.read("tips", scope, after=after, most=limit)]

    async def unsealed(self, tenant: str, limit: int) -> list[Tip]:
        return [_tip(row) for row in await self.write("unsealed", Scope.of(tenant, None), most=limit)]

    async def put_seals(self, tenant: str, seals: Sequence[LogSeal]) -> None:
        rows = [
            {
                "conversation": one.tip.conversation,
                "n": one.tip.n,
                "tip": "\\x" + one.tip.hash,
                "seal": "\\x" + one.seal,
                "at": micros(one.at),
            }
            for one in seals
        ]
        await self.write("put_seals", Scope.of(tenant, None), seals=as_json(rows))

    async def seals(self, scope: Scope, conversation: str) -> list[LogSeal]:
        rows = await self.read("seals", scope, conversation=conversation)
        return [_seal(row, conversation) for row in rows]


def _key(row: Row) -> ApiKey:
    return ApiKey(
        id=_hex(row["hash"])[:KEY_ID],
        name=row["name"],
        scope=scope_from_json(row["tenant"], row["scope"]),
        created=moment(row["created"]),
        expires_at=None if row["expires_at"] is None else moment(row["expires_at"]),
        revoked_at=None if row["revoked_at"] is None else moment(row["revoked_at"]),
    )


def _tip(row: Row) -> Tip:
    return Tip(conversation=row["conversation"], n=row["n"], hash=_hex(row["hash"]))


def _seal(row: Row, conversation: str) -> LogSeal:
    tip = Tip(conversation=conversation, n=row["n"], hash=_hex(row["tip"]))
    return LogSeal(tip=tip, at=moment(row["at"]), seal=_hex(row["seal"]))


def _hex(value: bytes | str) -> str:
    return (unhex(value) or b"").hex()
