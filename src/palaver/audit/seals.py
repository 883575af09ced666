"""Seals: the end of a log, signed with a key that is not in the database.

A hash chain without a key reveals every change, unless an attacker can write to the database and recomputes the whole
chain. Without the key, the attacker cannot recompute the seals. Events after the last seal can still be cut off
unnoticed, unless the last event was noted outside the database: `palaver audit anchor` prints it.
"""

from __future__ import annotations

import hashlib
import hmac
from datetime import datetime

from palaver.core.identity import digest, micros
from palaver.errors import InvalidInput, VerificationFailed
from palaver.model import LogSeal, Scope, Tip
from palaver.ports.engine import LogStore
from palaver.ports.queries import EventQuery

MIN_KEY = 16  # bytes
PAGE = 1_000


def clean_sealing_key(key: bytes) -> bytes:
    if len(key) < MIN_KEY:
        raise InvalidInput("audit_key", f"must be at least {MIN_KEY} bytes long")
    return key


def sealed(key: bytes, tenant: str, tip: Tip, at: datetime) -> LogSeal:
    fields = ("palaver/seal/1", tenant, tip.conversation, tip.n, bytes.fromhex(tip.hash), micros(at))
    return LogSeal(tip=tip, at=at, seal=hmac.new(key, digest(fields), hashlib.sha256).hexdigest())


def is_ours(key: bytes, tenant: str, seal: LogSeal) -> bool:
    return hmac.compare_digest(sealed(key, tenant, seal.tip, seal.at).seal, seal.seal)


async def seal_everything(engine: LogStore, key: bytes, now: datetime) -> int:
    """Seal the end of every log that grew since its last seal, and return how many there were."""
    count = 0
    for tenant in await engine.tenants():
        while tips := await engine.unsealed(tenant, PAGE):
            await engine.put_seals(tenant, [sealed(key, tenant, tip, now) for tip in tips])
            count += len(tips)
            if len(tips) < PAGE:
                break
    return count


async def check_seals(engine: LogStore, key: bytes, scope: Scope, conversation: str) -> int:
    """Check that every seal of a log was made with this key and its event is unchanged. Returns how many there are."""
    seals = await engine.seals(scope, conversation)
    for seal in seals:
        if not is_ours(key, scope.tenant, seal):
            raise VerificationFailed(conversation, _row(seal.tip), "it was not made with this key")
        await check_tip(engine, scope, seal.tip)
    return len(seals)


async def check_tip(engine: LogStore, scope: Scope, tip: Tip) -> None:
    """Check that the log still contains an event that was noted earlier, unless an archive has it."""
    found = await engine.events(scope, tip.conversation, EventQuery(after=max(0, tip.n - 1), limit=1))
    if found and found[0].n > tip.n and await _is_archived(engine, scope, tip):
        return
    if not found or found[0].n != tip.n:
        raise VerificationFailed(tip.conversation, _row(tip), "the log was cut short before it")
    if found[0].hash != tip.hash:
        raise VerificationFailed(tip.conversation, _row(tip), "the log is not the one that was sealed")


async def _is_archived(engine: LogStore, scope: Scope, tip: Tip) -> bool:
    """Return whether the log says that an event is in an archive. A later seal covers what it says."""
    found = await engine.events(scope, tip.conversation, EventQuery(kinds=("archive",), limit=PAGE))
    return any((event.payload or {}).get("through", 0) >= tip.n for event in found)


def _row(tip: Tip) -> str:
    return f"seal over event {tip.n}"
