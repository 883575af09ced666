"""Who is asking: a key, a JWT, a ticket for a browser's EventSource, or nobody on loopback. Ends in a Scope."""

from __future__ import annotations

import asyncio
import json
import logging
import time
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.client import HTTPException
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

import jwt
from starlette.datastructures import Headers

from palaver.conversations import api_keys
from palaver.conversations.details import clean_scope
from palaver.conversations.store import Store
from palaver.errors import InvalidInput
from palaver.model import READ, RIGHTS, WRITE, ApiKey, Right, Scope, Upload, Visibility
from palaver.ports.engine import KEY_ID
from palaver.server.errors import Refused
from palaver.server.settings import ServerSettings, is_loopback

log = logging.getLogger("palaver.server")

# What a published key may have signed with, where it does not say that itself.
ALGORITHMS: Mapping[str, tuple[str, ...]] = {
    "RSA": ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    "EC": ("ES256", "ES384", "ES512"),
    "OKP": ("EdDSA",),
}
SIGNED_ELSEWHERE = frozenset(one for family in ALGORITHMS.values() for one in family)
TICKET = "palaver-ticket"
JWKS_SECONDS = 300.0  # a set of keys is believed so long
JWKS_PAUSE = 30.0  # and asked for again at most this often, however many unknown keys are named
JWKS_RETRY = 2.0  # where none could be read yet
JWKS_PATIENCE = 10.0  # seconds for the whole of it: everybody with a JWT waits meanwhile
USE_SECONDS = 3_600.0  # the use of a key from one address is noted once in this time
MAX_TOKEN = 16_384  # bytes
NOTED = 10_000
COMPLETE_SECONDS = 300.0  # so much later than its bytes may an upload be completed
Published = tuple[Any, list[str]]  # a public key, and the algorithms that it may be used with


@dataclass(frozen=True, slots=True)
class Caller:
    """Who is asking. `name` is for limits and logs; it is no secret."""

    scope: Scope
    name: str
    key: str | None = None
    until: float | None = None  # when the JWT ends that they came with


def unauthorized(detail: str) -> Refused:
    return Refused(401, detail, {"WWW-Authenticate": 'Bearer realm="palaver"'})


