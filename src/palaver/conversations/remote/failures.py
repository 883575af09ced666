"""Errors of a server as the errors of the library."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from palaver import errors
from palaver.errors import EngineUnavailable, InvalidInput, PalaverError, StreamSealed, TokenRefused

BY_STATUS: Mapping[int, type[PalaverError]] = {
    403: errors.PermissionDenied,
    404: errors.NotFound,
    409: errors.Conflict,
    410: errors.Gone,
    412: errors.Conflict,
    429: errors.EngineUnavailable,
    502: errors.ModelError,
    503: errors.EngineUnavailable,
    504: errors.EngineUnavailable,
}
# Attributes that the constructors set and a problem document lacks.
DEFAULTS: Mapping[str, Any] = {"problem": "", "status": None, "cause": None, "by": None, "conversation": "", "turn": ""}


def error_of(status: int, problem: Mapping[str, Any]) -> PalaverError:
    """Return the error that a problem document describes, of the class that was raised on the server if it is known."""
    detail = str(problem.get("detail") or f"the server replied with status {status}")
    if status == 401:
        return TokenRefused(f"{detail}: palaver.open(url, key=…) takes the key that `palaver keys create` prints")
    kind = getattr(errors, str(problem.get("error")), None)
    if not (isinstance(kind, type) and issubclass(kind, PalaverError)):
        kind = (
            InvalidInput
            if 400 <= status < 500 and status not in BY_STATUS
            else BY_STATUS.get(status, EngineUnavailable)
        )
    return _made(kind, detail, problem)


def _made(kind: type[PalaverError], detail: str, problem: Mapping[str, Any]) -> PalaverError:
    """Make an error without its constructor, which would word the message again."""
    error = kind.__new__(kind)
    Exception.__init__(error, detail)
    fields = {name: one for name, one in problem.items() if name not in ("type", "title", "status", "detail", "error")}
    if isinstance(error, StreamSealed):
        error.status = str(fields.pop("turn_status", "sealed"))
    if isinstance(error, InvalidInput):
        field = str(fields.get("field") or "request")
        fields |= {"field": field, "problem": detail.removeprefix(f"{field}: ")}
    for name, one in {**DEFAULTS, **fields}.items():
        if name in fields or not hasattr(error, name):
            setattr(error, name, one)
    return error
