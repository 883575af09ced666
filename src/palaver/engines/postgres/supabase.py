"""The same engine over Supabase: its functions by `rpc`, as the user whose token goes with the request.

One client serves the process, and never learns a token: each call is made by an object of its own, which shares nothing
but the connections. The database believes only the token: who a caller is, is asked of the database, and a scope that
somebody hands in is not listened to, unless the key is the project's secret one: then the application itself is asking.
"""

from __future__ import annotations

import inspect
import os
from base64 import urlsafe_b64decode
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from typing import Any
from urllib.parse import urlsplit

import httpx
from postgrest import APIError
from postgrest.types import CountMethod
from supabase import AsyncClient, AsyncClientOptions

from palaver.core.identity import from_json
from palaver.engines.postgres import migrate
from palaver.engines.postgres.engine import PostgresEngine
from palaver.engines.postgres.failures import failure
from palaver.engines.postgres.rpc import DENIED, Caller
from palaver.engines.postgres.storage import StorageBlobs
from palaver.engines.postgres.transports import Json, Transport, connected
from palaver.engines.postgres.watch import Hub
from palaver.errors import (
    DatabaseTooNew,
    EngineError,
    EngineUnavailable,
    InvalidInput,
    PalaverError,
    PermissionDenied,
    SchemaMissing,
    StoreClosed,
    TokenRefused,
)
from palaver.model import WRITE, Scope
from palaver.ports.blobs import Blobs
from palaver.ports.clock import Clock
from palaver.ports.engine import Token

SCHEMA = "palaver_api"
KEYS = ("SUPABASE_KEY", "SUPABASE_ANON_KEY", "SUPABASE_PUBLISHABLE_KEY")
SECONDS = 30.0
LOOPBACK = ("127.0.0.1", "localhost", "::1")
CONNECTIONS = httpx.Limits(max_connections=64, max_keepalive_connections=16)
PAGED = {"event_records": "n", "turn_records": "seq"}
NOBODY = "nobody is signed in: open with token=, or ask store.signed_in(token)"
REFUSED = {
    "PGRST301": "the token is not one of this project's, or was damaged: sign in again",
    "PGRST302": NOBODY,
    "PGRST303": "the token is out of date, or is not for this: sign in again",
}


# ---- opening -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def open_supabase(
    url: str, clock: Clock, *, home: Scope, key: str | None, token: Token | None, migrate_url: str | None = None
) -> AsyncIterator[SupabaseEngine]:
    """The project at `supabase+https://…`, for whoever the token is of. Without one, others sign in later."""
    place, key = _address(url), key or _key_from_environment()
    if migrate_url is not None:
        async with connected(migrate_url) as connection:
            await migrate.migrate(connection)
    async with httpx.AsyncClient(timeout=SECONDS, limits=CONNECTIONS, follow_redirects=False) as connections:
        options = AsyncClientOptions(
            httpx_client=connections, auto_refresh_token=False, persist_session=False, schema=SCHEMA
        )
        project = Project(AsyncClient(place, key, options), is_secret(key))
        hub = Hub(None)
        engine = SupabaseEngine(project, None, clock, hub, home)
        try:
            yield engine if token is None and not project.trusted else await engine.signed_in(token)
        finally:
            await hub.close()
            project.closed = True


def _address(url: str) -> str:
    parts = urlsplit(url)
    scheme = parts.scheme.removeprefix("supabase+")
    if scheme == "http" and parts.hostname not in LOOPBACK:
        raise InvalidInput("url", "a token must not travel in the open: use supabase+https://")
    if not parts.hostname or parts.username or parts.query:
        raise InvalidInput("url", "must be supabase+https://project.supabase.co, and nothing more")
    return f"{scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def _key_from_environment() -> str:
    found = next((os.environ[name] for name in KEYS if os.environ.get(name)), None)
    if found is None:
        raise InvalidInput("key", f"is needed: hand in key=, or set {KEYS[0]}")
    return found


def is_secret(key: str) -> bool:
    """Whether a key is the project's own, which may speak for everybody."""
    if key.count(".") != 2:
        return key.startswith("sb_secret_")
    body = key.split(".")[1]
    try:
        return bool(from_json(urlsafe_b64decode(body + "=" * (-len(body) % 4)).decode())["role"] == "service_role")
    except (ValueError, KeyError, TypeError):
        return False


# ---- the transport -------------------------------------------------------------------------------------------------


class Project:
    """One client for the process. It knows the key, and no token."""

    def __init__(self, client: AsyncClient, trusted: bool) -> None:
        self.client, self.trusted = client, trusted
        self.closed = False

    async def bearer(self, token: Token | None) -> str | None:
        """What a request says who it is from; None: the key itself."""
        if self.closed:
            raise StoreClosed
        if token is None:
            if self.trusted:
                return None
            raise TokenRefused(NOBODY)
        found = token if isinstance(token, str) else token()
        return await found if inspect.isawaitable(found) else found


class SupabaseTransport:
    def __init__(self, project: Project, token: Token | None) -> None:
        self.project, self.token = project, token

    async def rows(self, function: str, args: Mapping[str, Any], *, read: bool) -> Sequence[Mapping[str, Any]]:
        bearer = await self.project.bearer(self.token)
        caller = self.project.client.schema(SCHEMA)  # an object for this one call
        if bearer is not None:
            caller = caller.auth(bearer)
        body = {name: from_json(str(value)) if isinstance(value, Json) else value for name, value in args.items()}
        try:
            with translated():
                answer = await caller.rpc(function, body, count=CountMethod.exact if read else None).execute()
        except EngineUnavailable:
            if self.project.closed:  # while it was on its way
                raise StoreClosed from None
            raise
        return _rows(function, answer.data, answer.count)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Transport]:
        yield _Whole(self)

    async def close(self) -> None:
        """The connections are the project's."""


