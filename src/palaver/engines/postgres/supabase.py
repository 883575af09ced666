"""The engine over Supabase: the same SQL functions by `rpc`, as the user whose token the request carries.

One client serves the process and never stores a token: each call uses an object of its own that shares only the
connections. The database trusts only the token: the scope of a caller is read from the database, and a scope given as
an argument is ignored. With the project's secret key the application itself is the caller, and any scope is accepted.
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
from palaver.engines.postgres.failures import error_for
from palaver.engines.postgres.rpc import DENIED, RpcClient
from palaver.engines.postgres.storage import StorageBlobs
from palaver.engines.postgres.transports import Json, Row, Transport, open_connection
from palaver.engines.postgres.watch import CommitHub
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
TIMEOUT_SECONDS = 30.0
LOOPBACK = ("127.0.0.1", "localhost", "::1")
CONNECTIONS = httpx.Limits(max_connections=64, max_keepalive_connections=16)
PAGED = {"event_records": "n", "turn_records": "seq"}
NOT_SIGNED_IN = "no user is signed in: open the store with token=, or use store.signed_in(token)"
REJECTED = {
    "PGRST301": "the token does not belong to this project, or is damaged: sign in again",
    "PGRST302": NOT_SIGNED_IN,
    "PGRST303": "the token has expired, or is not valid here: sign in again",
}


# ---- opening -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def open_supabase(
    url: str,
    clock: Clock,
    *,
    home: Scope,
    key: str | None,
    token: Token | None,
    migrate_url: str | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> AsyncIterator[SupabaseEngine]:
    """Open the project at `supabase+https://…` for the user of the token. Without one, users sign in later."""
    place, key = _project_url(url), key or _key_from_environment()
    if migrate_url is not None:
        async with open_connection(migrate_url) as connection:
            await migrate.migrate(connection)
    async with httpx.AsyncClient(timeout=timeout_seconds, limits=CONNECTIONS, follow_redirects=False) as connections:
        options = AsyncClientOptions(
            httpx_client=connections, auto_refresh_token=False, persist_session=False, schema=SCHEMA
        )
        project = Project(AsyncClient(place, key, options), is_secret(key))
        hub = CommitHub(None)
        engine = SupabaseEngine(project, None, clock, hub, home)
        try:
            yield engine if token is None and not project.trusted else await engine.signed_in(token)
        finally:
            await hub.close()
            project.closed = True


def _project_url(url: str) -> str:
    parts = urlsplit(url)
    scheme = parts.scheme.removeprefix("supabase+")
    if scheme == "http" and parts.hostname not in LOOPBACK:
        raise InvalidInput("url", "would send tokens unencrypted: use supabase+https://")
    if not parts.hostname or parts.username or parts.query:
        raise InvalidInput("url", "must be supabase+https://project.supabase.co, without a user or a query")
    return f"{scheme}://{parts.netloc}{parts.path.rstrip('/')}"


def _key_from_environment() -> str:
    found = next((os.environ[name] for name in KEYS if os.environ.get(name)), None)
    if found is None:
        raise InvalidInput("key", f"is missing: pass key=, or set {KEYS[0]}")
    return found


def is_secret(key: str) -> bool:
    """Return whether a key is the project's secret key, which may use every scope."""
    if key.count(".") != 2:
        return key.startswith("sb_secret_")
    body = key.split(".")[1]
    try:
        return bool(from_json(urlsafe_b64decode(body + "=" * (-len(body) % 4)).decode())["role"] == "service_role")
    except (ValueError, KeyError, TypeError):
        return False


# ---- the transport -------------------------------------------------------------------------------------------------


