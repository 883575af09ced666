"""What stands before every request: its id, its headers, the names and origins it may use, its size, pace and time.

Plain ASGI, so that a stream passes through without being held up. The order is in `app.py`.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from palaver.core.identity import new_id
from palaver.errors import PalaverError
from palaver.server import errors as http_errors
from palaver.server.auth import Authenticator
from palaver.server.compat import errors as compat_errors
from palaver.server.errors import Refused
from palaver.server.oauth_metadata import challenged
from palaver.server.ops.metrics import METHODS, Metrics
from palaver.server.settings import ServerSettings

log = logging.getLogger("palaver.server")

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
PROBES = frozenset({"/healthz", "/readyz"})  # asked by machines that know an address and no name; they tell nothing
API = ("/api", "/v1", "/mcp")  # what needs a caller
UPLOADS = re.compile(r"/api/conversations/[^/]+/(?:attachments|uploads/[^/]+)")
# What a ticket opens, instead of a key: events; and with a ticket of their own, one file or one upload.
TICKETS = re.compile(
    r"GET /api/(?:events|conversations/[^/]+/(?:events|attachments/[^/]+/content))"
    r"|PUT /api/conversations/[^/]+/uploads/[^/]+"
)
LONG = re.compile(
    r"/api/conversations/[^/]+/(?:generate|summarize|compact|facts/extract|verify|turns/[^/]+/regenerate)"
    r"|/api/chat|/v1/(?:chat/completions|responses|messages)|/mcp"
)
SAFE_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
}
CALLERS = 10_000  # whose pace is remembered
STRANGERS = (5.0, 30)  # the pace of an address whose callers are not known: so many per second, and at once


async def _refuse(refusal: HTTPException, scope: Scope, receive: Receive, send: Send) -> None:
    await compat_errors.in_dialect(scope["path"], http_errors.of_refusal(refusal))(scope, receive, send)


@dataclass(slots=True)
class Envelope:
    """Outermost: every answer has a request id and safe headers, and a fault of ours says nothing of what it held."""

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

        async def dressed(message: Message) -> None:
            nonlocal started, status, waited
            if message["type"] == "http.response.start":
                started, status, waited = True, message["status"], time.perf_counter() - began
                headers = MutableHeaders(scope=message)
                headers["X-Request-Id"] = id
                for name, value in SAFE_HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store")
            await send(message)

        try:
            await self.app(scope, receive, dressed)
        except ClientDisconnect:
            pass  # in the middle of its body: there is nobody to answer, and nothing is wrong here
        except Exception as problem:  # the last place where it can be answered
            response = compat_errors.in_dialect(scope["path"], http_errors.of_surprise(problem, id))
            if not started:
                await response(scope, receive, dressed)
        finally:
            self.metrics.request(scope["method"], _route(scope), status, waited)
            _tell(scope, id, status, time.perf_counter() - began)


def _tell(scope: Scope, id: str, status: int, seconds: float) -> None:
    """One line of the log. A request without a status is one whose client went away before the answer."""
    level = logging.DEBUG if scope["path"] in PROBES else logging.INFO
    if not log.isEnabledFor(level):
        return
    told = {
        "method": scope["method"] if scope["method"] in METHODS else "other",
        "route": _route(scope),
        "status": status,
        "ms": round(seconds * 1_000, 1),
        "caller": _caller(scope),
        "request": id,
    }
    log.log(level, " ".join(["%s"] * len(told)), *told.values(), extra={"event": "request", "fields": told})


def _route(scope: Scope) -> str:
    """The pattern of the path: an id in a log may be followed, what somebody typed may not."""
    route = scope.get("route")
    return str(getattr(route, "path", "-"))


def _caller(scope: Scope) -> str:
    """The id of a key; of others only how they came in: who they are is nothing for a log."""
    caller = scope["state"].get("caller")
    return "-" if caller is None else f"key:{caller.key}" if caller.key else caller.name.partition(":")[0]


@dataclass(slots=True)
class Doorman:
    """Only under our own names, and only for our own pages: a page elsewhere cannot talk to a server on loopback."""

    app: ASGIApp
    settings: ServerSettings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        try:
            self._check(Headers(scope=scope), scope["path"])
        except Refused as refusal:
            await _refuse(refusal, scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _check(self, headers: Headers, path: str) -> None:
        if path in PROBES:
            return
        if len(headers.getlist("host")) != 1:
            raise Refused(400, "There must be one Host header")
        host = headers["host"].lower()
        name = host.rsplit(":", 1)[0] if re.search(r":\d+$", host) else host
        if self.settings.names and name not in self.settings.names:
            raise Refused(421, "This server does not go by that name: add it to PALAVER_HOSTS")
        origin = headers.get("origin")
        if origin is None or origin in self.settings.origins:
            return
        if origin.lower() not in (f"http://{host}", f"https://{host}"):
            raise Refused(403, "Pages of that origin may not call this server: add it to PALAVER_ORIGINS")


@dataclass(slots=True)
class Pace:
    """So many requests per second and caller, on average, in this process; a burst may be faster."""

    rate: float
    burst: int
    _left: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)

    def take(self, caller: str) -> float | None:
        """None when the caller may go on, else how many seconds to wait."""
        if not self.rate:
            return None
        now = time.monotonic()
        left, then = self._left.pop(caller, (float(self.burst), now))
        left = min(float(self.burst), left + (now - then) * self.rate)
        wait = None if left >= 1 else (1 - left) / self.rate
        self._left[caller] = (left - 1 if wait is None else left, now)
        while len(self._left) > CALLERS:
            self._left.popitem(last=False)
        return wait


@dataclass(slots=True)
class Gate:
    """Says who is asking before a byte of the body is read, and how often they may."""

    app: ASGIApp
    pace: Pace
    strangers: Pace = field(default_factory=lambda: Pace(*STRANGERS))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(API):
            await self.app(scope, receive, send)
            return
        try:
            scope["state"]["caller"] = await self._caller(scope)
        except Refused as refusal:
            await _refuse(challenged(scope, refusal), scope, receive, send)
            return
        except PalaverError as problem:  # the database is out of reach
            await compat_errors.in_dialect(scope["path"], http_errors.of_error(problem))(scope, receive, send)
            return
        await self.app(scope, receive, send)

    async def _caller(self, scope: Scope) -> Any:
        address = (scope.get("client") or ("?",))[0]
        authenticator: Authenticator = scope["app"].state.services.authenticator
        ticket = parse_qs(scope["query_string"].decode("latin-1")).get("ticket", [None])[0]
        line = f"{scope['method']} {scope['path']}"
        taken = ticket if TICKETS.fullmatch(line) else None
        try:
            of_sdk = compat_errors.FOREIGN.match(scope["path"]) is not None
            caller = await authenticator.caller(Headers(scope=scope), taken, address, line, of_sdk=of_sdk)
        except Refused:
            _check_pace(self.strangers, address)
            raise
        if caller.name != "local":
            _check_pace(self.pace, caller.name)
        return caller


def _check_pace(pace: Pace, name: str) -> None:
    wait = pace.take(name)
    if wait is not None:
        seconds = str(max(1, round(wait + 0.5)))
        raise Refused(429, f"At most {pace.rate:g} requests per second", {"Retry-After": seconds}, limit=pace.rate)


@dataclass(slots=True)
class Measure:
    """Bodies are bounded in size and time, and so is the wait for an answer to begin."""

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
            await _refuse(_too_large(int(length), limit), scope, receive, send)
            return
        patience_for_body = settings.upload_seconds if is_upload else settings.body_seconds
        seconds = settings.answer_seconds if LONG.fullmatch(path) else settings.request_seconds
        seconds += patience_for_body if is_upload else 0.0
        body = _Body(receive, limit, time.monotonic() + patience_for_body)
        started = False
        try:
            async with asyncio.timeout(seconds) as patience:

                async def watched(message: Message) -> None:
                    nonlocal started
                    if message["type"] == "http.response.start":
                        started = True
                        patience.reschedule(None)
                    await send(message)

                await self.app(scope, body.receive, watched)
        except TimeoutError:
            if started:
                raise
            await _refuse(Refused(504, f"No answer within {seconds:g} seconds"), scope, receive, send)


def _too_large(size: int, limit: int) -> Refused:
    return Refused(
        413, f"the body is over the limit of {limit:,} bytes", field="body", size=size, limit=limit, unit="bytes"
    )


@dataclass(slots=True)
class _Body:
    """A body that is counted and timed while it comes in."""

    source: Receive
    limit: int
    deadline: float
    size: int = 0
    complete: bool = False

    async def receive(self) -> Message:
        if self.complete:
            return await self.source()  # what remains is the end of the connection
        try:
            message = await asyncio.wait_for(self.source(), self.deadline - time.monotonic())
        except TimeoutError:
            raise Refused(408, "the body did not arrive in time", {"Connection": "close"}) from None
        if message["type"] == "http.request":
            self.size += len(message.get("body", b""))
            self.complete = not message.get("more_body", False)
            if self.size > self.limit:
                raise _too_large(self.size, self.limit)
        return message
