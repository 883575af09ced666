"""Appends that come while others are on their way travel together: one round trip and one commit for all of them.

A conversation always takes the same lane, so that its appends never wait for each other's lock. An append that finds
its lane free goes at once; nobody waits for company. Nor does anybody wait behind one whose conversation is locked
elsewhere: the call comes back soon, and each goes on by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from palaver.core.identity import canonical_json
from palaver.engines.postgres.rpc import Caller, Row
from palaver.engines.postgres.transports import Json
from palaver.errors import EngineError, PalaverError
from palaver.model import Scope

LANES = 2
MOST_BYTES = 1_000_000  # of drafts, in one call
# Failures after which nothing of the call is stored for certain, so that each append may be tried by itself.
UNDONE = ("22", "23", "40", "42", "54", "55")


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    scope: Scope
    conversation: str
    drafts: str  # JSON
    count: int
    expected_seq: int | None
    stored: asyncio.Future[Sequence[Row]]


class Lanes:
    def __init__(self, caller: Caller) -> None:
        self.lanes = [_Lane(caller) for _ in range(LANES)]

    async def append(
        self, scope: Scope, conversation: str, drafts: str, count: int, expected_seq: int | None
    ) -> Sequence[Row]:
        """The rows of these drafts, as stored."""
        stored: asyncio.Future[Sequence[Row]] = asyncio.get_running_loop().create_future()
        lane = self.lanes[hash(conversation) % LANES]
        lane.enter(Waiting(scope, conversation, drafts, count, expected_seq, stored))
        return await stored

    async def close(self) -> None:
        """Once nobody is on the way any more."""
        for lane in self.lanes:
            await lane.emptied()


class _Lane:
    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.waiting: list[Waiting] = []
        self.driver: asyncio.Task[None] | None = None
        self.alone: set[asyncio.Task[None]] = set()

    def enter(self, one: Waiting) -> None:
        self.waiting.append(one)
        if self.driver is None:
            self.driver = asyncio.create_task(self._drive())

    async def emptied(self) -> None:
        while tasks := [*self.alone, *([self.driver] if self.driver else [])]:
            await asyncio.wait(tasks)

    async def _drive(self) -> None:
        try:
            while self.waiting:
                await self._carry(self._next())
                for _ in range(2):  # those who were answered may have more to say at once
                    await asyncio.sleep(0)
        finally:
            self.driver = None

    def _next(self) -> list[Waiting]:
        """The first of those who wait, as many as may travel at once. Sorted: two calls never wait for each other."""
        group: list[Waiting] = []
        size = 0
        while self.waiting and size < MOST_BYTES:
            one = self.waiting.pop(0)
            size += len(one.drafts)
            if not one.stored.done():  # its caller may have gone
                group.append(one)
        return sorted(group, key=lambda one: one.conversation)

    async def _carry(self, group: list[Waiting]) -> None:
        """Whatever becomes of them, all of them hear of it."""
        if not group:
            return
        try:
            found = await self._together(group)
        except PalaverError as problem:
            if _undone(problem) and (len(group) > 1 or isinstance(problem, EngineError)):
                self._part(group)
            else:
                _fail(group, problem)
        except BaseException as problem:  # passed on to all who wait; nobody may wait for a lane that is gone
            _fail(group, problem)
            if not isinstance(problem, Exception):
                raise
        else:
            first = 0
            for one in group:
                _answer(one, found[first : first + one.count])
                first += one.count

    async def _together(self, group: list[Waiting]) -> Sequence[Row]:
        scope = group[0].scope
        calls = ",".join(self._call(one, scope) for one in group)
        return await self.caller.write("append_together", scope, calls=Json(f"[{calls}]"))

    def _call(self, one: Waiting, scope: Scope) -> str:
        """A call in JSON; it says who is asking where that is somebody else than the first."""
        who = "" if one.scope == scope else f'"who":{self.caller.who(one.scope)},'
        seq = "null" if one.expected_seq is None else one.expected_seq
        name = canonical_json(one.conversation)
        return f'{{{who}"conversation":{name},"drafts":{one.drafts},"expected_seq":{seq}}}'

    def _part(self, group: list[Waiting]) -> None:
        """Each conversation goes on by itself, and the lane is free."""
        for _, those in groupby(group, key=lambda one: one.conversation):
            task = asyncio.create_task(self._one_by_one(list(those)))
            self.alone.add(task)
            task.add_done_callback(self.alone.discard)

    async def _one_by_one(self, group: list[Waiting]) -> None:
        for one in group:
            try:
                found = await self.caller.write(
                    "append",
                    one.scope,
                    conversation=one.conversation,
                    drafts=Json(one.drafts),
                    expected_seq=one.expected_seq,
                )
            except BaseException as problem:  # its caller's, of whatever kind
                _fail([one], problem)
                if not isinstance(problem, Exception):
                    raise
            else:
                _answer(one, found)


def _undone(problem: PalaverError) -> bool:
    """Whether the database itself says that nothing was stored."""
    return not isinstance(problem, EngineError) or (problem.sqlstate or "").startswith(UNDONE)


def _answer(one: Waiting, rows: Sequence[Row]) -> None:
    if not one.stored.done():
        one.stored.set_result(rows)


def _fail(group: list[Waiting], problem: BaseException) -> None:
    for one in group:
        if not one.stored.done():
            one.stored.set_exception(problem)