@dataclass(slots=True)
class Authenticator:
    settings: ServerSettings
    store: Store
    _noted: dict[tuple[str, str, str], float] = field(default_factory=dict)
    _jwks: dict[str, Published] = field(default_factory=dict)
    _jwks_at: float = -1e9  # when they were asked for last, by the monotonic clock
    _jwks_lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def caller(
        self, headers: Headers, ticket: str | None, address: str, line: str = "", *, of_sdk: bool = False
    ) -> Caller:
        """Raises 401. `ticket` is given where one is taken; `line` is the method and the path that it must be for.

        The SDKs of providers cannot do without a key: where none is needed, theirs is as good as none.
        """
        token = _credentials(headers)
        if of_sdk and token is not None and not self._could_be_ours(token):
            token = None
        if token is None and ticket:
            return await self._by_ticket(ticket, line)
        if token is None:
            if self.settings.needs_auth:
                raise unauthorized("Send a key or a JWT: Authorization: Bearer …")
            return Caller(Scope.of(self.settings.tenant, None), "local")
        if len(token) > MAX_TOKEN:
            raise unauthorized("That is neither a key nor a JWT")
        return await (self._by_key(token, address) if token.startswith(api_keys.PREFIX) else self._by_jwt(token))

    def _could_be_ours(self, token: str) -> bool:
        return self.settings.needs_auth or self.settings.has_jwt or token.startswith(api_keys.PREFIX)

    async def still_allowed(self, caller: Caller) -> None:
        """For a connection that stays open: whether its key or its JWT still works. Raises 401."""
        if caller.until is not None and time.time() >= caller.until:
            raise unauthorized("This JWT has expired")
        if caller.key is not None:
            found = [one for one in await self.store.engine.api_keys(caller.scope) if one.id == caller.key]
            if not found or not found[0].works(self.store.parts.clock.now()):
                raise unauthorized("This key works no more")

    # ---- keys

    async def _by_key(self, token: str, address: str) -> Caller:
        tenant = api_keys.tenant_of(token)
        key = None if tenant is None else await self.store.engine.api_key(tenant, api_keys.hash_of(token))
        if key is None:
            raise unauthorized("This key is not known")
        return await self._taken(key, address)

    async def _taken(self, key: ApiKey, address: str) -> Caller:
        if not key.works(self.store.parts.clock.now()):
            await self._note("refuse", key, address)
            raise unauthorized("This key was revoked" if key.revoked_at is not None else "This key has expired")
        await self._note("use", key, address)
        return Caller(key.scope, f"key:{key.id}", key.id)

    async def _note(self, kind: str, key: ApiKey, address: str) -> None:
        """Put it into the keys' log: once an hour for each address, not for every request."""
        entry, now = (kind, key.id, address), time.monotonic()
        if now - self._noted.get(entry, -1e9) < USE_SECONDS:
            return
        if len(self._noted) >= NOTED:
            self._noted.clear()
        self._noted[entry] = now
        await self.store.engine.log_key(key.scope, kind, key.id, {"address": address})

    # ---- JWTs

    async def _by_jwt(self, token: str) -> Caller:
        if not self.settings.has_jwt:
            raise unauthorized("This is no key of this server, and it takes no JWTs")
        try:
            key, algorithms = await self._signing_key(jwt.get_unverified_header(token))
            claims = jwt.decode(
                token,
                key,
                algorithms=algorithms,
                audience=self.settings.jwt_audience,
                issuer=self.settings.jwt_issuer,
                options={"require": ["exp", "sub", "aud"]},
            )
        except jwt.PyJWTError as problem:
            raise unauthorized(f"This JWT is not accepted ({type(problem).__name__})") from None
        try:
            scope = clean_scope(self._claimed(claims))
        except InvalidInput as problem:
            raise unauthorized(f"This JWT is not accepted ({problem.field})") from None
        return Caller(scope, f"jwt:{scope.tenant}/{scope.user}", until=float(claims["exp"]))

    async def _signing_key(self, header: Mapping[str, Any]) -> tuple[Any, list[str]]:
        """The key is chosen by us, the algorithms are those of that key: a token cannot choose a weaker way."""
        algorithm = header.get("alg")
        if algorithm == "HS256" and self.settings.jwt_secret:
            return self.settings.jwt_secret, ["HS256"]
        if algorithm in SIGNED_ELSEWHERE and self.settings.jwks:
            return await self._published(str(header.get("kid", "")))
        raise jwt.InvalidAlgorithmError

    async def _published(self, kid: str) -> Published:
        async with self._jwks_lock:
            wait = JWKS_SECONDS if kid in self._jwks else JWKS_PAUSE if self._jwks else JWKS_RETRY
            if time.monotonic() - self._jwks_at > wait:
                await self._ask_for_keys(cast(str, self.settings.jwks))
        if not self._jwks:
            raise Refused(503, "The keys of the JWTs cannot be read now", {"Retry-After": "5"})
        if kid not in self._jwks:
            raise jwt.InvalidKeyError
        return self._jwks[kid]

    async def _ask_for_keys(self, place: str) -> None:
        """Those that are known stay when they cannot be read: what is there may be anything, or nothing."""
        try:
            self._jwks = await asyncio.wait_for(asyncio.to_thread(_read_jwks, place), JWKS_PATIENCE)
        except (OSError, HTTPException, ValueError, LookupError, TypeError) as problem:
            log.warning("the keys of the JWTs cannot be read (%s)", type(problem).__name__)
        self._jwks_at = time.monotonic()

    def _claimed(self, claims: Mapping[str, Any]) -> Scope:
        """`sub` is the user. Nothing is believed from `user_metadata`: people edit it themselves."""
        granted = claims.get("app_metadata")
        granted = granted if isinstance(granted, Mapping) else {}
        tenant = self._tenant(claims, granted)
        user = claims["sub"]
        if not isinstance(tenant, str) or not tenant or not user:
            raise unauthorized(f"This JWT names no {self.settings.jwt_tenant_claim}")
        rights = [one.strip() for one in str(granted.get("palaver_rights") or "read,write").split(",")]
        sight = granted.get("palaver_sight")
        workspace = granted.get("palaver_workspace")
        return Scope(
            tenant,
            str(user),
            frozenset(one for one in RIGHTS if one in rights),
            cast(Visibility, sight) if sight in ("own", "workspace", "tenant") else "own",
            workspace if isinstance(workspace, str) else None,
        )

    def _tenant(self, claims: Mapping[str, Any], granted: Mapping[str, Any]) -> Any:
        name = self.settings.jwt_tenant_claim
        if name.split(".")[0] == "user_metadata":
            return None
        value: Any = claims
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value or granted.get(name) or self.settings.jwt_tenant

    # ---- tickets

    def ticket(self, caller: Caller) -> str:
        """What a browser's EventSource may put into a URL, for a short time, to read events."""
        return self._signed(caller, self.settings.ticket_seconds, until=caller.until)

    def link_ticket(self, caller: Caller, line: str, seconds: float) -> str:
        """What a link to one file holds: good for that method and path alone, and no longer than its maker's JWT."""
        return self._signed(caller, seconds, until=caller.until, **{"for": line})

    def upload_ticket(self, caller: Caller, line: str, upload: Upload, seconds: float) -> str:
        """What an upload is put with, and completed with a little later."""
        place = {"id": upload.id, "path": upload.path, "filename": upload.filename, "media_type": upload.media_type}
        return self._signed(caller, seconds + COMPLETE_SECONDS, upload=place, **{"for": line})

    def upload_of(self, ticket: str | None, id: str) -> Upload:
        """The upload that a ticket is for. Raises 401."""
        claims = self._claims(ticket or "")
        place = claims.get("upload")
        if not isinstance(place, dict) or place["id"] != id:
            raise unauthorized("This is not the ticket of this upload")
        return Upload(**place, expires_at=datetime.fromtimestamp(claims["exp"], UTC))

    def _signed(self, caller: Caller, seconds: float, **more: Any) -> str:
        scope = caller.scope
        claims = {
            "aud": TICKET,
            "exp": time.time() + seconds,
            "name": caller.name,
            "key": caller.key,
            "scope": [scope.tenant, scope.user, scope.visibility, scope.workspace],
            **more,
        }
        return jwt.encode(claims, self.settings.ticket_secret, algorithm="HS256")

    def _claims(self, ticket: str) -> dict[str, Any]:
        try:
            return jwt.decode(ticket[:MAX_TOKEN], self.settings.ticket_secret, algorithms=["HS256"], audience=TICKET)
        except jwt.PyJWTError:
            raise unauthorized("This ticket is over, or none of ours: get a new one") from None

    async def _by_ticket(self, ticket: str, line: str) -> Caller:
        claims = self._claims(ticket)
        is_for_events = line.startswith("GET ") and line.endswith("/events")
        if claims.get("for") != (None if is_for_events else line):
            raise unauthorized("This ticket is for something else")
        tenant, user, sight, workspace = claims["scope"]
        rights: set[Right] = {READ, WRITE} if line.startswith("PUT ") else {READ}
        scope = Scope(tenant, user, frozenset(rights), sight, workspace)
        caller = Caller(scope, claims["name"], claims["key"], claims.get("until"))
        await self.still_allowed(caller)
        return caller


