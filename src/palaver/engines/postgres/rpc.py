"""Calls of the SQL functions in `palaver_api`: the base of every part of the engine."""

from __future__ import annotations

from collections.abc import Sequence

from palaver.core.identity import micros
from palaver.engines.postgres.failures import is_lost
from palaver.engines.postgres.transports import Row, Transport, as_json
from palaver.engines.postgres.watch import CommitHub
from palaver.errors import EngineError, EngineUnavailable
from palaver.model import Scope
from palaver.ports.clock import Clock

DENIED = "42501"  # SQLSTATE: insufficient_privilege


class RpcClient:
    """Calls functions over a transport, in a scope and at a time."""

    def __init__(self, transport: Transport, clock: Clock) -> None:
        self.transport, self.clock = transport, clock

    def scope_params(self, scope: Scope) -> str:
        """Return the scope and the time, as `palaver.enter` takes them."""
        return as_json(
            {
                "tenant": scope.tenant,
                "user": scope.user,
                "sight": scope.visibility,
                "workspace": scope.workspace,
                "rights": ",".join(scope.rights),
                "now": micros(self.clock.now()),
            }
        )

    async def write(self, function: str, scope: Scope, **args: object) -> Sequence[Row]:
        """Call a function on the primary."""
        return await self.transport.rows(function, {"who": self.scope_params(scope), **args}, read=False)

    async def write_once(self, function: str, scope: Scope, **args: object) -> Sequence[Row]:
        """Call a function that stores once, however often it is called: again if the connection was lost."""
        try:
            return await self.write(function, scope, **args)
        except EngineUnavailable as problem:
            if not is_lost(problem):
                raise
        return await self.write(function, scope, **args)

    async def read(self, function: str, scope: Scope, **args: object) -> Sequence[Row]:
        """Call a function that only reads; a replica may run it."""
        return await self.transport.rows(function, {"who": self.scope_params(scope), **args}, read=True)


class EnginePart(RpcClient):
    """The state that the parts of an engine share: who is woken after a commit, and for which tenants it works."""

    def __init__(self, transport: Transport, clock: Clock, hub: CommitHub, home: str) -> None:
        super().__init__(transport, clock)
        self.hub = hub
        self.home = home  # the tenant that the store was opened for
        self.serves_all_tenants = True  # until the database refuses
        self.last_append = 0.0  # of the monotonic clock

    @property
    def may_work(self) -> bool:
        """Whether this login may run jobs and maintenance, which write."""
        return True

    def home_scope(self, tenant: str | None = None) -> Scope:
        """Return the application's scope in a tenant; without a name, in the tenant of this store."""
        return application_scope(self.home if tenant is None else tenant)

    async def call_for_all_tenants(self, function: str, **args: object) -> Sequence[Row] | None:
        """Call a function that only members of `palaver_worker` may call. None when this login is not a member."""
        if not self.serves_all_tenants:
            return None
        try:
            return await self.write(function, self.home_scope(), **args)
        except EngineError as problem:
            if problem.sqlstate != DENIED:
                raise
            self.serves_all_tenants = False
            return None

    async def all_tenants(self) -> list[str]:
        """List the tenants that this login works for: all of them, or only the one of this store."""
        rows = await self.call_for_all_tenants("tenants")
        return [self.home] if rows is None else [row["tenant"] for row in rows]

    async def tenants_with_maintenance(self) -> Sequence[Row]:
        """List the tenants that have an open stream (with the end of its lease) or files to delete."""
        if not self.may_work:
            return []
        rows = await self.call_for_all_tenants("waiting")
        return await self.write("waiting_here", self.home_scope()) if rows is None else rows


def application_scope(tenant: str) -> Scope:
    """Return the scope of the application itself, which sees everything in a tenant."""
    return Scope.of(tenant, None)
