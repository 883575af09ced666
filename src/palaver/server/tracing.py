"""A span for every HTTP request, with the parent that `traceparent` names. The request's work is inside it."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from palaver.server.ops.metrics import METHODS
from palaver.telemetry import NoSpan, OpenSpan, Telemetry

PROPAGATED = ("traceparent", "tracestate", "baggage")


@dataclass(slots=True)
class TracingMiddleware:
    """Names spans by the pattern of the path, as logs and metrics do: paths may hold what a user typed."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        services = getattr(scope["app"].state, "services", None)  # None until the database is open
        telemetry = Telemetry() if services is None else services.telemetry
        if scope["type"] != "http" or telemetry.tracer is None:
            await self.app(scope, receive, send)
            return
        method = scope["method"] if scope["method"] in METHODS else "_OTHER"
        headers = Headers(scope=scope)
        carrier = {name: headers[name] for name in PROPAGATED if name in headers}
        attributes = {"http__request__method": method, "url__scheme": scope.get("scheme", "http")}
        with telemetry.span(method, kind="server", headers=carrier, **attributes) as span:

            async def send_and_note(message: Message) -> None:
                if message["type"] == "http.response.start":
                    _note_response(span, method, scope, message["status"])
                await send(message)

            await self.app(scope, receive, send_and_note)


def _note_response(span: NoSpan | OpenSpan, method: str, scope: Scope, status: int) -> None:
    route = getattr(scope.get("route"), "path", None)
    span.set(http__response__status_code=status, http__route=route)
    if isinstance(span, OpenSpan):
        span.span.update_name(f"{method} {route}" if route else method)
        if status >= 500:
            span.mark_failed(str(status))
