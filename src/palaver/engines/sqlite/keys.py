"""API keys of the server's callers, and the log of those keys. Each function is one transaction."""

from __future__ import annotations

from collections.abc import Mapping

from palaver.core.identity import canonical_json, event_hash, genesis, micros, moment
from palaver.engines.rows import Row, event_from_row, scope_from_json, scope_to_json
from palaver.engines.sqlite.queries import Q
from palaver.engines.sqlite.transaction import Tx
from palaver.model import ApiKey, Event, Scope
from palaver.ports.engine import KEY_ID


def put_key(tx: Tx, scope: Scope, key: ApiKey, hash: bytes) -> None:
    tx.run(
        Q.put_key,
        tenant=scope.tenant,
        hash=hash,
        name=key.name,
        scope=scope_to_json(key.scope),
        created=micros(key.created),
        expires_at=None if key.expires_at is None else micros(key.expires_at),
    )
    log_key(tx, scope, "create", key.id, {"name": key.name})


def api_key(tx: Tx, tenant: str, hash: bytes) -> ApiKey | None:
    row = tx.one(Q.api_key, tenant=tenant, hash=hash)
    return None if row is None else _key(row, tenant)


def api_keys(tx: Tx, scope: Scope) -> list[ApiKey]:
    return [_key(row, scope.tenant) for row in tx.all(Q.api_keys, tenant=scope.tenant)]


def has_key(tx: Tx) -> bool:
    return tx.one(Q.has_key, now=tx.now) is not None


def revoke_key(tx: Tx, scope: Scope, id: str) -> ApiKey | None:
    """Revoke a key by its id. Revoking it again changes nothing."""
    for row in tx.all(Q.api_keys, tenant=scope.tenant):
        if row[0].hex()[:KEY_ID] == id:
            if row[5] is None:
                tx.run(Q.revoke_key, tenant=scope.tenant, hash=row[0], now=tx.now)
                log_key(tx, scope, "revoke", id, None)
            return api_key(tx, scope.tenant, row[0])
    return None


def _key(row: Row, tenant: str) -> ApiKey:
    hash, name, scope, created, expires_at, revoked_at = row
    return ApiKey(
        id=hash.hex()[:KEY_ID],
        name=name,
        scope=scope_from_json(tenant, scope),
        created=moment(created),
        expires_at=None if expires_at is None else moment(expires_at),
        revoked_at=None if revoked_at is None else moment(revoked_at),
    )


def log_key(tx: Tx, scope: Scope, kind: str, key: str, payload: Mapping[str, object] | None) -> None:
    n, at, previous = tx.one(Q.last_key_event, tenant=scope.tenant) or (0, 0, genesis(f"keys of {scope.tenant}"))
    at = max(tx.now, at + 1)
    text, actor = canonical_json(payload) if payload else None, scope.user or ""
    hash = event_hash(previous, n + 1, kind, key, actor, at, text, None)
    tx.run(Q.log_key, tenant=scope.tenant, n=n + 1, kind=kind, key=key, actor=actor, at=at, payload=text, hash=hash)


def key_events(tx: Tx, scope: Scope, after: int, limit: int) -> list[Event]:
    rows = tx.all(Q.key_events, tenant=scope.tenant, after=after, limit=limit)
    return [event_from_row(row, "") for row in rows]
