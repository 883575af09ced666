"""Those who signed in, lately. Without a service key nobody else may do their memory work: it is done here, for each of
them with their own token, as long as that is good."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from palaver.errors import EngineUnavailable, PalaverError
from palaver.model import WRITE
from palaver.ports.engine import Token, TokenEngine

if TYPE_CHECKING:
    from palaver.conversations.store import Store
    from palaver.memory.worker.loop import Worker

MOST = 256
PAUSE = 0.5  # seconds between two looks at who has written; they cost no request


@dataclass(slots=True)
class Round:
    """One caller's store, and the worker that does its memory work."""

    store: Store
    engine: TokenEngine
    worker: Worker
    seen: int = -1  # writes, at the last look
    due: datetime | None = None
    begun: bool = False

    def is_waiting(self) -> bool:
        news = self.engine.writes != self.seen or (self.due is not None and self.due <= self.worker.clock.now())
        return news and WRITE in self.store.scope.rights

    async def go(self) -> None:
        """What a writer that died has left, then every job that is due."""
        self.seen = self.engine.writes
        tenant = self.store.scope.tenant
        await self.worker.engine.abort_expired_streams()
        if not self.begun:
            await self.worker.replace_superseded(tenant)
            self.begun = True
        while await self.worker.run_one(tenant):
            pass
        self.due = await self.worker.next_due(tenant)


def round_of(store: Store, engine: TokenEngine) -> Round:
    return Round(store, engine, replace(store.parts.worker, engine=engine.for_worker()))


class Callers:
    """One round per token. The one who opened the store stays; of the others, those who came last."""

    def __init__(self) -> None:
        self.home: Round | None = None
        self._rounds: OrderedDict[Token, Round] = OrderedDict()

    def known(self, token: Token) -> Round | None:
        found = self._rounds.get(token)
        if found is not None:
            self._rounds.move_to_end(token)
        return found

    def add(self, token: Token, round: Round) -> None:
        self._rounds[token] = round
        while len(self._rounds) > MOST:
            self._rounds.popitem(last=False)

    async def run(self) -> None:
        while True:
            for token, round in self._all():
                if round.is_waiting():
                    await self._go(token, round)
            await asyncio.sleep(PAUSE)

    def _all(self) -> Sequence[tuple[Token | None, Round]]:
        home = [(None, self.home)] if self.home is not None else []
        return [*home, *self._rounds.items()]

    async def _go(self, token: Token | None, round: Round) -> None:
        try:
            await round.go()
        except EngineUnavailable:
            round.seen = -1  # out of reach now: there is a next time
        except PalaverError:  # the token has run out; whoever comes back has a new one
            if token is not None:
                self._rounds.pop(token, None)
