"""Keys of the server's callers: made here, shown once, stored as a hash.

A key is `plv.TENANT.SECRET`: the tenant in base64, so that it is looked up inside that tenant only, and 32 random
bytes. Such a secret cannot be guessed, so that a plain SHA-256 protects it as well as a slow hash would.
"""

from __future__ import annotations

import hashlib
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import timedelta
from typing import TYPE_CHECKING

from palaver.audit.erasure import names_erased, tombstone_digest
from palaver.audit.replay import CHANGED
from palaver.conversations.internals import clock_of, engine_of
from palaver.core.identity import canonical_json, event_hash, genesis, micros
from palaver.core.rights import require_right
from palaver.core.validation import clean_limit, clean_name, optional_name
from palaver.errors import InvalidInput, VerificationFailed
from palaver.model import ADMIN, RIGHTS, USER_RIGHTS, ApiKey, Event, Scope, Visibility, warn_renamed
from palaver.ports.engine import KEY_ID

if TYPE_CHECKING:
    from palaver.conversations.store import Store

PREFIX = "plv."
MAX_DAYS = 36_500
MAX_LOG = 10_000  # events in one call


async def create_key(
    store: Store,
    name: str,
    *,
    user: str | None = None,
    rights: frozenset[str] = USER_RIGHTS,
    visibility: Visibility | None = None,
    workspace: str | None = None,
    days: float | None = None,
    sight: Visibility | None = None,
) -> tuple[str, ApiKey]:
    """Create a key for the store's tenant. Returns the key itself, which is not stored, and its stored description.

    - `visibility`: `own` by default, and `tenant` for a key without a user, which owns nothing by itself.
    - `sight`: the old name of `visibility`.
    """
    if sight is not None:
        warn_renamed("create_key(sight=…)", "visibility")
        visibility = sight
    require_right(store.scope, ADMIN)
    unknown = rights - set(RIGHTS)
    if unknown or not rights:
        raise InvalidInput("rights", f"must be some of {', '.join(RIGHTS)}")
    if days is not None and not 0 < days <= MAX_DAYS:
        raise InvalidInput("days", f"must be more than 0 and at most {MAX_DAYS:,}")
    visibility = visibility or ("tenant" if user is None else "own")
    if visibility == "own" and user is None:
        raise InvalidInput("visibility", "own shows the conversations of a user: give user=, or visibility='tenant'")
    if visibility == "workspace" and workspace is None:
        raise InvalidInput("workspace", "is needed with the visibility workspace")
    granted = frozenset(one for one in RIGHTS if one in rights)
    tenant = store.scope.tenant
    secret = PREFIX + _encoded(tenant) + "." + secrets.token_urlsafe(32)
    now = clock_of(store).now()
    key = ApiKey(
        id=hash_of(secret).hex()[:KEY_ID],
        name=clean_name("name", name),
        scope=Scope(tenant, optional_name("user", user), granted, visibility, optional_name("workspace", workspace)),
        created=now,
        expires_at=None if days is None else now + timedelta(days=days),
    )
    await engine_of(store).put_key(store.scope, key, hash_of(secret))
    return secret, key


async def list_keys(store: Store) -> list[ApiKey]:
    require_right(store.scope, ADMIN)
    return await engine_of(store).api_keys(store.scope)


async def revoke_key(store: Store, id: str) -> ApiKey:
    require_right(store.scope, ADMIN)
    key = await engine_of(store).revoke_key(store.scope, clean_name("id", id))
    if key is None:
        raise InvalidInput(
            "id", f"there is no key with this id in the tenant {store.scope.tenant!r}: see `palaver keys list`"
        )
    return key


async def key_log(store: Store, after: int = 0, limit: int = 1_000) -> list[Event]:
    """Which keys were made, used, refused and revoked. `turn` of an event is the id of the key."""
    require_right(store.scope, ADMIN)
    return await engine_of(store).key_events(
        store.scope, clean_limit("after", after, 2**53), clean_limit("limit", limit, MAX_LOG)
    )


async def check_key_log(store: Store) -> int:
    """Recompute the chain of the keys' log. Raises VerificationFailed; returns how many events there are."""
    previous, n = genesis(f"keys of {store.scope.tenant}"), 0
    tombstones: dict[int, bytes] = {}  # events that lost the name of an erased user
    erased: dict[int, bytes] = {}  # and what later events say of them
    while page := await key_log(store, n):
        for event in page:
            n += 1
            payload = canonical_json(dict(event.payload)) if event.payload else None
            fields = (n, event.kind, event.turn, event.actor, micros(event.at), payload, None)
            hash = bytes.fromhex(event.hash)
            if event.n == n and event_hash(previous, *fields) != hash and names_erased(event.actor, payload):
                tombstones[n] = tombstone_digest(previous, *fields, hash)
            elif event.n != n or event_hash(previous, *fields) != hash:
                raise VerificationFailed("keys", f"event {n}", CHANGED)
            if event.kind == "erase":
                erased |= {number: bytes.fromhex(digest) for number, digest in event.payload.get("events", ())}
            previous = hash
    for number, digest in tombstones.items():
        if erased.get(number) != digest:
            raise VerificationFailed("keys", f"event {number}", CHANGED)
    return n


def hash_of(key: str) -> bytes:
    return hashlib.sha256(key.encode()).digest()


def tenant_of(key: str) -> str | None:
    """Return the tenant that a key names; None when it is not a key of Palaver."""
    head, _, rest = key.partition(".")
    tenant, dot, secret = rest.partition(".")
    if head != "plv" or not dot or not secret:
        return None
    try:
        return clean_name("tenant", urlsafe_b64decode(tenant + "=" * (-len(tenant) % 4)).decode())
    except ValueError:  # even when it is not a valid name
        return None


def _encoded(text: str) -> str:
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")
