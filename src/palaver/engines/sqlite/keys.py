"""Keys of the server's callers, their log, and seals over the logs. Each function is one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from palaver.core.identity import canonical_json, event_hash, genesis, micros, moment
from palaver.engines.rows import Row, event_from_row, scope_from_json, scope_params, scope_to_json
from palaver.engines.sqlite.connection import Tx
from palaver.engines.sqlite.open_conversation import open_conversation
from palaver.engines.sqlite.queries import Q
from palaver.errors import InvalidInput
from palaver.model import ApiKey, Event, LogSeal, Scope, Tip, UsageLine
from palaver.ports.engine import ANNOUNCED, KEY_ID

# ---- keys ----------------------------------------------------------------------------------------------------------


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


def revoke_key(tx: Tx, scope: Scope, id: str) -> ApiKey | None:
    """By its id; a second time changes nothing."""
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


def log_key(tx: Tx, scope: Scope, kind: str, key: str, payload: Mapping[str, Any] | None) -> None:
    n, at, previous = tx.one(Q.last_key_event, tenant=scope.tenant) or (0, 0, genesis(f"keys of {scope.tenant}"))
    at = max(tx.now, at + 1)
    text, actor = canonical_json(payload) if payload else None, scope.user or ""
    hash = event_hash(previous, n + 1, kind, key, actor, at, text, None)
    tx.run(Q.log_key, tenant=scope.tenant, n=n + 1, kind=kind, key=key, actor=actor, at=at, payload=text, hash=hash)


def key_events(tx: Tx, scope: Scope, after: int, limit: int) -> list[Event]:
    rows = tx.all(Q.key_events, tenant=scope.tenant, after=after, limit=limit)
    return [event_from_row(row, "") for row in rows]


# ---- the log -------------------------------------------------------------------------------------------------------


def announce(tx: Tx, scope: Scope, conversation: str, kind: str, turn: str | None) -> int:
    """Say something to whoever follows the log, and leave it there; answers the number of the event."""
    if kind not in ANNOUNCED:
        raise InvalidInput("kind", f"must be one of {', '.join(ANNOUNCED)}")
    conv = open_conversation(tx, scope, conversation)
    if turn is not None:
        conv.require_turn(turn)
    conv.log(kind, conv.tick(), turn=turn)
    conv.save()
    return int(conv.next_n) - 1


def usage(tx: Tx, scope: Scope, since: int | None, until: int | None, limit: int) -> list[UsageLine]:
    rows = tx.all(Q.usage, since=since, until=until, limit=limit, now=tx.now, **scope_params(scope))
    names = ("day", "user", "model", "calls", "prompt", "completion")
    return [UsageLine(**dict(zip(names, row, strict=True))) for row in rows]


# ---- seals ---------------------------------------------------------------------------------------------------------


def tips(tx: Tx, scope: Scope, after: str, limit: int) -> list[Tip]:
    return [_tip(row) for row in tx.all(Q.tips, after=after, limit=limit, **scope_params(scope))]


def unsealed(tx: Tx, tenant: str, limit: int) -> list[Tip]:
    return [_tip(row) for row in tx.all(Q.unsealed, tenant=tenant, limit=limit)]


def _tip(row: Row) -> Tip:
    return Tip(conversation=row[0], n=row[1], hash=row[2].hex())


def put_seals(tx: Tx, tenant: str, seals: Sequence[LogSeal]) -> None:
    for one in seals:
        tx.run(
            Q.put_seal,
            tenant=tenant,
            conversation=one.tip.conversation,
            n=one.tip.n,
            tip=bytes.fromhex(one.tip.hash),
            seal=bytes.fromhex(one.seal),
            at=micros(one.at),
        )


def seals(tx: Tx, scope: Scope, conversation: str) -> list[LogSeal]:
    rows = tx.all(Q.seals, tenant=scope.tenant, conversation=conversation)
    return [
        LogSeal(tip=Tip(conversation=conversation, n=n, hash=tip.hex()), at=moment(at), seal=seal.hex())
        for n, tip, seal, at in rows
    ]
