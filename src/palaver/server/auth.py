"""Authentication by API key, JWT, or ticket (for a browser's EventSource); on loopback none is needed."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, cast

import jwt
from starlette.datastructures import Headers

from palaver.conversations import api_keys
from palaver.conversations.details import clean_scope
from palaver.conversations.internals import clock_of, engine_of
from palaver.conversations.store import Store
from palaver.core.rights import rights_from_names
from palaver.errors import InvalidInput
from palaver.model import READ, WRITE, ApiKey, Right, Scope, Upload, Visibility
from palaver.server.errors import Refusal
from palaver.server.jwt_keys import ASYMMETRIC, PublishedKeys
from palaver.server.settings import ServerSettings

log = logging.getLogger("palaver.server")

TICKET = "palaver-ticket"
USE_SECONDS = 3_600.0  # the use of a key from one address is logged once in this time
MAX_TOKEN = 16_384  # bytes
LOGGED_USES = 10_000  # entries before the memory of logged uses is cleared
COMPLETE_SECONDS = 300.0  # how long after the deadline for its bytes an upload may be completed


@dataclass(frozen=True, slots=True)
class Caller:
    """An authenticated client. `name` is for rate limits and logs; it is not a secret."""

    scope: Scope
    name: str
    key: str | None = None
    until: float | None = None  # when the JWT expires


def unauthorized(detail: str) -> Refusal:
    return Refusal(401, detail, {"WWW-Authenticate": 'Bearer realm="palaver"'})


@dataclass(slots=True)
class Authenticator:
    """Finds the caller of a request from its credentials."""

    settings: ServerSettings
    store: Store
    published_keys: PublishedKeys = field(default_factory=PublishedKeys)
    now: Callable[[], float] = time.time
    _logged_uses: dict[tuple[str, str, str], float] = field(default_factory=dict)

    async def caller(
        self, headers: Headers, ticket: str | None, address: str, line: str = "", *, of_sdk: bool = False
    ) -> Caller:
        """Return the caller, or raise 401. A `ticket` must have been made for `line`, the method and path.

        With `of_sdk`, an unknown key is ignored if no authentication is needed: the SDKs of providers always send one.
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
            raise unauthorized("The credentials are neither a key nor a JWT")
        return await (self._by_key(token, address) if token.startswith(api_keys.PREFIX) else self._by_jwt(token))

    def _could_be_ours(self, token: str) -> bool:
        return self.settings.needs_auth or self.settings.has_jwt or token.startswith(api_keys.PREFIX)

    async def still_allowed(self, caller: Caller) -> None:
        """Check the key or JWT of a connection that stays open. Raises 401."""
        if caller.until is not None and self.now() >= caller.until:
            raise unauthorized("This JWT has expired")
        if caller.key is not None:
            found = [one for one in await engine_of(self.store).api_keys(caller.scope) if one.id == caller.key]
            if not found or not found[0].works(clock_of(self.store).now()):
                raise unauthorized("This key is no longer valid")

    # ---- keys

    async def _by_key(self, token: str, address: str) -> Caller:
        tenant = api_keys.tenant_of(token)
        key = None if tenant is None else await engine_of(self.store).api_key(tenant, api_keys.hash_of(token))
        if key is None:
            raise unauthorized("This key is unknown")
        return await self._accept_key(key, address)

    async def _accept_key(self, key: ApiKey, address: str) -> Caller:
        if not key.works(clock_of(self.store).now()):
            await self._log_key_use("refuse", key, address)
            raise unauthorized("This key was revoked" if key.revoked_at is not None else "This key has expired")
        await self._log_key_use("use", key, address)
        return Caller(replace(key.scope, key=key.id), f"key:{key.id}", key.id)

    async def _log_key_use(self, kind: str, key: ApiKey, address: str) -> None:
        """Write to the log of keys: once an hour for each address, not for every request."""
        entry, now = (kind, key.id, address), time.monotonic()
        if now - self._logged_uses.get(entry, -1e9) < USE_SECONDS:
            return
        if len(self._logged_uses) >= LOGGED_USES:
            self._logged_uses.clear()
        self._logged_uses[entry] = now
        await engine_of(self.store).log_key(key.scope, kind, key.id, {"address": address})

    # ---- JWTs

    async def _by_jwt(self, token: str) -> Caller:
        if not self.settings.has_jwt:
            raise unauthorized("This is not a key of this server, and JWTs are not configured")
        if token.count(".") != 2:
            raise unauthorized("This is neither a key of this server nor a JWT")
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
            scope = clean_scope(self._scope_from_claims(claims))
        except InvalidInput as problem:
            raise unauthorized(f"This JWT is not accepted ({problem.field})") from None
        return Caller(scope, f"jwt:{scope.tenant}/{scope.user}", until=float(claims["exp"]))

    async def _signing_key(self, header: Mapping[str, Any]) -> tuple[Any, list[str]]:
        """Choose the key, and the algorithms from the key: a token cannot select a weaker one."""
        algorithm = header.get("alg")
        if algorithm == "HS256" and self.settings.jwt_secret:
            return self.settings.jwt_secret, ["HS256"]
        if algorithm in ASYMMETRIC and self.settings.jwks:
            return await self.published_keys.find(self.settings.jwks, str(header.get("kid", "")))
        raise jwt.InvalidAlgorithmError

    def _scope_from_claims(self, claims: Mapping[str, Any]) -> Scope:
        """Read the scope from claims. `sub` is the user. `user_metadata` is ignored, because users can edit it."""
        granted = claims.get("app_metadata")
        granted = granted if isinstance(granted, Mapping) else {}
        tenant = self._tenant_from_claims(claims, granted)
        user = claims["sub"]
        if not user:
            raise unauthorized("This JWT has an empty sub: it must name the user")
        if not isinstance(tenant, str) or not tenant:
            raise unauthorized(f"This JWT has no {self.settings.jwt_tenant_claim}: it must name the tenant")
        rights = str(granted.get("palaver_rights") or "read,write").split(",")
        visibility = granted.get("palaver_sight")
        workspace = granted.get("palaver_workspace")
        return Scope(
            tenant,
            str(user),
            rights_from_names(rights),
            cast(Visibility, visibility) if visibility in ("own", "workspace", "tenant") else "own",
            workspace if isinstance(workspace, str) else None,
        )

    def _tenant_from_claims(self, claims: Mapping[str, Any], granted: Mapping[str, Any]) -> Any:
        name = self.settings.jwt_tenant_claim
        if name.split(".")[0] == "user_metadata":
            return None
        value: Any = claims
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return value or granted.get(name) or self.settings.jwt_tenant

    # ---- tickets

    def ticket(self, caller: Caller) -> str:
        """Make a short-lived ticket that a browser's EventSource puts into a URL to read events."""
        return self._sign_ticket(caller, self.settings.ticket_seconds, until=caller.until)

    def link_ticket(self, caller: Caller, line: str, seconds: float) -> str:
        """Make a ticket for a link to one file: for that method and path alone, and not beyond the caller's JWT."""
        return self._sign_ticket(caller, seconds, until=caller.until, **{"for": line})

    def upload_ticket(self, caller: Caller, line: str, upload: Upload, seconds: float) -> str:
        """Make a ticket with which an upload is sent, and completed a little later."""
        place = {"id": upload.id, "path": upload.path, "filename": upload.filename, "media_type": upload.media_type}
        return self._sign_ticket(caller, seconds + COMPLETE_SECONDS, upload=place, **{"for": line})

    def upload_of(self, ticket: str | None, id: str) -> Upload:
        """Return the upload that a ticket is for. Raises 401."""
        claims = self._read_ticket(ticket or "")
        place = claims.get("upload")
        if not isinstance(place, dict) or place["id"] != id:
            raise unauthorized("This ticket is not for this upload")
        return Upload(**place, expires_at=datetime.fromtimestamp(claims["exp"], UTC))

    def _sign_ticket(self, caller: Caller, seconds: float, **more: Any) -> str:
        scope = caller.scope
        claims = {
            "aud": TICKET,
            "exp": self.now() + seconds,
            "name": caller.name,
            "key": caller.key,
            "scope": [scope.tenant, scope.user, scope.visibility, scope.workspace],
            **more,
        }
        return jwt.encode(claims, self.settings.ticket_secret, algorithm="HS256")

    def _read_ticket(self, ticket: str) -> dict[str, Any]:
        try:
            return jwt.decode(ticket[:MAX_TOKEN], self.settings.ticket_secret, algorithms=["HS256"], audience=TICKET)
        except jwt.PyJWTError:
            raise unauthorized("This ticket is invalid or has expired: get a new one") from None

    async def _by_ticket(self, ticket: str, line: str) -> Caller:
        claims = self._read_ticket(ticket)
        is_for_events = line.startswith("GET ") and line.endswith("/events")
        if claims.get("for") != (None if is_for_events else line):
            raise unauthorized("This ticket is for something else")
        tenant, user, visibility, workspace = claims["scope"]
        rights: set[Right] = {READ, WRITE} if line.startswith("PUT ") else {READ}
        scope = Scope(tenant, user, frozenset(rights), visibility, workspace, claims["key"])
        caller = Caller(scope, claims["name"], claims["key"], claims.get("until"))
        await self.still_allowed(caller)
        return caller


def _credentials(headers: Headers) -> str | None:
    """Return the token of `Authorization: Bearer …`, or of `x-api-key`, which Anthropic's clients send."""
    return bearer(headers) or headers.get("x-api-key")


def bearer(headers: Headers) -> str | None:
    kind, _, token = headers.get("authorization", "").partition(" ")
    if not kind:
        return None
    if kind.lower() != "bearer" or not token.strip():
        raise unauthorized("Use Authorization: Bearer …")
    return token.strip()
