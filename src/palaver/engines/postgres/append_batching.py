"""Batches concurrent appends: those that arrive while calls are under way share the next one, and its commit.

Two calls at a time, so that the server stores one batch while this process prepares the next. A conversation is in one
of them at most, so that its appends never wait for each other's lock. If fewer calls are under way, an append is sent
at once; none is delayed in order to form a batch. When a conversation is locked elsewhere, the batch comes back soon
and is split, so that the others do not wait for that lock.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import cast

from palaver.core.event_loop import LoopGuard
from palaver.core.identity import canonical_json
from palaver.engines.postgres.failures import is_lost
from palaver.engines.postgres.rpc import RpcClient
from palaver.engines.postgres.transports import Json, Row
from palaver.errors import EngineError, PalaverError
from palaver.model import Scope

LANES = 2
FEW = 8  # conversations that are not worth two calls: a call costs as much as the rows of five appends
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
        self.rpc, self.lanes, self.by_tenant = rpc, lanes, by_tenant
        self._loop = LoopGuard()
        self._pending: list[PendingAppend] = []
        self._under_way: set[str] = set()  # conversations
        self._senders: set[asyncio.Task[None]] = set()
        self._looking: set[asyncio.Task[None]] = set()  # senders that are about to take what is pending
        self._retries: set[asyncio.Task[None]] = set()

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
        self._loop.check()  # a sender's task sends for all callers, so they must share its loop
        stored: asyncio.Future[Sequence[Row]] = asyncio.get_running_loop().create_future()
        self._pending.append(PendingAppend(scope, conversation, drafts, count, expected_seq, keyed, stored))
        if not self._looking and conversation not in self._under_way:
            self._start_sender()
        return await stored

    async def close(self) -> None:
        """Wait for the appends that are under way."""
        while tasks := self._senders | self._retries:
            await asyncio.wait(tasks)

    def _start_sender(self) -> None:
        if len(self._senders) >= self.lanes:
            return  # one of them sends what is pending, when its call returns
        sender = asyncio.create_task(self._send_all())
        self._senders.add(sender)
        self._looking.add(sender)
        sender.add_done_callback(self._remove_sender)  # even if it is cancelled before it has run

    def _remove_sender(self, sender: asyncio.Task[None]) -> None:
        self._senders.discard(sender)
        self._looking.discard(sender)

    async def _send_all(self) -> None:
        """Send batches until nothing is left but appends to conversations of the other senders, who send them next."""
        sender = cast("asyncio.Task[None]", asyncio.current_task())
        try:
            while batch := self._next_batch():
                self._looking.discard(sender)
                if self._pending:
                    self._start_sender()
                await self._send_alone(batch)
                self._looking.add(sender)
                for _ in range(2):  # let the callers that just got their rows append again, into the next batch
                    await asyncio.sleep(0)
        finally:
            self._remove_sender(sender)  # at once: the next append has to start another one

    async def _send_alone(self, batch: list[PendingAppend]) -> None:
        """Send a batch while no other sender takes appends to its conversations."""
        conversations = {append.conversation for append in batch}
        self._under_way |= conversations
        try:
            await self._send(batch)
        finally:
            self._under_way -= conversations

    def _next_batch(self) -> list[PendingAppend]:
        """Take this sender's share of the conversations that wait, with all of their appends, up to the limit of bytes.

        Sorted by conversation, so that calls of two processes cannot deadlock.
        """
        names = {append.conversation for append in self._pending} | self._under_way
        share = max(FEW, -(-len(names) // self.lanes))
        batch: list[PendingAppend] = []
        rest: list[PendingAppend] = []
        taken: set[str] = set()
        left = set(self._under_way)  # once an append is left for later, so are those after it in its conversation
        size = 0
        for append in self._pending:
            name = append.conversation
            if append.stored.done():  # its caller was cancelled
                continue
            is_full = size >= BATCH_BYTES or (name not in taken and len(taken) >= share)
            if is_full or name in left or (self.by_tenant and batch and append.scope.tenant != batch[0].scope.tenant):
                rest.append(append)
                left.add(name)
            else:
                batch.append(append)
                taken.add(name)
                size += len(append.drafts)
        self._pending = rest
        return sorted(batch, key=attrgetter("conversation"))

    async def _send(self, batch: list[PendingAppend]) -> None:
        """Send a batch and resolve the future of every append in it, whatever happens."""
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
        except BaseException as problem:  # raised to every caller: none may wait for a sender that has stopped
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
        """Retry each conversation in a task of its own, so that the sender is free for others."""
        for _, group in groupby(batch, key=lambda append: append.conversation):
            task = asyncio.create_task(self._send_one_by_one(list(group)))
            self._retries.add(task)
            task.add_done_callback(self._retries.discard)

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
