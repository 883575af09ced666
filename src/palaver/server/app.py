"""The ASGI application: routes from the table of operations, middleware, and the OpenAPI document."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Match, Route

import palaver
from palaver.errors import TITLES, PalaverError
from palaver.server import errors as http_errors
from palaver.server.compat import errors as compat_errors
from palaver.server.components import open_services
from palaver.server.json_body import JsonRoute
from palaver.server.mcp import endpoint
from palaver.server.middleware import (
    AuthMiddleware,
    BodyLimitMiddleware,
    HostOriginMiddleware,
    RequestIdMiddleware,
)
from palaver.server.openapi import complete_openapi
from palaver.server.operations import COMPAT_OPERATIONS, REST_OPERATIONS, Operation
from palaver.server.ops import health, logs
from palaver.server.ops.metrics import SHARED, Metrics
from palaver.server.ops.shutdown import handle_signals
from palaver.server.rate_limits import make_limit
from palaver.server.settings import PASSED_ON, ServerSettings
from palaver.server.tracing import TracingMiddleware
from palaver.server.web import docs_page, pages

log = logging.getLogger("palaver.server")

DESCRIPTION = (
    "Conversations that never end, in prompts that always fit. Every error is a problem detail (RFC 9457) that names "
    "the field and the limit. Send a key or a JWT as a bearer token; on loopback none is needed."
)
EXPOSED = (
    "Accept-Ranges", "Content-Disposition", "Content-Range", "ETag", "Link", "Location", "Mcp-Session-Id",
    "RateLimit", "RateLimit-Policy",
    "Retry-After", "WWW-Authenticate", "X-Request-Id", "X-Conversation-Id", "X-Context-Tokens", "X-Recalled-Turns",
    "X-Ignored-Fields", "X-Vercel-AI-UI-Message-Stream",
)  # fmt: skip
# Headers that the SDKs of providers send from a browser.
SDK_HEADERS = (
    "X-Api-Key", "Anthropic-Version", "Anthropic-Beta", "Anthropic-Dangerous-Direct-Browser-Access",
    "X-Stainless-Arch", "X-Stainless-Lang", "X-Stainless-OS", "X-Stainless-Package-Version", "X-Stainless-Retry-Count",
    "X-Stainless-Runtime", "X-Stainless-Runtime-Version", "X-Stainless-Timeout", "X-Stainless-Helper-Method",
)  # fmt: skip
EVENT_STREAM = "text/event-stream"
ERROR_BODIES = {
    "problem": ("Problem", "application/problem+json"),
    "openai": ("OpenAIError", "application/json"),
    "anthropic": ("AnthropicError", "application/json"),
}
EVENT = {"$ref": "#/components/schemas/ServerSentEvent"}


def create_app(settings: ServerSettings, web: Path = pages.STATIC) -> FastAPI:
    """Create the server as an ASGI application, with the web app built into `web`. The database opens on startup."""
    metrics, mcp = Metrics(), endpoint.Endpoint()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            try:
                services = await stack.enter_async_context(open_services(settings, metrics))
            except PalaverError as problem:
                log.error("cannot start: %s", problem)
                raise
            app.state.services = services
            log.info("open, on %s", urlsplit(settings.url).scheme)
            stack.push_async_callback(mcp.close)
            with handle_signals(services.drain):
                yield
        log.info("closed")

    app = FastAPI(
        title="Palaver",
        version=palaver.__version__,
        description=DESCRIPTION,
        lifespan=lifespan,
        middleware=_middleware(settings, metrics),
        docs_url=None,
        redoc_url=None,
        separate_input_output_schemas=False,
        exception_handlers={
            PalaverError: _in_client_format(http_errors.on_error),
            HTTPException: _in_client_format(_on_refusal),
            RequestValidationError: _in_client_format(http_errors.on_validation),
            Exception: _in_client_format(http_errors.on_unexpected),
        },
    )
    app.include_router(_router())
    app.add_api_route("/docs", _docs(app), include_in_schema=False)
    for handler in (health.healthz, health.readyz, health.metrics):
        app.add_api_route(f"/{handler.__name__}", handler, include_in_schema=False)
    app.router.routes.extend(endpoint.routes(mcp))
    if not pages.add_pages(app, pages.read_built_files(web)):
        app.add_api_route("/", _docs(app, docs_page.NOT_BUILT), include_in_schema=False)
    complete_openapi(app)
    return app


def _in_client_format(handler: Callable[[Request, Exception], Awaitable[Response]]) -> Any:
    """Wrap an error handler to send errors in the format that clients of the path expect."""

    async def handle(request: Request, error: Exception) -> Response:
        response = await handler(request, error)
        is_problem = isinstance(response, http_errors.Problem)
        return compat_errors.to_client_format(request.url.path, response) if is_problem else response  # type: ignore[arg-type]

    return handle


async def _on_refusal(request: Request, error: Exception) -> Response:
    response = await http_errors.on_refusal(request, error)
    if response.status_code == 404 and hasattr(request.app.state, "unknown_page"):
        return request.app.state.unknown_page(request) or response
    if response.status_code == 405:
        response.headers["Allow"] = ", ".join(sorted(_allowed_methods(request)))
    return response


def _allowed_methods(request: Request) -> set[str]:
    """Return the methods of all routes with this path. Starlette names those of the first one only."""
    routes = [one for one in (*_router().routes, *request.app.routes) if isinstance(one, Route)]
    matching = [one for one in routes if one.matches(request.scope)[0] is not Match.NONE]
    return {method for one in matching for method in one.methods or ()}


def from_environment() -> FastAPI:
    """Create the application of a worker process, with the settings that `palaver serve` passed on."""
    settings = ServerSettings.from_text(os.environ[PASSED_ON])
    logs.set_up(settings)
    app = create_app(settings)
    # Modules and routes are never freed. If each full garbage collection looked at their 100,000 objects, it would stop
    # the event loop for 20 ms, and for longer on a busy machine.
    gc.collect()
    gc.freeze()
    return app


def _middleware(settings: ServerSettings, metrics: Metrics) -> list[Middleware]:
    """List the middleware from the outside in. Callers are authenticated before a body is read."""
    folder = os.environ.get(SHARED)  # of the workers of one `palaver serve`
    shared = None if folder is None else Path(folder)
    cors = Middleware(
        CORSMiddleware,
        allow_origins=settings.origins,
        allow_methods=("GET", "POST", "PUT", "PATCH", "DELETE"),
        allow_headers=(
            "Authorization",
            "Content-Type",
            "Idempotency-Key",
            "If-Match",
            "If-None-Match",
            "If-Range",
            "Last-Event-ID",
            "Mcp-Method",
            "Mcp-Name",
            "Mcp-Protocol-Version",
            "Mcp-Session-Id",
            "Range",
            "X-Conversation-Id",
            *SDK_HEADERS,
        ),
        expose_headers=EXPOSED,
        max_age=600,
    )
    everywhere = settings.tenant if settings.rate_scope == "database" else None
    return [
        Middleware(TracingMiddleware),
        Middleware(RequestIdMiddleware, metrics),
        Middleware(HostOriginMiddleware, settings),
        *([cors] if settings.origins else []),
        Middleware(
            AuthMiddleware,
            make_limit("requests", settings.rate, settings.burst, shared, everywhere),
            make_limit("failed-logins", settings.failed_login_rate, settings.failed_login_burst, shared, everywhere),
        ),
        Middleware(BodyLimitMiddleware, settings),
    ]


@cache
def _router() -> APIRouter:
    """Build the routes once per process: every application has the same, and building them takes most of its start."""
    router = APIRouter(route_class=JsonRoute)
    for operation in (*REST_OPERATIONS, *COMPAT_OPERATIONS):
        router.add_api_route(
            operation.url,
            operation.handler,
            methods=[operation.method],
            operation_id=operation.name,
            name=operation.name,
            summary=operation.name.replace("_", " ").capitalize(),
            tags=[operation.tag],
            status_code=operation.status,
            response_model=None,
            response_class=Response,
            responses=_describe_responses(operation),
            openapi_extra=_request_body(operation),
        )
    return router


def _request_body(operation: Operation) -> dict[str, Any] | None:
    """Describe the body that a handler reads itself: JSON, bytes, or a form with one file."""
    content: dict[str, Any] = {}
    if operation.body is not None:
        content["application/json"] = {"schema": {"$ref": f"#/components/schemas/{operation.body.__name__}"}}
    bytes_ = {"type": "string", "format": "binary"}
    form = {"type": "object", "properties": {"file": bytes_}, "required": ["file"]}
    content |= {kind: {"schema": form if kind.startswith("multipart") else bytes_} for kind in operation.takes}
    return {"requestBody": {"content": content, "required": operation.needs_body}} if content else None


def _describe_responses(operation: Operation) -> dict[int | str, dict[str, Any]]:
    """Describe every status of an operation, with its body."""
    found: dict[int | str, dict[str, Any]] = {}
    for status in (operation.status, *(one for one in operation.also if one < 400)):
        found[status] = {"description": _describe_status(status)}
        if status == 204:
            continue
        schema = None
        if operation.answer is not None and status in (operation.status, 200):
            schema = {"$ref": f"#/components/schemas/{operation.answer.__name__}"}
        elif operation.media == EVENT_STREAM:
            schema = EVENT
        elif operation.media != "application/json" and status != 304:
            schema = {"type": "string", "format": "binary"}
        if schema is not None:
            found[status]["content"] = {operation.media: {"schema": schema}}
    if operation.streams:
        found[200]["content"][EVENT_STREAM] = {"schema": EVENT}
    for status in operation.refusals:
        shape, media = ERROR_BODIES[operation.dialect]
        found[status] = {
            "description": TITLES[status],
            "content": {media: {"schema": {"$ref": f"#/components/schemas/{shape}"}}},
        }
    return found


def _describe_status(status: int) -> str:
    return {
        200: "OK", 201: "Created", 202: "Accepted: the work is not finished yet", 204: "No content",
        206: "Partial content", 304: "Not modified",
    }[status]  # fmt: skip


def _docs(app: FastAPI, note: str = "") -> Any:
    async def docs() -> Response:
        """Show the API on one page."""
        return HTMLResponse(docs_page.page(app.openapi(), note), headers={"Content-Security-Policy": docs_page.POLICY})

    return docs
