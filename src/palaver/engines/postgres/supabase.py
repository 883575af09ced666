"""The engine over Supabase: the same SQL functions, called as the user whose token the request carries.

The database trusts only the token: the scope of a caller is read from the database, and a scope given as an argument is
ignored. With the project's secret key the application itself is the caller, and any scope is accepted.
"""

from __future__ import annotations

import os
from base64 import urlsafe_b64decode
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import httpx
from supabase import AsyncClient, AsyncClientOptions

from palaver.core.identity import from_json
from palaver.core.rights import rights_from_names
from palaver.engines.postgres import migrate
from palaver.engines.postgres.engine import PostgresEngine
from palaver.engines.postgres.rpc import DENIED, RpcClient
from palaver.engines.postgres.storage import StorageBlobs
from palaver.engines.postgres.supabase_transport import SCHEMA, Project, SupabaseTransport
from palaver.engines.postgres.transports import Row, open_connection
from palaver.engines.postgres.watch import CommitHub
from palaver.errors import (
    EngineError,
    InvalidInput,
    PermissionDenied,
    TokenRefused,
)
from palaver.model import WRITE, Scope
from palaver.ports.blobs import Blobs
from palaver.ports.clock import Clock
from palaver.ports.engine import Token

KEYS = ("SUPABASE_KEY", "SUPABASE_ANON_KEY", "SUPABASE_PUBLISHABLE_KEY")
TIMEOUT_SECONDS = 30.0
LOOPBACK = ("127.0.0.1", "localhost", "::1")
CONNECTIONS = httpx.Limits(max_connections=64, max_keepalive_connections=16)


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
        async with open_connection(migrate_url, administrator=True) as connection:
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
            (row,) = await RpcClient(engine.transport, self.clock).read("signed_in_scope", self.scope)
        except TokenRefused:
            raise
        except PermissionDenied:
            raise TokenRefused(
                "the token has no tenant, an empty subject, or not the right to read: see docs/how-to/supabase.md"
            ) from None
        except EngineError as problem:
            if problem.sqlstate != DENIED or engine.is_service:
                raise
            raise TokenRefused("the token does not belong to a signed-in user") from None
        migrate.refuse_version(migrate.Version(row["schema"], row["oldest_code"]), "project")
        if engine.is_service:
            return engine
        rights = rights_from_names(row["rights"].split(","))
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
