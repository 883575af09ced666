"""`/mcp`: streamable HTTP. The middleware has authenticated the caller; the SDK gets it in its own terms."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from pydantic import AnyHttpUrl
from starlette.authentication import AuthCredentials
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from palaver.errors import MissingExtra, PermissionDenied
from palaver.model import READ
from palaver.server import errors as http_errors
from palaver.server.auth import Caller
from palaver.server.components import Services
from palaver.server.errors import Refusal
from palaver.server.oauth_metadata import MCP, METADATA, metadata_url, resource_metadata

if TYPE_CHECKING:
    from mcp.server.auth.provider import AccessToken

GRACE = 1.0  # seconds for streams to end by themselves, before they are closed


class Endpoint:
    """The endpoint as an ASGI application. The SDK is loaded on the first request, so that servers without clients of
    MCP start faster."""

    path = MCP

    def __init__(self) -> None:
        self._starting = asyncio.Lock()
        self._app: ASGIApp | None = None
        self._sessions: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = self  # the log takes the path from the route
        services: Services = scope["app"].state.services
        try:
            app = await self._check_admission(services, scope)
            # Read here, so that a body that is too large or too slow gets the usual error.
            body = await Request(scope, receive).body()
        except Refusal as refusal:
            await http_errors.refusal_response(refusal)(scope, receive, send)
            return
        except MissingExtra as missing:
            await http_errors.error_response(missing)(scope, receive, send)
            return
        except ClientDisconnect:
            return
        with services.count_stream(scope["state"]["caller"]) if _stays_open(scope) else nullcontext():
            await app(scope, _receive_until(services.closing, body, receive), send)

    async def _check_admission(self, services: Services, scope: Scope) -> ASGIApp:
        if services.closing.is_set():
            raise Refusal(503, "This server is shutting down", {"Retry-After": "1"})
        if _stays_open(scope):
            services.check_stream_limit(scope["state"]["caller"])
        return await self._start_sdk(services)

    async def _start_sdk(self, services: Services) -> ASGIApp:
        async with self._starting:
            if self._app is None:
                try:
                    app, manager = await asyncio.to_thread(_load, services)
                except ModuleNotFoundError as problem:
                    raise MissingExtra("mcp", "MCP") from problem
                ready = asyncio.Event()
                self._sessions = asyncio.create_task(_run(manager, ready, services.closing), name="palaver-mcp")
                await ready.wait()
                self._app = app
            return self._app

    async def close(self) -> None:
        """Wait for the sessions to end. Called after the last request."""
        if self._sessions is not None:
            await asyncio.gather(self._sessions, return_exceptions=True)
        self._app = self._sessions = None


async def _run(manager: Any, ready: asyncio.Event, closing: asyncio.Event) -> None:
    """Run the sessions in one task, from the first request until the server stops."""
    async with manager.run():
        ready.set()
        await closing.wait()
        await asyncio.sleep(GRACE)


def _stays_open(scope: Scope) -> bool:
    """True if the response is a stream of notifications without an end."""
    return scope["method"] == "GET" or Headers(scope=scope).get("mcp-method") == "subscriptions/listen"


def _receive_until(closing: asyncio.Event, body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that yields the body, then the disconnect: by the client, or because the server stops."""
    first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def wait_for_close() -> None:
        await closing.wait()
        await asyncio.sleep(GRACE)

    async def receive_next() -> Message:
        if first:
            return first.pop()
        message, end = asyncio.ensure_future(receive()), asyncio.create_task(wait_for_close())
        try:
            await asyncio.wait((message, end), return_when=asyncio.FIRST_COMPLETED)
            return message.result() if message.done() else {"type": "http.disconnect"}
        finally:
            message.cancel()
            end.cancel()

    return receive_next


def _load(services: Services) -> tuple[ASGIApp, Any]:
    from mcp.server.streamable_http_manager import StreamableHTTPASGIApp, StreamableHTTPSessionManager

    from palaver.server.mcp.protocol import Host, create_server

    settings = services.settings
    # Sessions are in the memory of one process. Several processes share nothing, so there are none then.
    stateless = settings.workers > 1
    host = Host(
        request_context=_request_context_factory(services),
        hub=services.hub,
        closing=services.closing,
        with_forget=settings.mcp_forget,
        with_system=settings.mcp_system,
        keeps_connections=not stateless,
        heartbeat=settings.heartbeat,
    )
    manager = StreamableHTTPSessionManager(
        create_server(host), stateless=stateless, max_request_body_size=settings.max_body
    )
    return SessionBinding(StreamableHTTPASGIApp(manager)), manager


def _request_context_factory(services: Services) -> Any:
    from palaver.server.mcp.protocol import RequestContext

    def request_context(request: Request) -> RequestContext:
        caller: Caller = request.state.caller

        async def still_allowed() -> None:
            try:
                await services.authenticator.still_allowed(caller)
            except Refusal:
                raise PermissionDenied(READ) from None

        return RequestContext(services.store.scoped(caller.scope), still_allowed)

    return request_context


# ---- the caller, for the SDK ---------------------------------------------------------------------------------------


class CallerTokenVerifier:
    """The SDK's token verifier for one request. The middleware has checked the token already."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller

    async def verify_token(self, token: str) -> AccessToken:
        from mcp.server.auth.provider import AccessToken

        scope = self.caller.scope
        return AccessToken(
            token=token,
            client_id=self.caller.name,
            scopes=sorted(scope.rights),
            subject=scope.user,
            claims={"iss": scope.tenant},
        )


class SessionBinding:
    """Binds a session to the caller that opened it, and requires the right to read."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, RequireAuthMiddleware

        token = await CallerTokenVerifier(scope["state"]["caller"]).verify_token("")
        scope["user"], scope["auth"] = AuthenticatedUser(token), AuthCredentials(token.scopes)
        await RequireAuthMiddleware(self.app, [READ], AnyHttpUrl(metadata_url(scope)))(scope, receive, send)


def routes(endpoint: Any) -> list[Route]:
    return [
        Route(MCP, endpoint),
        Route(METADATA + MCP, resource_metadata, methods=["GET"]),
        Route(METADATA, resource_metadata, methods=["GET"]),
    ]