def _credentials(headers: Headers) -> str | None:
    """`Authorization: Bearer …`, or `x-api-key`, which Anthropic's clients send."""
    return bearer(headers) or headers.get("x-api-key")


def bearer(headers: Headers) -> str | None:
    kind, _, token = headers.get("authorization", "").partition(" ")
    if not kind:
        return None
    if kind.lower() != "bearer" or not token.strip():
        raise unauthorized("Use Authorization: Bearer …")
    return token.strip()


def _read_jwks(place: str) -> dict[str, Published]:
    """Public keys by their id. Those that are of no use here are passed over."""
    text = _read(place) if "://" in place else Path(place).read_text()
    found: dict[str, Published] = {}
    for one in json.loads(text)["keys"]:
        algorithms = _algorithms(one) if isinstance(one, dict) and one.get("use", "sig") == "sig" else []
        if algorithms:
            with suppress(jwt.PyJWTError):
                found[str(one.get("kid", ""))] = (jwt.PyJWK(one).key, algorithms)
    return found


def _algorithms(key: Mapping[str, Any]) -> list[str]:
    """What a key says that it signs with; else everything that it could."""
    able = ALGORITHMS.get(str(key.get("kty")), ())
    return [one for one in able if one == key.get("alg", one)]


def _read(url: str) -> str:
    _check_url(url)
    with urllib.request.urlopen(url, timeout=5) as answer:
        _check_url(answer.url)  # it may have been led elsewhere
        return str(answer.read(1_000_000).decode())


def _check_url(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname or "")):
        raise OSError("the keys of JWTs are read over https only")


def known_by(key: str) -> str:
    """How a key is called in logs."""
    return api_keys.hash_of(key).hex()[:KEY_ID]
