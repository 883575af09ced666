"""Calls of the SQL functions over Supabase's HTTP API (PostgREST): by `rpc`, with the caller's token in each request.

One client serves the process and never stores a token: each call uses an object of its own that shares only the
connections.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from typing import Any

import httpx
from postgrest import APIError
from postgrest.types import CountMethod
from supabase import AsyncClient

from palaver.core.event_loop import LoopGuard
from palaver.core.identity import from_json
from palaver.engines.postgres.failures import error_for, is_lost, lost
from palaver.engines.postgres.transports import Json, Row, Transport
from palaver.errors import EngineError, EngineUnavailable, PalaverError, SchemaMissing, StoreClosed, TokenRefused
from palaver.ports.engine import Token

SCHEMA = "palaver_api"
PAGED = {"event_records": "n", "turn_records": "seq"}  # functions that return pages, and the column that orders them
NOT_SIGNED_IN = "no user is signed in: open the store with token=, or use store.signed_in(token)"
REJECTED = {
    "PGRST301": "the token does not belong to this project, or is damaged: sign in again",
    "PGRST302": NOT_SIGNED_IN,
    "PGRST303": "the token has expired, or is not valid here: sign in again",
}


class Project:
    """One client for the process. It has the API key, and no token."""

    def __init__(self, client: AsyncClient, trusted: bool) -> None:
        self.client, self.trusted = client, trusted
        self.closed = False
        self._loop = LoopGuard()

    async def bearer(self, token: Token | None) -> str | None:
        """Return the token for a request; None when the API key itself authenticates it."""
        if self.closed:
            raise StoreClosed
        self._loop.check()
        if token is None:
            if self.trusted:
                return None
            raise TokenRefused(NOT_SIGNED_IN)
        found = token if isinstance(token, str) else token()
        return await found if inspect.isawaitable(found) else found


class SupabaseTransport:
    def __init__(self, project: Project, token: Token | None) -> None:
        self.project, self.token = project, token

    async def rows(self, function: str, args: Mapping[str, object], *, read: bool) -> Sequence[Row]:
        bearer = await self.project.bearer(self.token)
        caller = self.project.client.schema(SCHEMA)  # an object for this one call
        if bearer is not None:
            caller = caller.auth(bearer)
        body: dict[str, Any] = {name: _plain(value) for name, value in args.items()}
        count = CountMethod.exact if read else None
        try:
            with translate_errors():
                response = await caller.rpc(function, body, count=count).execute()
        except EngineUnavailable as problem:
            if self.project.closed:  # while the call was under way
                raise StoreClosed from None
            if not (read and is_lost(problem)):
                raise
            with translate_errors():  # the connection had died in the pool; this takes another one
                response = await caller.rpc(function, body, count=count).execute()
        return _read_rows(function, response.data, response.count)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Transport]:
        yield _WholeConversation(self)

    async def close(self) -> None:
        """Do nothing: the connections belong to the project."""


class _WholeConversation:
    """The rows of a conversation, read in one call: a transaction cannot span several calls over HTTP."""

    def __init__(self, source: SupabaseTransport) -> None:
        self.source = source
        self.found: dict[str, list[Row]] = {}
        self.derived: list[tuple[str, int, str]] = []

    async def rows(self, function: str, args: Mapping[str, object], *, read: bool) -> Sequence[Row]:
        if not self.found:
            (whole,) = await self.source.rows("whole_with_derived", args, read=False)
            self.found = {"conversation": [whole["conversation_row"]]}
            for kind in ("event", "turn", "attachment"):
                self.found[f"{kind}_records"] = whole[f"{kind}_rows"] or []
            self.derived = whole["derived_rows"]
        if function == "derived_records":
            wanted, after, most = args["kind"], int(str(args["after"])), int(str(args["most"]))
            found = [(place, row) for kind, place, row in self.derived if kind == wanted and place > after]
            return [{"place": place, "stored": row} for place, row in found[:most]]
        key = PAGED.get(function)
        if key is None:
            return self.found[function]
        after, most = int(str(args["after"])), int(str(args["most"]))
        return [row for row in self.found[function] if row[key] > after][:most]

    def snapshot(self) -> AbstractAsyncContextManager[Transport]:
        return nullcontext(self)

    async def close(self) -> None:
        """Do nothing: nothing is open."""


def _plain(value: object) -> object:
    """Return an argument as the JSON body of a request takes it."""
    return from_json(str(value)) if isinstance(value, Json) else value


def _read_rows(function: str, data: object, count: int | None) -> Sequence[Row]:
    """Return rows as mappings. PostgREST writes a row with a single unnamed column as the bare value."""
    if isinstance(data, str):  # none of our functions returns a bare text
        raise EngineError(
            "the response is not JSON: the url is not that of a Supabase project, or a proxy intercepts it"
        )
    found = data if isinstance(data, list) else [data]
    if count is not None and count > len(found):
        raise EngineError(f"the project truncated a result of {count:,} rows: raise its API setting `Max rows`")
    return [row if isinstance(row, dict) else {function: row} for row in found]


@contextmanager
def translate_errors() -> Iterator[None]:
    """Translate the client's errors inside this block: their messages quote what was sent."""
    try:
        yield
    except APIError as problem:
        raise _error_for(str(problem.code or ""), problem.message or "") from None  # older clients: a number
    except (httpx.TimeoutException, TimeoutError):
        raise EngineUnavailable("the project did not respond in time") from None
    except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError) as problem:
        raise lost(f"the project cannot be reached ({type(problem).__name__})") from None


def _error_for(code: str, message: str) -> PalaverError:
    if code in REJECTED:
        return TokenRefused(REJECTED[code])
    if code in ("PGRST106", "PGRST202"):
        why = "does not expose the schema palaver_api, or lacks the functions of this version"
        return SchemaMissing(f"the project {why} ({code}): see docs/how-to/supabase.md")
    if code in ("", "401"):  # the gateway, not the database
        return EngineError("the project rejected the API key")
    if code.startswith("PGRST0") or code == "429" or (code.isdigit() and len(code) == 3 and code >= "500"):
        return EngineUnavailable(f"the project failed ({code})")
    if code.isdigit() and len(code) == 3:
        return EngineError(f"the project rejected the request (status {code})")
    return error_for(code, message)
