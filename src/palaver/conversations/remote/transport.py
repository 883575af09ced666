"""Requests to a Palaver server, and the server-sent events that it streams."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from palaver.conversations.remote.failures import error_of
from palaver.errors import EngineUnavailable, InvalidInput, MissingExtra, PalaverError, ScrubPending, StoreClosed

if TYPE_CHECKING:
    import httpx

TIMEOUT = 60.0  # seconds for one request; a stream may be silent for as long between two events
RETRIES = 3  # of requests that change nothing, or that the server recognises when they come again
SAFE = ("GET", "PUT", "DELETE")

Token = str | Callable[[], Any]


@dataclass(frozen=True, slots=True)
class ServerEvent:
    """One event of a stream."""

    kind: str
    data: Any


class Transport:
    """A connection to one server, with one key."""

    def __init__(self, url: str, token: Token | None, timeout: float | None = None) -> None:
        try:
            import httpx
        except ModuleNotFoundError:
            raise MissingExtra("client", "A store on a Palaver server") from None
        self.url = _url_without_password(url)
        self._token = token
        self._timeout = TIMEOUT if timeout is None else timeout
        self._client = httpx.AsyncClient(base_url=f"{url.rstrip('/')}/api", timeout=self._timeout)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def get(self, path: str, **params: Any) -> Any:
        return await self.request("GET", path, params=params)

    async def post(self, path: str, body: Mapping[str, Any] | None = None, **options: Any) -> Any:
        return await self.request("POST", path, json={} if body is None else dict(body), **options)

    async def request(
        self, method: str, path: str, *, repeatable: bool | None = None, raw: bool = False, **options: Any
    ) -> Any:
        """Return the body of a response: JSON decoded, anything else as bytes, None where there is none.

        `repeatable` requests are sent again if the connection fails; by default those that read, replace or delete.
        """
        response = await self._send(method, path, method in SAFE if repeatable is None else repeatable, options)
        if response.status_code == 202:
            _raise_if_pending(response.content)
        if response.status_code >= 400:
            raise _failure(response.status_code, response.content)
        if not response.content:
            return None
        kind = response.headers.get("content-type", "")
        is_json = kind.startswith("application/json") and not raw
        return json.loads(response.content) if is_json else response.content

    async def _send(self, method: str, path: str, repeatable: bool, options: Mapping[str, Any]) -> httpx.Response:
        import httpx

        clean = {name: one for name, one in options.items() if name not in ("params", "headers")}
        params = {name: one for name, one in (options.get("params") or {}).items() if one is not None}
        headers = {**await self._headers(), **(options.get("headers") or {})}
        for attempt in range(RETRIES + 1):
            try:
                return await self._client.request(method, path, params=params, headers=headers, **clean)
            except httpx.TransportError as problem:
                if attempt == RETRIES or not repeatable:
                    raise _unreachable(self.url, problem) from None
                await asyncio.sleep(0.1 * 2**attempt)
            except (ValueError, TypeError, RecursionError) as problem:
                raise InvalidInput("request", f"is not valid JSON ({type(problem).__name__})") from None
            except RuntimeError as problem:  # httpx says so of a client that was closed
                raise (StoreClosed() if self._client.is_closed else problem) from None
        raise AssertionError("the last attempt returns or raises")

    async def _headers(self) -> dict[str, str]:
        token = self._token() if callable(self._token) else self._token
        if inspect.isawaitable(token):
            token = await token
        return {"Authorization": f"Bearer {token}"} if token else {}

    async def events(
        self, method: str, path: str, *, body: Mapping[str, Any] | None = None, **params: Any
    ) -> AsyncGenerator[ServerEvent]:
        """Yield the events of a stream until the server ends it."""
        import httpx

        headers = {**await self._headers(), "Accept": "text/event-stream"}
        query = {name: one for name, one in params.items() if one is not None}
        sent = None if body is None else dict(body)
        try:
            async with self._client.stream(method, path, params=query, headers=headers, json=sent) as response:
                if response.status_code >= 400:
                    raise _failure(response.status_code, await response.aread())
                async with aclosing(_parse(response)) as found:
                    async for event in found:
                        yield event
        except httpx.TransportError as problem:
            raise _unreachable(self.url, problem) from None


def _url_without_password(url: str) -> str:
    """Return the address of a server for messages. Refuse one that cannot be used, without repeating any of it."""
    import httpx

    try:
        parts = httpx.URL(url)
    except httpx.InvalidURL:  # such as a password with a slash
        parts = httpx.URL()
    if not parts.host or parts.query or parts.fragment:
        raise InvalidInput("url", "must be https://host or https://host:port/path, without a query")
    return f"{parts.scheme}://{parts.netloc.decode()}{parts.path.rstrip('/')}"


async def _parse(response: httpx.Response) -> AsyncGenerator[ServerEvent]:
    kind, lines = "message", list[str]()
    async for line in response.aiter_lines():
        if line.startswith("event:"):
            kind = line[6:].strip()
        elif line.startswith("data:"):
            lines.append(line[5:].removeprefix(" "))
        elif not line:
            if lines:
                yield ServerEvent(kind, json.loads("\n".join(lines)))
            kind, lines = "message", []


def _raise_if_pending(content: bytes) -> None:
    """Raise `ScrubPending` for a deletion whose bytes are still in the WAL. Other replies with 202 have no detail."""
    body = json.loads(content) if content else None
    if isinstance(body, dict) and body.keys() == {"detail"}:
        raise ScrubPending


def _failure(status: int, content: bytes) -> PalaverError:
    try:
        problem = json.loads(content)
    except ValueError:
        problem = {}
    return error_of(status, problem if isinstance(problem, dict) else {})


def _unreachable(url: str, problem: Exception) -> EngineUnavailable:
    error = EngineUnavailable(f"the server at {url} cannot be reached ({type(problem).__name__}): is it running?")
    error.connection_lost = True
    return error