class Project:
    """One client for the process. It has the API key, and no token."""

    def __init__(self, client: AsyncClient, trusted: bool) -> None:
        self.client, self.trusted = client, trusted
        self.closed = False

    async def bearer(self, token: Token | None) -> str | None:
        """Return the token for a request; None when the API key itself authenticates it."""
        if self.closed:
            raise StoreClosed
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
        try:
            with translate_errors():
                response = await caller.rpc(function, body, count=CountMethod.exact if read else None).execute()
        except EngineUnavailable:
            if self.project.closed:  # while the call was under way
                raise StoreClosed from None
            raise
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

    async def rows(self, function: str, args: Mapping[str, object], *, read: bool) -> Sequence[Row]:
        if not self.found:
            (whole,) = await self.source.rows("whole", args, read=False)
            self.found = {"conversation": [whole["conversation_row"]]}
            for kind in ("event", "turn", "attachment", "working_memory", "fact"):
                self.found[f"{kind}_records"] = whole[f"{kind}_rows"] or []
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
        raise _error_for(problem.code or "", problem.message or "") from None
    except (httpx.HTTPError, OSError, TimeoutError) as problem:
        raise EngineUnavailable(f"the project cannot be reached ({type(problem).__name__})") from None


def _error_for(code: str, message: str) -> PalaverError:
    if code in REJECTED:
        return TokenRefused(REJECTED[code])
    if code in ("PGRST106", "PGRST202"):
        why = "does not expose the schema palaver_api, or lacks the functions of this version"
        return SchemaMissing(f"the project {why} ({code}): see docs/supabase.md")
    if code in ("", "401"):  # the gateway, not the database
        return EngineError("the project rejected the API key")
    if code.startswith("PGRST0") or code == "429" or (code.isdigit() and len(code) == 3 and code >= "500"):
        return EngineUnavailable(f"the project failed ({code})")
    if code.isdigit() and len(code) == 3:
        return EngineError(f"the project rejected the request (status {code})")
    return error_for(code, message)


# ---- the engine ----------------------------------------------------------------------------------------------------


class SupabaseEngine(PostgresEngine):
    """A project as one caller sees it. `scope` is the caller's scope, as the database derives it from the token."""

    def __init__(self, project: Project, token: Token | None, clock: Clock, hub: CommitHub, scope: Scope) -> None:
        super().__init__(SupabaseTransport(project, token), clock, hub, scope.tenant)
        self.project, self.token, self.scope = project, token, scope
        self.writes = 0
        self.blobs: Blobs = StorageBlobs(project, token)

    @property
    def is_service(self) -> bool:
        """Whether the application itself is the caller, which may use every scope."""
        return self.project.trusted and self.token is None

    @property
    def may_work(self) -> bool:
        """Whether the token has the right to write. Jobs are left to callers who have it."""
        return self.is_service or WRITE in self.scope.rights

    @property
    def is_anonymous(self) -> bool:
        return self.token is None and not self.project.trusted

    async def signed_in(self, token: Token | None) -> SupabaseEngine:
        """Return an engine for the caller with this token. Reads the caller's scope from the database."""
        engine = SupabaseEngine(self.project, token, self.clock, self.hub, self.scope)
        try:
            (row,) = await RpcClient(engine.transport, self.clock).read("signed_in", self.scope)
        except TokenRefused:
            raise
        except PermissionDenied:
            raise TokenRefused("the token has no tenant, or lacks the right to read: see docs/supabase.md") from None
        except EngineError as problem:
            if problem.sqlstate != DENIED or engine.is_service:
                raise
            raise TokenRefused("the token does not belong to a signed-in user") from None
        _check_version(row["version"])
        if engine.is_service:
            return engine
        rights = frozenset(row["rights"].split(","))
        engine.scope = Scope(row["tenant"], row["user"], rights, row["sight"], row["workspace"])
        engine.home = row["tenant"]
        return engine

    def for_worker(self) -> SupabaseEngine:
        """Return an engine for the same caller with its own count of writes: a worker's own writes start no work."""
        return SupabaseEngine(self.project, self.token, self.clock, self.hub, self.scope)

    async def close(self) -> None:
        """Do nothing: `open_supabase` closes the project."""

    async def write(self, function: str, scope: Scope, **args: object) -> Sequence[Row]:
        self.writes += 1
        return await super().write(function, scope, **args)


def _check_version(found: int) -> None:
    known = migrate.known_version()
    if found > known:
        raise DatabaseTooNew(found=found, known=known)
    if found < known:
        raise SchemaMissing(f"the project has schema {found}, but {known} is needed: run `palaver migrate`")
