"""Errors as responses: problem details (RFC 9457), with the statuses that `palaver.errors` lists."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from types import NoneType
from typing import Any, get_args

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from palaver import errors
from palaver.core.validation import did_you_mean, hint_at_role
from palaver.server import wire
from palaver.server.ops.logs import raised_at

log = logging.getLogger("palaver.server")

SLUGS: Mapping[int, str] = {
    400: "bad-request",
    401: "unauthorized",
    403: "forbidden",
    404: "not-found",
    405: "method-not-allowed",
    406: "not-acceptable",
    408: "request-timeout",
    412: "precondition-failed",
    413: "too-large",
    415: "unsupported-media-type",
    416: "range-not-satisfiable",
    421: "misdirected",
    422: "invalid-input",
    429: "rate-limited",
    500: "error",
    503: "unavailable",
    504: "timeout",
}


class Refusal(HTTPException):
    """An HTTP error that the server itself raises. `fields` become members of the problem details."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None, **fields: Any) -> None:
        super().__init__(status, detail, dict(headers) if headers else None)
        self.fields = fields


class Problem(Response):
    media_type = "application/problem+json"


def problem_response(
    status: int, slug: str, detail: str, fields: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> Problem:
    title = errors.TITLES.get(status, "Error")
    body = {"type": errors.PROBLEM_TYPE + slug, "title": title, "status": status, "detail": detail, **fields}
    return Problem(wire.encode(body), status, headers=dict(headers) if headers else None)


def error_response(error: errors.PalaverError) -> Problem:
    if isinstance(error, errors.EngineError):
        log.warning("%s: %s", type(error).__name__, _reason_for_the_log(error))
    body, status = error.to_problem(), error.http_status
    wait = getattr(error, "retry_after", None)
    headers = budget_headers(error) if isinstance(error, errors.BudgetExceeded) else {}
    if status == 503 or (wait is not None and isinstance(error, errors.BudgetExceeded)):
        headers["Retry-After"] = str(max(1, round(wait or 1)))
    return Problem(wire.encode(body), status, headers=headers)


def _reason_for_the_log(error: errors.EngineError) -> str:
    """Return why the database or the storage of files failed. Clients are not sent it: it may contain a path."""
    if isinstance(error, errors.RowUnreadable):  # its text contains the id of a conversation
        return "a row is damaged: run `palaver doctor`"
    return str(error)


def budget_headers(error: errors.BudgetExceeded) -> dict[str, str]:
    """Return headers that say which budget refused, and keep the SDKs of providers from retrying at once."""
    headers = {"X-Should-Retry": "false"}
    if error.retry_after is not None:
        name, window = f'"{error.kind}-{error.measure}-{error.period}"', {"day": 86_400, "month": 2_592_000}
        headers["RateLimit-Policy"] = f"{name};q={error.limit:.0f};w={window[error.period]}"
        headers["RateLimit"] = f"{name};r=0;t={error.retry_after:.0f}"
    return headers


def refusal_response(error: HTTPException) -> Problem:
    slug = SLUGS.get(error.status_code, "error")
    return problem_response(error.status_code, slug, str(error.detail), getattr(error, "fields", {}), error.headers)


def validation_response(error: RequestValidationError, known: Collection[str] = ()) -> Problem:
    """Report which fields do not fit the schema. The values are not repeated: they may be private.

    `known`: the fields of the request's body, for a hint at the right name.
    """
    found = [{"field": _field_path(one), "problem": _describe_without_input(one, known)} for one in error.errors()[:20]]
    first = found[0] if found else {"field": "body", "problem": "cannot be read"}
    detail = f"{first['field']}: {first['problem']}"
    return problem_response(422, "invalid-input", detail, {"field": first["field"], "errors": found})


def _field_path(one: Mapping[str, Any]) -> str:
    parts = one["loc"]
    if one["type"] == "json_invalid":  # the rest of the location is a byte offset
        return "body"
    named = [str(part) for part in parts if part not in ("body", "query", "path", "header")]
    return ".".join(named) or str(parts[0] if parts else "body")


def _describe_without_input(one: Mapping[str, Any], known: Collection[str]) -> str:
    if one["type"] == "json_invalid":
        return "is not valid JSON"
    if one["loc"] == ("body",) and isinstance(one["input"], bytes):
        return "is read as JSON only with the header content-type: application/json"
    if one["type"] == "extra_forbidden":
        name, fields = one["loc"][-1], known if len(one["loc"]) == 2 else ()
        return f"is not known{did_you_mean(name, fields)}" + (f"; known fields: {', '.join(fields)}" if fields else "")
    is_role = one["type"] == "literal_error" and one["loc"][-1] == "role"
    return str(one["msg"]) + (hint_at_role(one["input"]) if is_role else "")


# ---- handlers, as FastAPI calls them -------------------------------------------------------------------------------


async def on_error(_: Request, error: Exception) -> Response:
    if isinstance(error, errors.ScrubPending):
        return Response(wire.encode({"detail": str(error)}), 202, media_type="application/json")
    assert isinstance(error, errors.PalaverError)
    return error_response(error)


async def on_refusal(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return refusal_response(error)


async def on_validation(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return validation_response(error, _body_fields(request))


def _body_fields(request: Request) -> list[str]:
    """Return the names in the JSON object that the request's operation takes."""
    route = request.scope.get("route")
    models = [one.field_info.annotation for one in route.dependant.body_params] if isinstance(route, APIRoute) else []
    model = models[0] if len(models) == 1 else None
    model = next((one for one in get_args(model) if one is not NoneType), model)  # a body that may be left out
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return []
    return [one.alias or name for name, one in model.model_fields.items()]


async def on_unexpected(request: Request, error: Exception) -> Response:
    return unexpected_response(error, request.state.request_id)


def unexpected_response(error: Exception, request: str) -> Problem:
    """Report an unexpected error. Its text may be private, so only its type and place are logged."""
    log.error("request %s: unexpected %s at %s", request, type(error).__name__, raised_at(error))
    return problem_response(500, "error", "Unexpected error. The server log has it under the id of this request.", {})
