"""The application: routes from the table, what stands before them, and the OpenAPI document."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

from fastapi import APIRouter, FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import HTMLResponse, Response

import palaver
from palaver.errors import PalaverError
from palaver.server import docs_page, logs, problems, schemas
from palaver.server.limits import Doorman, Envelope, Gate, Measure, Pace
from palaver.server.mcp import endpoint
from palaver.server.metrics import Metrics
from palaver.server.routes import operations
from palaver.server.services import open_services
from palaver.server.settings import PASSED_ON, ServerSettings
from palaver.server.shutdown import heeding_signals
from palaver.server.table import FACES, Face

log = logging.getLogger("palaver.server")

DESCRIPTION = (
    "Conversations that never end, in prompts that always fit. Every refusal is a problem detail (RFC 9457) that names "
    "the field and the limit. Send a key or a JWT as a bearer token; on loopback none is needed."
)
EXPOSED = ("ETag", "Link", "Location", "Mcp-Session-Id", "Retry-After", "WWW-Authenticate", "X-Request-Id")
EVENT_STREAM = "text/event-stream"
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
            PalaverError: problems.on_error,
            HTTPException: problems.on_refusal,
            RequestValidationError: problems.on_validation,
            Exception: problems.on_surprise,
        },
    )
    app.include_router(_router(FACES))
    app.add_api_route("/", _docs(app), include_in_schema=False)
    for handler in (operations.healthz, operations.readyz, operations.metrics):
        app.add_api_route(f"/{handler.__name__}", handler, include_in_schema=False)
    app.router.routes.extend(endpoint.routes(mcp))
    _finish_openapi(app)
    return app


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
            "Last-Event-ID",
            "Mcp-Method",
            "Mcp-Name",
            "Mcp-Protocol-Version",
            "Mcp-Session-Id",
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
    router = APIRouter(prefix="/api")
    for face in faces:
        router.add_api_route(
            face.path,
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
        )
    return router


def _responses(face: Face) -> dict[int | str, dict[str, Any]]:
    """Every status that an operation may have, with its shape."""
    found: dict[int | str, dict[str, Any]] = {}
    for status in (face.status, *(one for one in face.also if one < 400)):
        found[status] = {"description": _meaning(status)}
        schema = None
        if face.answer is not None and status in (face.status, 200):
            schema = {"$ref": f"#/components/schemas/{face.answer.__name__}"}
        elif face.media == EVENT_STREAM:
            schema = SENT
        elif face.media != "application/json":
            schema = {"type": "string", "format": "binary"}
        if schema is not None:
            found[status]["content"] = {face.media: {"schema": schema}}
    if face.name in ("generate", "regenerate"):
        found[200]["content"][EVENT_STREAM] = {"schema": SENT}
    for status in face.refusals:
        reference = {"$ref": "#/components/schemas/Problem"}
        found[status] = {
            "description": problems.TITLES[status],
            "content": {"application/problem+json": {"schema": reference}},
        }
    return found


def _meaning(status: int) -> str:
    return {
        200: "Here it is", 201: "Stored", 202: "Taken on", 204: "Done", 304: "As the client has it already",
    }[status]  # fmt: skip


def _finish_openapi(app: FastAPI) -> None:
    """The schemas that answers refer to, and how callers say who they are."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        document = generate()
        parts = document.setdefault("components", {})
        known = parts.setdefault("schemas", {})
        for face in FACES:
            if face.answer is not None:
                _add_schema(known, face.answer)
        for model in (schemas.Problem, schemas.ServerSentEvent):
            _add_schema(known, model)
        for name in ("HTTPValidationError", "ValidationError"):
            known.pop(name, None)
        parts["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer", "description": "A key or a JWT."}}
        document["security"] = [{"key": []}, {}]
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def _add_schema(known: dict[str, Any], model: Any) -> None:
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}", mode="serialization")
    known.update(schema.pop("$defs", {}))
    known[model.__name__] = schema


def _docs(app: FastAPI) -> Any:
    async def docs() -> Response:
        """The API on one page, until there is an app."""
        return HTMLResponse(docs_page.page(app.openapi()), headers={"Content-Security-Policy": docs_page.POLICY})

    return docs
