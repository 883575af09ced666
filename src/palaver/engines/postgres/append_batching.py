"""Batches concurrent appends: those that arrive while a call is under way share the next one, and its commit.

Each conversation always uses the same lane, so that its appends never wait for each other's lock. An append that finds
its lane idle is sent at once; none is delayed in order to form a batch. When a conversation is locked elsewhere, the
batch comes back soon and is split, so that the others do not wait for that lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from palaver.core.event_loop import LoopGuard
from palaver.core.identity import canonical_json
from palaver.engines.postgres.failures import is_lost
from palaver.engines.postgres.rpc import RpcClient
from palaver.engines.postgres.transports import Json, Row
from palaver.errors import EngineError, PalaverError
from palaver.model import Scope

LANES = 2
BATCH_BYTES = 1_000_000  # of drafts, in one call
# Classes of SQLSTATE after which certainly nothing of the call is stored, so that each append may be retried alone.
NOTHING_STORED = ("22", "23", "40", "42", "54", "55")


@dataclass(slots=True, eq=False)  # not frozen, which costs more than the rest of it
class PendingAppend:
    scope: Scope
    conversation: str
    drafts: str  # JSON
    count: int
    expected_seq: int | None
    keyed: bool  # every draft has an idempotency key: it is stored once, however often it is sent
    stored: asyncio.Future[Sequence[Row]]

    def resolve(self, rows: Sequence[Row]) -> None:
        if not self.stored.done():
            self.stored.set_result(rows)

    def fail(self, problem: BaseException) -> None:
        if not self.stored.done():
            self.stored.set_exception(problem)


class AppendBatcher:
    """Sends appends in batches, over `lanes` calls at a time. With `by_tenant`, a batch holds appends of one tenant."""

    def __init__(self, rpc: RpcClient, lanes: int = LANES, *, by_tenant: bool = False) -> None:
        self._lanes = [_Lane(rpc, by_tenant) for _ in range(lanes)]
        self._loop = LoopGuard()

    async def append(
        self,
        scope: Scope,
        conversation: str,
        drafts: str,
        count: int,
        expected_seq: int | None,
        *,
        keyed: bool = False,
    ) -> Sequence[Row]:
        """Store drafts and return their rows."""
        self._loop.check()  # a lane's task sends for all callers, so they must share its loop
        stored: asyncio.Future[Sequence[Row]] = asyncio.get_running_loop().create_future()
        lane = self._lanes[hash(conversation) % len(self._lanes)]
        lane.add(PendingAppend(scope, conversation, drafts, count, expected_seq, keyed, stored))
        return await stored

    async def close(self) -> None:
        """Wait for the appends that are under way."""
        for lane in self._lanes:
            await lane.drain()


class _Lane:
    def __init__(self, rpc: RpcClient, by_tenant: bool) -> None:
        self.rpc, self.by_tenant = rpc, by_tenant
        self.pending: list[PendingAppend] = []
        self.sender: asyncio.Task[None] | None = None
        self.retries: set[asyncio.Task[None]] = set()

    def add(self, append: PendingAppend) -> None:
        self.pending.append(append)
        if self.sender is None:
            self.sender = asyncio.create_task(self._send_all())

    async def drain(self) -> None:
        while tasks := [*self.retries, *([self.sender] if self.sender else [])]:
            await asyncio.wait(tasks)

    async def _send_all(self) -> None:
        try:
            while self.pending:
                await self._send(self._next_batch())
                for _ in range(2):  # let the callers that just got their rows append again, into the next batch
                    await asyncio.sleep(0)
        finally:
            self.sender = None

    def _next_batch(self) -> list[PendingAppend]:
        """Take pending appends up to the limit. Sorted by conversation, so that two calls cannot deadlock."""
        batch: list[PendingAppend] = []
        size = 0
        while self.pending and size < BATCH_BYTES:
            if self.by_tenant and batch and self.pending[0].scope.tenant != batch[0].scope.tenant:
                break
            append = self.pending.pop(0)
            size += len(append.drafts)
            if not append.stored.done():  # its caller may have been cancelled
                batch.append(append)
        return sorted(batch, key=lambda append: append.conversation)

    async def _send(self, batch: list[PendingAppend]) -> None:
        """Send a batch and resolve the future of every append in it, whatever happens."""
        if not batch:
            return
        try:
            rows = await self._call(batch)
        except PalaverError as problem:
            if _stored_nothing(problem) and (len(batch) > 1 or isinstance(problem, EngineError)):
                self._split(batch)
            elif isinstance(problem, EngineError) and is_lost(problem):
                self._split([append for append in batch if append.keyed])
                _fail_all([append for append in batch if not append.keyed], problem)
            else:
                _fail_all(batch, problem)
        except BaseException as problem:  # raised to every caller: none may wait for a lane that has stopped
            _fail_all(batch, problem)
            if not isinstance(problem, Exception):
                raise
        else:
            _distribute(batch, rows)

    async def _call(self, batch: list[PendingAppend]) -> Sequence[Row]:
        scope = batch[0].scope
        calls = ",".join(self._call_json(append, scope) for append in batch)
        return await self.rpc.write("append_together", scope, calls=Json(f"[{calls}]"))

    def _call_json(self, append: PendingAppend, scope: Scope) -> str:
        """Write one append as JSON. It has a scope of its own where that differs from the first one's."""
        who = "" if append.scope == scope else f'"who":{self.rpc.scope_params(append.scope)},'
        seq = "null" if append.expected_seq is None else append.expected_seq
        name = canonical_json(append.conversation)
        return f'{{{who}"conversation":{name},"drafts":{append.drafts},"expected_seq":{seq}}}'

    def _split(self, batch: list[PendingAppend]) -> None:
        """Retry each conversation in a task of its own, so that the lane is free for others."""
        for _, group in groupby(batch, key=lambda append: append.conversation):
            task = asyncio.create_task(self._send_one_by_one(list(group)))
            self.retries.add(task)
            task.add_done_callback(self.retries.discard)

    async def _send_one_by_one(self, batch: list[PendingAppend]) -> None:
        for append in batch:
            try:
                rows = await self.rpc.write(
                    "append",
                    append.scope,
                    conversation=append.conversation,
                    drafts=Json(append.drafts),
                    expected_seq=append.expected_seq,
                )
            except BaseException as problem:  # raised to its caller, whatever it is
                append.fail(problem)
                if not isinstance(problem, Exception):
                    raise
            else:
                append.resolve(rows)


def _stored_nothing(problem: PalaverError) -> bool:
    """Return whether the database itself reported that nothing was stored."""
    return not isinstance(problem, EngineError) or (problem.sqlstate or "").startswith(NOTHING_STORED)


def _distribute(batch: list[PendingAppend], rows: Sequence[Row]) -> None:
    first = 0
    for append in batch:
        append.resolve(rows[first : first + append.count])
        first += append.count


def _fail_all(batch: list[PendingAppend], problem: BaseException) -> None:
    for append in batch:
        append.fail(problem)
