"""Answers in the making. They belong to the server and not to a connection: who hangs up may come back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext, suppress
from typing import Any

from palaver.conversations.conversation import Conversation
from palaver.errors import PalaverError, StoreClosed
from palaver.generation.events import Answered, GenerateEvent
from palaver.model import Turn
from palaver.models.response_accumulator import STOPPED
from palaver.server.live.channel import Closed, Hub
from palaver.server.ops.metrics import Metrics

ABANDONED = 2.0  # seconds that a stopped answer has to put its end on disk


class Answer:
    """One answer: what was told so far, for as many listeners as there are."""

    def __init__(self, talk: Conversation | None) -> None:
        self.talk = talk  # None: nothing of it is stored
        self.told: list[GenerateEvent] = []
        self.task: asyncio.Task[None] | None = None
        self.began = time.monotonic()
        self._news: set[asyncio.Event] = set()
        self._over = False
        self.ended: float | None = None  # by the monotonic clock
        self.problem: Exception | None = None

    def tell(self, event: GenerateEvent) -> None:
        self.told.append(event)
        self._alert()

    def end(self, problem: Exception | None) -> None:
        self._over, self.problem, self.ended = True, problem, time.monotonic()
        self._alert()

    @property
    def outcome(self) -> str:
        """How it ended."""
        if self.problem is not None:
            return "failed"
        last = self.told[-1] if self.told else None
        return "stopped" if isinstance(last, Answered) and last.turn.finish_reason == STOPPED else "done"

    def _alert(self) -> None:
        for one in self._news:
            one.set()

    async def listen(self) -> AsyncIterator[GenerateEvent]:
        """From the first event on. Raises what the answer failed with."""
        news, seen = asyncio.Event(), 0
        self._news.add(news)
        try:
            while True:
                news.clear()
                while seen < len(self.told):
                    seen += 1
                    yield self.told[seen - 1]
                if self._over:
                    if self.problem is not None:
                        raise self.problem
                    return
                await news.wait()
        finally:
            self._news.discard(news)

    async def turn(self) -> Turn:
        async for event in self.listen():
            if isinstance(event, Answered):
                return event.turn
        raise AssertionError("every answer ends with Answered")


class Answers:
    def __init__(self, hub: Hub, metrics: Metrics) -> None:
        self._hub, self._metrics = hub, metrics
        self._running: set[Answer] = set()

    @property
    def count(self) -> int:
        return len(self._running)

    def start(self, talk: Conversation, message: Any, options: dict[str, Any]) -> Answer:
        """Begin an answer. What is wrong with the options is raised here."""
        events = talk.generate_stream(message, **options)
        return self._started(Answer(talk), events)

    def relay(self, events: AsyncGenerator[GenerateEvent]) -> Answer:
        """An answer of which nothing is stored. It, too, goes on when its listener hangs up."""
        return self._started(Answer(None), events)

    def _started(self, answer: Answer, events: AsyncGenerator[GenerateEvent]) -> Answer:
        answer.task = asyncio.create_task(self._make(answer, events), name="palaver-answer")
        self._running.add(answer)
        self._metrics.making.inc()
        return answer

    def running(self, talk: Conversation) -> Answer | None:
        """The latest answer that is being made here in a conversation."""
        here = [one for one in self._running if one.talk is not None and one.talk.id == talk.id]
        return max(here, key=lambda one: one.began, default=None)

    async def _make(self, answer: Answer, events: Any) -> None:
        problem: Exception | None = None
        try:
            # The channel hears when somebody asks for a stop, in whichever process.
            async with self._heard(answer.talk), aclosing(events):
                async for event in events:
                    answer.tell(event)
        except (Closed, asyncio.CancelledError):  # the server ends
            problem = StoreClosed()
        except Exception as raised:  # for those who listen
            problem = raised
        finally:
            self._running.discard(answer)
            answer.end(problem)
            self._metrics.making.dec()
            self._metrics.answers.labels(answer.outcome).inc()

    def _heard(self, talk: Conversation | None) -> AbstractAsyncContextManager[Any]:
        return nullcontext() if talk is None else self._hub.channel(talk.info.tenant, talk.id)

    async def close(self, seconds: float) -> None:
        """Let answers finish; then stop them, with what came; then give up on them, which seals them."""
        await self._wait(seconds)
        for answer in tuple(self._running):
            with suppress(PalaverError):  # its conversation may be gone
                if answer.talk is not None:
                    await answer.talk.stop()
        await self._wait(ABANDONED)
        tasks = [answer.task for answer in self._running if answer.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _wait(self, seconds: float) -> None:
        tasks = [answer.task for answer in self._running if answer.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)
