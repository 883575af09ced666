"""Errors as answers: one table from our errors to statuses, told as problem details (RFC 9457)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from palaver import errors
from palaver.server.ops.logs import place_of
from palaver.server.rest import wire

log = logging.getLogger("palaver.server")

# The nearest class in an error's ancestry decides. The second value is the end of the problem's type.
STATUSES: Mapping[type[Exception], tuple[int, str]] = {
    errors.InvalidInput: (422, "invalid-input"),
    errors.TooLarge: (413, "too-large"),
    errors.FileRefused: (415, "file-refused"),
    errors.BudgetTooSmall: (422, "budget-too-small"),
    errors.NotFound: (404, "not-found"),
    errors.Gone: (410, "gone"),
    errors.Conflict: (409, "conflict"),
    errors.AppendConflict: (409, "append-conflict"),
    errors.UpdateConflict: (409, "update-conflict"),
    errors.IdempotencyConflict: (409, "idempotency-conflict"),
    errors.TurnSuperseded: (409, "turn-superseded"),
    errors.StreamSealed: (409, "stream-sealed"),
    errors.PermissionDenied: (403, "permission-denied"),
    errors.VerificationFailed: (500, "verification-failed"),
    errors.MissingExtra: (501, "missing-extra"),
    errors.ModelError: (502, "model-error"),
    errors.ModelRefused: (502, "model-refused"),
    errors.ModelUnavailable: (503, "model-unavailable"),
    errors.StoreClosed: (503, "unavailable"),
    errors.EngineError: (500, "database-error"),
    errors.EngineUnavailable: (503, "unavailable"),
    errors.DatabaseReadOnly: (503, "database-read-only"),
    errors.DatabaseFull: (507, "database-full"),
    errors.PalaverError: (500, "error"),
}
TITLES: Mapping[int, str] = {
    400: "The request cannot be read",
    401: "Who is asking?",
    403: "Not allowed",
    404: "Not found",
    405: "No such method here",
    406: "Not in that form",
    408: "The request came too slowly",
    409: "Somebody was faster",
    410: "Gone for good",
    412: "The thread has moved on",
    413: "Too large",
    415: "Not in this form",
    416: "No such range",
    421: "Not this server's name",
    422: "The request does not fit",
    428: "A condition is needed",
    429: "Too many requests",
    431: "Headers too large",
    500: "Something went wrong",
    501: "Not installed here",
    502: "The model did not answer as it should",
    503: "Not now",
    504: "It took too long",
    507: "No space left",
}
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
# What an error may say of itself. None of it is content.
SHOWN = ("field", "size", "limit", "unit", "needed", "budget", "expected", "found", "right", "extra", "turn", "by",
         "conversation", "attachment", "model", "row", "media_type")  # fmt: skip
TYPE = "urn:palaver:problem:"


class Refused(HTTPException):
    """A refusal of the server itself, with what a client needs to know."""

    def __init__(self, status: int, detail: str, headers: Mapping[str, str] | None = None, **fields: Any) -> None:
        super().__init__(status, detail, dict(headers) if headers else None)
        self.fields = fields


class Problem(Response):
    media_type = "application/problem+json"


def problem(
    status: int, slug: str, detail: str, fields: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> Problem:
    body = {"type": TYPE + slug, "title": TITLES.get(status, "Error"), "status": status, "detail": detail, **fields}
    return Problem(wire.encode(body), status, headers=dict(headers) if headers else None)


def status_of(error: Exception) -> tuple[int, str]:
    return next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)


def of_error(error: errors.PalaverError) -> Problem:
    body = body_of(error)
    headers = {}
    if body["status"] == 503:
        wait = getattr(error, "retry_after", None)
        headers["Retry-After"] = str(max(1, round(wait or 1)))
    return Problem(wire.encode(body), body["status"], headers=headers)


def body_of(error: errors.PalaverError) -> dict[str, Any]:
    """An error of ours as problem details."""
    status, slug = status_of(error)
    body = {"type": TYPE + slug, "title": TITLES[status], "status": status}
    if isinstance(error, errors.EngineError):  # a path of this machine is nobody's business
        return {**body, "detail": type(error).__doc__ or ""}
    fields = {name: getattr(error, name) for name in SHOWN if getattr(error, name, None) is not None}
    return {**body, "detail": str(error), **fields}


def of_refusal(error: HTTPException) -> Problem:
    slug = SLUGS.get(error.status_code, "error")
    return problem(error.status_code, slug, str(error.detail), getattr(error, "fields", {}), error.headers)


def of_validation(error: RequestValidationError) -> Problem:
    """What the schema says. The values themselves are not repeated: they may be what somebody said."""
    found = [{"field": _place(one), "problem": _without_input(one)} for one in error.errors()[:20]]
    first = found[0] if found else {"field": "body", "problem": "cannot be read"}
    detail = f"{first['field']}: {first['problem']}"
    return problem(422, "invalid-input", detail, {"field": first["field"], "errors": found})


def _place(one: Mapping[str, Any]) -> str:
    parts = one["loc"]
    if one["type"] == "json_invalid":  # then the rest of it is a number of bytes
        return "body"
    named = [str(part) for part in parts if part not in ("body", "query", "path", "header")]
    return ".".join(named) or str(parts[0] if parts else "body")


def _without_input(one: Mapping[str, Any]) -> str:
    if one["type"] == "json_invalid":
        return "is not valid JSON"
    if one["loc"] == ("body",) and isinstance(one["input"], bytes):
        return "is taken as JSON only with the header content-type: application/json"
    return str(one["msg"])


# ---- handlers, as FastAPI calls them -------------------------------------------------------------------------------


async def on_error(_: Request, error: Exception) -> Response:
    if isinstance(error, errors.ScrubPending):
        return Response(wire.encode({"detail": str(error)}), 202, media_type="application/json")
    assert isinstance(error, errors.PalaverError)
    return of_error(error)


async def on_refusal(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return of_refusal(error)


async def on_validation(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return of_validation(error)


async def on_surprise(request: Request, error: Exception) -> Response:
    return of_surprise(error, request.state.request_id)


def of_surprise(error: Exception, request: str) -> Problem:
    """A fault of ours. Its text may hold anything, so only its kind is logged."""
    log.error("request %s: unexpected %s at %s", request, type(error).__name__, place_of(error))
    return problem(500, "error", "An unexpected error. The server's log names it by this request's id.", {})
