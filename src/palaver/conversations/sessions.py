"""Callers that signed in with a token of their own.

Without a service key, nobody may do memory work for other users. So this process does it for each recent caller, with
the caller's own token, for as long as the token is valid.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from palaver.conversations.components import Components
from palaver.core.bounded_dict import BoundedDict
from palaver.errors import EngineUnavailable, PalaverError
from palaver.memory.worker.loop import Worker
from palaver.model import WRITE, Scope
from palaver.ports.engine import Token, TokenEngine

MAX_SESSIONS = 256
CHECK_SECONDS = 0.5  # between two checks for new writes; a check sends no request


@dataclass(slots=True)
class Session:
    """One signed-in caller: the components that use the token, and the worker that does the caller's memory work."""

    components: Components
    scope: Scope
    engine: TokenEngine
    worker: Worker
    seen_writes: int = -1
    due: datetime | None = None
    has_begun: bool = False

    def has_work(self) -> bool:
        is_new = self.engine.writes != self.seen_writes
        is_due = self.due is not None and self.due <= self.worker.clock.now()
        return (is_new or is_due) and WRITE in self.scope.rights

    async def work(self) -> None:
        """Abort the streams of dead writers, then run every job that is due."""
        self.seen_writes = self.engine.writes
        tenant = self.scope.tenant
        await self.worker.engine.abort_expired_streams()
        if not self.has_begun:
            await self.worker.replace_superseded(tenant)
            self.has_begun = True
        while await self.worker.run_one(tenant):
            pass
        self.due = await self.worker.next_due(tenant)


def new_session(components: Components, scope: Scope, engine: TokenEngine) -> Session:
    return Session(components, scope, engine, replace(components.worker, engine=engine.for_worker()))


class Sessions:
    """The session of the caller that opened the store, and those of the callers that signed in most recently."""

    def __init__(self, limit: int = MAX_SESSIONS) -> None:
        self.home: Session | None = None
        self._sessions: BoundedDict[Token, Session] = BoundedDict(limit)

    def get(self, token: Token) -> Session | None:
        found = self._sessions.get(token)
        if found is not None:
            self._sessions.move_to_end(token)
        return found

    def add(self, token: Token, session: Session) -> None:
        self._sessions[token] = session

    async def run(self) -> None:
        """Do the memory work of all sessions, for ever."""
        while True:
            for token, session in self._all():
                if session.has_work():
                    await self._work(token, session)
            await asyncio.sleep(CHECK_SECONDS)

    def _all(self) -> Sequence[tuple[Token | None, Session]]:
        home = [(None, self.home)] if self.home is not None else []
        return [*home, *self._sessions.items()]

    async def _work(self, token: Token | None, session: Session) -> None:
        try:
            await session.work()
        except EngineUnavailable:
            session.seen_writes = -1  # try again in the next round
        except PalaverError:  # the token has expired; the caller will come back with a new one
            if token is not None:
                self._sessions.pop(token, None)
