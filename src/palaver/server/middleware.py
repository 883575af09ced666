"""Middleware: request id and headers, Host and Origin, authentication and rate limit, body size and time limits.

Plain ASGI, so that streams are not buffered. `app.py` sets the order.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from dataclasses import dataclass
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from palaver.conversations.internals import engine_of
from palaver.core.identity import new_id
from palaver.errors import PalaverError
from palaver.server import errors as http_errors
from palaver.server.auth import Authenticator, Caller
from palaver.server.compat import errors as compat_errors
from palaver.server.errors import Refusal
from palaver.server.oauth_metadata import add_challenge
from palaver.server.ops.metrics import METHODS, Metrics
from palaver.server.rate_limits import RateLimit
from palaver.server.settings import ServerSettings

log = logging.getLogger("palaver.server")

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
PROBES = frozenset({"/healthz", "/readyz"})  # any Host is accepted: load balancers use an address; they reveal nothing
API = ("/api", "/v1", "/mcp")  # paths that need a caller
UPLOADS = re.compile(r"/api/(?:imports|conversations/[^/]+/(?:attachments|uploads/[^/]+))")
# Requests that accept a ticket instead of a key: events; and, with a ticket made for it, one file or one upload.
TICKETS = re.compile(
    r"GET /api/(?:events|conversations/[^/]+/(?:events|attachments/[^/]+/content))"
    r"|PUT /api/conversations/[^/]+/uploads/[^/]+"
)
LONG = re.compile(
    r"/api/conversations/[^/]+/(?:generate|summarize|compact|facts/extract|verify|turns/[^/]+/regenerate)"
    r"|/api/chat|/v1/(?:chat/completions|responses(?:/compact)?|messages)|/mcp"
)
SAFE_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
}


async def _send_refusal(refusal: HTTPException, scope: Scope, receive: Receive, send: Send) -> None:
    await compat_errors.to_client_format(scope["path"], http_errors.refusal_response(refusal))(scope, receive, send)


@dataclass(slots=True)
class RequestIdMiddleware:
    """Outermost: gives every response a request id and security headers, and hides the details of unexpected errors."""

    app: ASGIApp
    metrics: Metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        id = given if _REQUEST_ID.fullmatch(given) else new_id()
        scope.setdefault("state", {})["request_id"] = id
        started, began, status, waited = False, time.perf_counter(), 0, 0.0

        async def send_with_headers(message: Message) -> None:
            nonlocal started, status, waited
            if message["type"] == "http.response.start":
                started, status, waited = True, message["status"], time.perf_counter() - began
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"] = id
                for name, value in SAFE_HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
                if _is_closing(scope):
                    headers["Connection"] = "close"  # so that the client's next request goes to another process
            await send(message)

        try:
            await self.app(scope, receive, send_with_headers)
        except ClientDisconnect:
            pass  # the client left in the middle of its body: not an error of the server
        except Exception as problem:  # the last place that can send a response
            response = compat_errors.to_client_format(scope["path"], http_errors.unexpected_response(problem, id))
            if not started:
                await response(scope, receive, send_with_headers)
        finally:
            self.metrics.request(scope["method"], _route_pattern(scope), status, waited)
            _log_request(scope, id, status, time.perf_counter() - began)


def _is_closing(scope: Scope) -> bool:
    services = getattr(scope["app"].state, "services", None) if "app" in scope else None
    return services is not None and services.readiness.closing


def _log_request(scope: Scope, id: str, status: int, seconds: float) -> None:
    """Log one request. Status 0: the client left before the response."""
    level = logging.DEBUG if scope["path"] in PROBES else logging.INFO
    if not log.isEnabledFor(level):
        return
    fields = {
        "method": scope["method"] if scope["method"] in METHODS else "other",
        "route": _route_pattern(scope),
        "status": status,
        "ms": round(seconds * 1_000, 1),
        "caller": _caller_label(scope),
        "request": id,
    }
    log.log(level, " ".join(["%s"] * len(fields)), *fields.values(), extra={"event": "request", "fields": fields})


def _route_pattern(scope: Scope) -> str:
    """Return the pattern of the path. Paths themselves are not logged: they may hold what a user typed."""
    route = scope.get("route")
    return str(getattr(route, "path", "-"))


def _caller_label(scope: Scope) -> str:
    """Return the id of a key; for other callers only how they authenticated, because users are not logged."""
    caller = scope["state"].get("caller")
    return "-" if caller is None else f"key:{caller.key}" if caller.key else caller.name.partition(":")[0]


@dataclass(slots=True)
class HostOriginMiddleware:
    """Checks Host, Origin and framing, against DNS rebinding, cross-site requests and request smuggling."""

    app: ASGIApp
    settings: ServerSettings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            self._check(Headers(scope=scope), scope["path"])
        except Refusal as refusal:
            await _send_refusal(refusal, scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _check(self, headers: Headers, path: str) -> None:
        if path in PROBES:
            return
        if len(headers.getlist("host")) != 1:
            raise Refusal(400, "Send exactly one Host header")
        if "content-length" in headers and "transfer-encoding" in headers:
            # A proxy may read such a request differently (RFC 9112, 6.1).
            raise Refusal(400, "Send Content-Length or Transfer-Encoding, not both", {"Connection": "close"})
        host = headers["host"].lower()
        name = host.rsplit(":", 1)[0] if re.search(r":\d+$", host) else host
        if self.settings.names and name not in self.settings.names:
            raise Refusal(421, "This Host is not a name of this server: add it to PALAVER_HOSTS")
        origin = headers.get("origin")
        if origin in self.settings.origins:
            return
        if not self.settings.needs_auth and _is_from_another_site(headers, path):
            raise Refusal(403, "A page of another site may not call this server: add its origin to PALAVER_ORIGINS")
        if origin is None:
            return
        if origin.lower() not in (f"http://{host}", f"https://{host}"):
            raise Refusal(403, "This Origin may not call this server: add it to PALAVER_ORIGINS")


def _is_from_another_site(headers: Headers, path: str) -> bool:
    """Return whether another site's page causes the request. A link from there may open a page of the web app.

    Pictures and scripts send no Origin. Their responses cannot be read, but the work should not be done at all.
    """
    if headers.get("sec-fetch-site") != "cross-site":
        return False
    return headers.get("sec-fetch-mode") != "navigate" or path.startswith(API)


@dataclass(slots=True)
class AuthMiddleware:
    """Authenticates the caller and applies the rate limit, before a byte of the body is read."""

    app: ASGIApp
    rate_limit: RateLimit
    failed_login_limit: RateLimit  # by address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(API):
            await self.app(scope, receive, send)
            return
        try:
            scope["state"]["caller"] = await self._caller(scope)
        except Refusal as refusal:
            await _send_refusal(add_challenge(scope, refusal), scope, receive, send)
            return
        except PalaverError as problem:  # the database is not reachable
            await compat_errors.to_client_format(scope["path"], http_errors.error_response(problem))(
                scope, receive, send
            )
            return
        await self.app(scope, receive, send)

    async def _caller(self, scope: Scope) -> Caller:
        address = (scope.get("client") or ("?",))[0]
        authenticator: Authenticator = scope["app"].state.services.authenticator
        ticket = parse_qs(scope["query_string"].decode("latin-1")).get("ticket", [None])[0]
        line = f"{scope['method']} {scope['path']}"
        taken = ticket if TICKETS.fullmatch(line) else None
        try:
            of_sdk = compat_errors.FOREIGN.match(scope["path"]) is not None
            caller = await authenticator.caller(Headers(scope=scope), taken, address, line, of_sdk=of_sdk)
        except Refusal:
            await _check_rate(self.failed_login_limit, address, scope, "failed logins")
            raise
        if caller.name != "local":
            await _check_rate(self.rate_limit, caller.name, scope, "requests")
        return caller


async def _check_rate(bucket: RateLimit, name: str, scope: Scope, counted: str) -> None:
    wait = await bucket.take(name, engine_of(scope["app"].state.services.store))
    if wait is not None:
        seconds = str(max(1, round(wait + 0.5)))
        raise Refusal(429, f"At most {bucket.rate:g} {counted} per second", {"Retry-After": seconds}, limit=bucket.rate)


@dataclass(slots=True)
class BodyLimitMiddleware:
    """Limits the size and duration of request bodies, and the time until a response starts."""

    app: ASGIApp
    settings: ServerSettings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        settings, path = self.settings, scope["path"]
        is_upload = UPLOADS.fullmatch(path) is not None
        limit = settings.max_upload if is_upload else settings.max_body
        length = Headers(scope=scope).get("content-length", "")
        if length.isdigit() and int(length) > limit:
            await _send_refusal(_too_large(int(length), limit), scope, receive, send)
            return
        body_seconds = settings.upload_seconds if is_upload else settings.body_seconds
        seconds = settings.answer_seconds if LONG.fullmatch(path) else settings.request_seconds
        seconds += body_seconds if is_upload else 0.0
        body = _Body(receive, limit, body_seconds)
        started = False
        try:
            async with asyncio.timeout(seconds) as patience:

                async def send_and_stop_clock(message: Message) -> None:
                    nonlocal started
                    if message["type"] == "http.response.start":
                        started = True
                        patience.reschedule(None)
                    await send(message)

                await self.app(scope, body.receive, send_and_stop_clock)
        except TimeoutError:
            if started:
                raise
            await _send_refusal(Refusal(504, f"No response within {seconds:g} seconds"), scope, receive, send)


def _too_large(size: int, limit: int) -> Refusal:
    return Refusal(
        413, f"The body is over the limit of {limit:,} bytes", field="body", size=size, limit=limit, unit="bytes"
    )


@dataclass(slots=True)
class _Body:
    """Counts a body and times how long the server waits for it, without the time until the server reads it."""

    source: Receive
    limit: int
    seconds_left: float
    size: int = 0
    complete: bool = False

    async def receive(self) -> Message:
        if self.complete:
            return await self.source()  # only the disconnect is left
        begun = time.monotonic()
        try:
            message = await asyncio.wait_for(self.source(), self.seconds_left)
        except TimeoutError:
            raise Refusal(408, "The body did not arrive in time", {"Connection": "close"}) from None
        self.seconds_left -= time.monotonic() - begun
        if message["type"] == "http.request":
            self.size += len(message.get("body", b""))
            self.complete = not message.get("more_body", False)
            if self.size > self.limit:
                raise _too_large(self.size, self.limit)
        return message
