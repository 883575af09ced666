"""What every group of verbs stands on: a transport, a clock, and who is asking."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from palaver.core.identity import micros
from palaver.engines.postgres.transports import Transport, as_json
from palaver.errors import EngineError
from palaver.model import Scope
from palaver.ports.clock import Clock

Row = Mapping[str, Any]
DENIED = "42501"


class Caller:
    home = ""  # the tenant that the store was opened for
    for_everybody = True  # until the database says no

    def __init__(self, transport: Transport, clock: Clock) -> None:
        self.transport, self.clock = transport, clock

    @property
    def may_work(self) -> bool:
        """Whether this login may do memory work and upkeep, which are writes."""
        return True

    def who(self, scope: Scope) -> str:
        """Who is asking, and when, as `palaver.enter` wants to hear it."""
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

    async def write(self, function: str, scope: Scope, **args: Any) -> Sequence[Row]:
        return await self.transport.rows(function, {"who": self.who(scope), **args}, read=False)

    async def read(self, function: str, scope: Scope, **args: Any) -> Sequence[Row]:
        return await self.transport.rows(function, {"who": self.who(scope), **args}, read=True)

    async def as_worker(self, function: str, **args: Any) -> Sequence[Row] | None:
        """What a worker for all tenants is told; None when this login is none."""
        if not self.for_everybody:
            return None
        try:
            return await self.write(function, Scope.of(self.home, None), **args)
        except EngineError as problem:
            if problem.sqlstate != DENIED:
                raise
            self.for_everybody = False
            return None
