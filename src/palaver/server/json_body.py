"""The JSON bodies and parameters of requests. One that cannot be read is refused with the exact cause."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Coroutine
from typing import Any

from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from palaver.core.validation import did_you_mean
from palaver.server.errors import Refusal

# The other protocols belong to providers, whose clients may send more. /api/chat is the AI SDK's.
OWN_API = re.compile(r"/api/(?!chat(?:/|$))")
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
    """A route that says why a request cannot be read.

    FastAPI alone accepts NaN, hides that a body is too deep, and ignores unknown parameters of the query. A misspelt
    filter would return everything.
    """

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        is_own = OWN_API.match(self.path) is not None
        known = sorted(_query_names(self.dependant))

        async def handle_json(request: Request) -> Response:
            if is_own:
                _refuse_unknown(request.query_params.keys(), known)
            return await handle(_JsonRequest(request.scope, request.receive))

        return handle_json


def _query_names(dependant: Dependant) -> set[str]:
    """Return the parameters of a route and of everything that it depends on."""
    return {one.alias for one in dependant.query_params}.union(*map(_query_names, dependant.dependencies))


def _refuse_unknown(names: Collection[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known:
            choices = f"known parameters: {', '.join(known)}" if known else "it has none"
            detail = f"{name}: is not a parameter of this operation{did_you_mean(name, known)}; {choices}"
            raise Refusal(422, detail, field=name)
