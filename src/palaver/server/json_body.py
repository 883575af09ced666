"""JSON bodies of requests. A body that cannot be read is refused with the exact cause."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from palaver.server.errors import Refusal

TOO_DEEP = "is nested too deeply"


class _NotANumber(ValueError):
    """The body has NaN or an infinity, which JSON does not have."""


def describe_failure(data: bytes) -> str:
    """Say why a body is not JSON."""
    try:
        _decode(data)
    except RecursionError:
        return TOO_DEEP
    except _NotANumber as problem:
        return f"is not valid JSON: it has no {problem}; send null, or text"
    except ValueError:
        pass
    return "is not valid JSON"


def _decode(data: bytes) -> Any:
    return json.loads(data, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> None:
    raise _NotANumber(name)


class _JsonRequest(Request):
    async def json(self) -> Any:
        data = await self.body()
        try:
            return _decode(data)
        except (RecursionError, _NotANumber):
            raise Refusal(422, f"body: {describe_failure(data)}", field="body") from None


class JsonRoute(APIRoute):
    """A route that says why a body cannot be read. FastAPI alone accepts NaN, and hides that a body is too deep."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_json(request: Request) -> Response:
            return await handle(_JsonRequest(request.scope, request.receive))

        return handle_json
