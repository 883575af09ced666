"""The place of an answer among those of its conversation: in parallel, one after the other, or alone.

The places are in the database, so the order holds across processes. Each has a lease that is renewed while the answer
waits and while it is made: if its process dies, the place is free when the lease ends.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from palaver.core.concurrency import run_uncancelled
from palaver.core.identity import new_id
from palaver.errors import ConversationBusy, EngineError, NotFound, QueueTimeout, StoreClosed
from palaver.generation.services import GenerationServices
from palaver.memory.settings import SIMULTANEOUS, Simultaneous
from palaver.model import ConversationInfo
from palaver.ports.answer_places import PlaceRequest, queue_name

POLL_SECONDS = 1.0  # between two looks at the queue, if nothing wakes the answer before
RENEWALS = 3  # per lease


class AnswerPlace:
    """The place of one answer. `leave` gives it up; in a conversation that answers in parallel it does nothing."""

    def __init__(self, info: ConversationInfo, services: GenerationServices) -> None:
        self.mode = simultaneous_of(info, services.shared.settings.simultaneous)
        self.is_behind_others = False
        self.is_waiting = self.mode == "queue"  # until the answers ahead are made
        self._conversation, self._services = info.id, services
        self._id = new_id()
        self._question: int | None = None
        self._renewing: asyncio.Task[None] | None = None

    @property
    def is_queued(self) -> bool:
        return self.mode == "queue"

    async def reserve(self) -> None:
        """Take a place before the question is stored, so that the order is that of the questions.

        Raises ConversationBusy where a second question is refused. Reserving a second time does nothing.
        """
        if self.mode != "parallel" and self._renewing is None:
            await self._begin()

    async def wait(self, question: int) -> None:
        """Wait until the answers to earlier questions are made. `question` is the sequence number of this one.

        Raises QueueTimeout if that takes too long.
        """
        if self.mode == "parallel":
            return
        self._question = question
        if self._renewing is None:
            await self._begin()
        if self.mode == "queue" and await self._take():
            await self._wait_for_others()
        self.is_waiting = False

    async def leave(self) -> None:
        """Give the place up. The database may be unreachable or closed: then the lease ends the place."""
        renewing, self._renewing = self._renewing, None
        if renewing is not None:
            renewing.cancel()
            await run_uncancelled(self._leave(renewing))

    async def _leave(self, renewing: asyncio.Task[None]) -> None:
        await asyncio.gather(renewing, return_exceptions=True)
        with suppress(EngineError, NotFound, StoreClosed):
            await self._services.engine.leave_answer_place(self._services.scope, self._conversation, self._id)

    async def _begin(self) -> None:
        ahead = await self._take()
        if self.mode == "reject" and ahead:
            raise ConversationBusy(self._conversation)
        self._renewing = asyncio.create_task(self._renew(), name="palaver-answer-place")

    async def _take(self) -> int:
        """Take the place or renew it, and return how many answers come first."""
        wanted = PlaceRequest(id=self._id, question=self._question, alone=self.mode == "reject")
        lease = round(self._services.lease * 1_000_000)
        engine, scope = self._services.engine, self._services.scope
        ahead = await engine.take_answer_place(scope, self._conversation, wanted, lease)
        self.is_behind_others = self.is_behind_others or ahead > 0
        return ahead

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._services.lease / RENEWALS)
            with suppress(EngineError, NotFound):  # busy, or deleted: the answer itself finds out
                await self._take()

    async def _wait_for_others(self) -> None:
        loop = asyncio.get_running_loop()
        limit = self._services.shared.settings.queue_timeout
        end = loop.time() + limit
        async with self._services.engine.watch(queue_name(self._conversation)) as signal:
            while ahead := await self._take():
                left = end - loop.time()
                if left <= 0:
                    raise QueueTimeout(self._conversation, waited=limit, ahead=ahead)
                with suppress(TimeoutError):
                    async with asyncio.timeout(min(left, POLL_SECONDS)):
                        await signal.wait()


def simultaneous_of(info: ConversationInfo, default: Simultaneous) -> Simultaneous:
    """Return how a conversation treats simultaneous questions: by its own setting, or by the default."""
    value = info.settings.get("simultaneous")
    return next((mode for mode in SIMULTANEOUS if mode == value), default)
