"""Errors in the format that each kind of client expects: problem details, or those of OpenAI and Anthropic.

Their SDKs retry after 408, 409, 429 and every 5xx. An error that a retry cannot repair is therefore a 400.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from palaver import errors
from palaver.server import errors as http_errors
from palaver.server import wire

FOREIGN = re.compile(r"/v1(?:/|$)")
ANTHROPIC = re.compile(r"/v1/messages(?:/|$)")
# Clients do not know 410, 415 and 422, and would retry 409 and 421.
STATUSES: Mapping[int, int] = {409: 400, 410: 404, 412: 400, 415: 400, 421: 400, 422: 400, 507: 503}
PERMANENT = (errors.PROBLEM_TYPE + "model-refused", errors.PROBLEM_TYPE + "missing-extra")
# OpenAI's own error for a conversation that another request works on; its agents SDK waits and asks again.
QUOTA = errors.PROBLEM_TYPE + "budget-exceeded"  # OpenAI's code for an account that is used up
BUSY, LOCKED = errors.PROBLEM_TYPE + "conversation-busy", "conversation_locked"
OPENAI_TYPES: Mapping[int, tuple[str, str | None]] = {
    400: ("invalid_request_error", None),
    401: ("authentication_error", "invalid_api_key"),  # litellm takes invalid_request_error for a bad request
    402: ("insufficient_quota", "insufficient_quota"),
    403: ("invalid_request_error", "permission_denied"),
    404: ("invalid_request_error", "not_found"),
    405: ("invalid_request_error", "method_not_allowed"),
    408: ("timeout", "request_timeout"),
    413: ("invalid_request_error", "request_too_large"),
    429: ("requests", "rate_limit_exceeded"),
}
KEPT = (
    "retry-after",
    "www-authenticate",
    "connection",
    "allow",
    "x-should-retry",
    "ratelimit",
    "ratelimit-policy",
)  # headers of an error that are kept
ANTHROPIC_TYPES: Mapping[int, str] = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def to_client_format(path: str, response: http_errors.Problem) -> Response:
    """Convert an error to the format that clients of the path expect."""
    if not FOREIGN.match(path):
        return response
    details = wire.decode(bytes(response.body))
    status, body = format_error(path, details)
    headers = {name: value for name, value in response.headers.items() if name in KEPT}
    return Response(wire.encode(body), status, headers=headers, media_type="application/json")


def format_error(path: str, details: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """Convert problem details to a provider's status and body."""
    status = 400 if details.get("type") in PERMANENT else STATUSES.get(details["status"], details["status"])
    message, field, code = str(details["detail"]), details.get("field"), details.get("code")
    if ANTHROPIC.match(path):
        kind = ANTHROPIC_TYPES.get(status, "api_error")
        return status, {"type": "error", "error": {"type": kind, "message": message}}
    if details.get("type") == BUSY:
        field, code = "conversation", LOCKED
    known = 402 if details.get("type") == QUOTA else status
    kind, default = OPENAI_TYPES.get(known, ("server_error", None))
    return status, {"error": {"message": message, "type": kind, "param": field, "code": code or default}}


def stream_error(path: str, error: Exception) -> tuple[int, dict[str, Any]]:
    """Convert an error that occurs after the response has started."""
    details = problem_details(error)
    return format_error(path, details) if FOREIGN.match(path) else (details["status"], details)


def problem_details(error: Exception) -> dict[str, Any]:
    if isinstance(error, HTTPException):
        return {"status": error.status_code, "detail": str(error.detail), **getattr(error, "fields", {})}
    assert isinstance(error, errors.PalaverError)
    return error.to_problem()