class _Whole:
    """A conversation's rows, read in one call: there is no transaction across several."""

    def __init__(self, source: SupabaseTransport) -> None:
        self.source = source
        self.found: dict[str, list[Mapping[str, Any]]] = {}

    async def rows(self, function: str, args: Mapping[str, Any], *, read: bool) -> Sequence[Mapping[str, Any]]:
        if not self.found:
            (whole,) = await self.source.rows("whole", args, read=False)
            self.found = {"conversation": [whole["conversation_row"]]}
            for kind in ("event", "turn", "attachment", "working_memory", "fact"):
                self.found[f"{kind}_records"] = whole[f"{kind}_rows"] or []
        key = PAGED.get(function)
        if key is None:
            return self.found[function]
        return [row for row in self.found[function] if row[key] > args["after"]][: args["most"]]

    def snapshot(self) -> AbstractAsyncContextManager[Transport]:
        return nullcontext(self)

    async def close(self) -> None:
        """Nothing is open."""


def _rows(function: str, data: Any, count: int | None) -> Sequence[Mapping[str, Any]]:
    """PostgREST writes a row as an object, and what has one column without a name as that value alone."""
    if isinstance(data, str):  # no function of ours answers with a text alone
        raise EngineError("this is no Supabase project, or something stands before it: it did not answer in JSON")
    found = data if isinstance(data, list) else [data]
    if count is not None and count > len(found):
        raise EngineError(f"the project cut an answer of {count:,} rows: set its API setting `Max rows` higher")
    return [row if isinstance(row, dict) else {function: row} for row in found]


@contextmanager
def translated() -> Iterator[None]:
    """Nothing of the client leaves this block: its messages quote what was sent."""
    try:
        yield
    except APIError as problem:
        raise _failure(problem.code or "", problem.message or "") from None
    except (httpx.HTTPError, OSError, TimeoutError) as problem:
        raise EngineUnavailable(f"the project is out of reach ({type(problem).__name__})") from None


def _failure(code: str, message: str) -> PalaverError:
    if code in REFUSED:
        return TokenRefused(REFUSED[code])
    if code in ("PGRST106", "PGRST202"):
        why = "does not expose the schema palaver_api, or has not this version's functions"
        return SchemaMissing(f"the project {why} ({code}): see docs/supabase.md")
    if code in ("", "401"):  # the gateway, not the database
        return EngineError("the project refuses the API key")
    if code.startswith("PGRST0") or code == "429" or (code.isdigit() and len(code) == 3 and code >= "500"):
        return EngineUnavailable(f"the project could not answer ({code})")
    if code.isdigit() and len(code) == 3:
        return EngineError(f"the project refuses this (status {code})")
    return failure(code, message)


# ---- the engine ----------------------------------------------------------------------------------------------------


class SupabaseEngine(PostgresEngine):
    """What one caller sees of a project. `scope` is who that is, in the database's own words."""

    def __init__(self, project: Project, token: Token | None, clock: Clock, hub: Hub, scope: Scope) -> None:
        super().__init__(SupabaseTransport(project, token), clock, hub, scope.tenant)
        self.project, self.token, self.scope = project, token, scope
        self.writes = 0
        self.blobs: Blobs = StorageBlobs(project, token)

    @property
    def is_service(self) -> bool:
        """Whether the application itself is asking, which may speak for every scope."""
        return self.project.trusted and self.token is None

    @property
    def may_work(self) -> bool:
        """Whether the token has the right to write: memory work is left to callers who have it."""
        return self.is_service or WRITE in self.scope.rights

    @property
    def is_anonymous(self) -> bool:
        return self.token is None and not self.project.trusted

    async def signed_in(self, token: Token | None) -> SupabaseEngine:
        """The same project for the caller whose token this is. Asks the database who that is."""
        engine = SupabaseEngine(self.project, token, self.clock, self.hub, self.scope)
        try:
            (row,) = await Caller(engine.transport, self.clock).read("signed_in", self.scope)
        except TokenRefused:
            raise
        except PermissionDenied:
            raise TokenRefused("the token names no tenant, or not the right to read: see docs/supabase.md") from None
        except EngineError as problem:
            if problem.sqlstate != DENIED or engine.is_service:
                raise
            raise TokenRefused("the token is of nobody who is signed in") from None
        _check(row["version"])
        if engine.is_service:
            return engine
        rights = frozenset(row["rights"].split(","))
        engine.scope = Scope(row["tenant"], row["user"], rights, row["sight"], row["workspace"])
        engine.home = row["tenant"]
        return engine

    def for_worker(self) -> SupabaseEngine:
        """The same caller, counted apart: what a worker writes is no news to it."""
        return SupabaseEngine(self.project, self.token, self.clock, self.hub, self.scope)

    async def close(self) -> None:
        """Whoever opened the project closes it."""

    async def write(self, function: str, scope: Scope, **args: Any) -> Sequence[Mapping[str, Any]]:
        self.writes += 1
        return await super().write(function, scope, **args)


def _check(found: int) -> None:
    known = migrate.known_version()
    if found > known:
        raise DatabaseTooNew(found=found, known=known)
    if found < known:
        raise SchemaMissing(f"the project has schema {found}, and {known} is needed: run `palaver migrate`")
