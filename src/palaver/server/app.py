"""The application: routes from the table, what stands before them, and the OpenAPI document."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

import palaver
from palaver.errors import PalaverError
from palaver.server import errors as http_errors
from palaver.server.compat import errors as compat_errors
from palaver.server.compat import schemas as foreign
from palaver.server.components import open_services
from palaver.server.mcp import endpoint
from palaver.server.middleware import Doorman, Envelope, Gate, Measure, Pace
from palaver.server.ops import health, logs
from palaver.server.ops.metrics import Metrics
from palaver.server.ops.shutdown import heeding_signals
from palaver.server.rest import schemas
from palaver.server.rest.operations import CLIENT_FACES, FACES, Face
from palaver.server.settings import PASSED_ON, ServerSettings
from palaver.server.web import docs_page, pages

log = logging.getLogger("palaver.server")

DESCRIPTION = (
    "Conversations that never end, in prompts that always fit. Every refusal is a problem detail (RFC 9457) that names "
    "the field and the limit. Send a key or a JWT as a bearer token; on loopback none is needed."
)
EXPOSED = (
    "Accept-Ranges", "Content-Disposition", "Content-Range", "ETag", "Link", "Location", "Mcp-Session-Id",
    "Retry-After", "WWW-Authenticate", "X-Request-Id", "X-Conversation-Id", "X-Context-Tokens", "X-Recalled-Turns",
    "X-Vercel-AI-UI-Message-Stream",
)  # fmt: skip
# What the SDKs of providers send from a page.
OF_SDKS = (
    "X-Api-Key", "Anthropic-Version", "Anthropic-Beta", "Anthropic-Dangerous-Direct-Browser-Access",
    "X-Stainless-Arch", "X-Stainless-Lang", "X-Stainless-OS", "X-Stainless-Package-Version", "X-Stainless-Retry-Count",
    "X-Stainless-Runtime", "X-Stainless-Runtime-Version", "X-Stainless-Timeout", "X-Stainless-Helper-Method",
)  # fmt: skip
EVENT_STREAM = "text/event-stream"
REFUSALS = {
    "problem": ("Problem", "application/problem+json"),
    "openai": ("OpenAIError", "application/json"),
    "anthropic": ("AnthropicError", "application/json"),
}
SENT = {"$ref": "#/components/schemas/ServerSentEvent"}


def create_app(settings: ServerSettings) -> FastAPI:
    """The server as an ASGI application. The database opens when it starts."""
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
            with heeding_signals(services.begin_shutdown):
                yield
            log.info("closing, with %d answers in the making", services.answers.count)
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
            PalaverError: _in_dialect(http_errors.on_error),
            HTTPException: _in_dialect(http_errors.on_refusal),
            RequestValidationError: _in_dialect(http_errors.on_validation),
            Exception: _in_dialect(http_errors.on_surprise),
        },
    )
    app.include_router(_router((*FACES, *CLIENT_FACES)))
    app.add_api_route("/docs", _docs(app), include_in_schema=False)
    for handler in (health.healthz, health.readyz, health.metrics):
        app.add_api_route(f"/{handler.__name__}", handler, include_in_schema=False)
    app.router.routes.extend(endpoint.routes(mcp))
    if not pages.add_pages(app, pages.built_files()):
        app.add_api_route("/", _docs(app, docs_page.NOT_BUILT), include_in_schema=False)
    _finish_openapi(app)
    return app


def _in_dialect(handler: Callable[[Request, Exception], Awaitable[Response]]) -> Any:
    """The refusal as the clients of that path read it."""

    async def handle(request: Request, error: Exception) -> Response:
        response = await handler(request, error)
        is_problem = isinstance(response, http_errors.Problem)
        return compat_errors.in_dialect(request.url.path, response) if is_problem else response  # type: ignore[arg-type]

    return handle


def from_environment() -> FastAPI:
    """For a worker process: the settings are passed on by `palaver serve`."""
    settings = ServerSettings.from_text(os.environ[PASSED_ON])
    logs.set_up(settings)
    return create_app(settings)


def _middleware(settings: ServerSettings, metrics: Metrics) -> list[Middleware]:
    """From the outside in. Who is asking is settled before the body is read."""
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
            *OF_SDKS,
        ),
        expose_headers=EXPOSED,
        max_age=600,
    )
    return [
        Middleware(Envelope, metrics),
        Middleware(Doorman, settings),
        *([cors] if settings.origins else []),
        Middleware(Gate, Pace(settings.rate, settings.burst)),
        Middleware(Measure, settings),
    ]


def _router(faces: tuple[Face, ...]) -> APIRouter:
    router = APIRouter()
    for face in faces:
        router.add_api_route(
            face.url,
            face.handler,
            methods=[face.method],
            operation_id=face.name,
            name=face.name,
            summary=face.name.replace("_", " ").capitalize(),
            tags=[face.tag],
            status_code=face.status,
            response_model=None,
            response_class=Response,
            responses=_responses(face),
            openapi_extra=_body(face),
        )
    return router


def _body(face: Face) -> dict[str, Any] | None:
    """The body of a request that the handler reads by itself: JSON, bytes, or a form with one file."""
    content: dict[str, Any] = {}
    if face.body is not None:
        content["application/json"] = {"schema": {"$ref": f"#/components/schemas/{face.body.__name__}"}}
    bytes_ = {"type": "string", "format": "binary"}
    form = {"type": "object", "properties": {"file": bytes_}, "required": ["file"]}
    content |= {kind: {"schema": form if kind.startswith("multipart") else bytes_} for kind in face.takes}
    return {"requestBody": {"content": content, "required": True}} if content else None


def _responses(face: Face) -> dict[int | str, dict[str, Any]]:
    """Every status that an operation may have, with its shape."""
    found: dict[int | str, dict[str, Any]] = {}
    for status in (face.status, *(one for one in face.also if one < 400)):
        found[status] = {"description": _meaning(status)}
        if status == 204:
            continue
        schema = None
        if face.answer is not None and status in (face.status, 200):
            schema = {"$ref": f"#/components/schemas/{face.answer.__name__}"}
        elif face.media == EVENT_STREAM:
            schema = SENT
        elif face.media != "application/json" and status != 304:
            schema = {"type": "string", "format": "binary"}
        if schema is not None:
            found[status]["content"] = {face.media: {"schema": schema}}
    if face.streams:
        found[200]["content"][EVENT_STREAM] = {"schema": SENT}
    for status in face.refusals:
        shape, media = REFUSALS[face.dialect]
        found[status] = {
            "description": http_errors.TITLES[status],
            "content": {media: {"schema": {"$ref": f"#/components/schemas/{shape}"}}},
        }
    return found


def _meaning(status: int) -> str:
    return {
        200: "Here it is", 201: "Stored", 202: "Taken on", 204: "Done, or nothing to tell", 206: "A part of it",
        304: "As the client has it already",
    }[status]  # fmt: skip


def _finish_openapi(app: FastAPI) -> None:
    """The schemas that answers refer to, and how callers say who they are."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        document = generate()
        parts = document.setdefault("components", {})
        known = parts.setdefault("schemas", {})
        for face in (*FACES, *CLIENT_FACES):
            for model in filter(None, (face.answer, face.body)):
                _add_schema(known, model)
        for model in (schemas.Problem, schemas.ServerSentEvent, foreign.OpenAIError, foreign.AnthropicError):
            _add_schema(known, model)
        for name in ("HTTPValidationError", "ValidationError"):
            known.pop(name, None)
        for operation in (one for path in document["paths"].values() for one in path.values()):
            if "HTTPValidationError" in str(operation["responses"].get("422")):
                del operation["responses"]["422"]  # FastAPI's own; these clients get a 400
        parts["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer", "description": "A key or a JWT."}}
        document["security"] = [{"key": []}, {}]
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def _add_schema(known: dict[str, Any], model: Any) -> None:
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}", mode="serialization")
    known.update(schema.pop("$defs", {}))
    known[model.__name__] = schema


def _docs(app: FastAPI, note: str = "") -> Any:
    async def docs() -> Response:
        """The API on one page."""
        return HTMLResponse(docs_page.page(app.openapi(), note), headers={"Content-Security-Policy": docs_page.POLICY})

    return docs
