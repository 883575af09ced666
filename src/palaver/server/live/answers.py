"""Running answers. They belong to the server, not to a connection: a client that disconnects can resume."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing, nullcontext, suppress
from typing import Any

from palaver.conversations.conversation import Conversation
from palaver.conversations.internals import services_of
from palaver.conversations.store import Store
from palaver.errors import PalaverError, StoreClosed
from palaver.generation.answer_place import AnswerPlace
from palaver.generation.events import Answered, GenerateEvent, MessageStored
from palaver.generation.question import find_stored_answer
from palaver.memory.worker.jobs import Handler
from palaver.memory.worker.services import JobServices
from palaver.model import Content, Scope, Turn
from palaver.models.response_accumulator import STOPPED
from palaver.ports.jobs import Job
from palaver.server.live.channel import ChannelHub, Closed
from palaver.server.ops.metrics import Metrics

RECENT = 200  # turns among which unanswered questions are searched
RETURN_SECONDS = 5.0  # in which a listener may return to an answer that waits for others, before it is cancelled
STOP_SECONDS = 2.0  # for a stopped answer to store its end
ANSWER_JOB = "answer"  # the kind of a job that answers questions whose answers were interrupted


class ServerStopping(StoreClosed):
    """The server is stopping. The text says where the answer can be followed, or that the request can be repeated."""

    retry_after = 1.0

    def __init__(self, talk: Conversation | None = None) -> None:
        self.conversation = None if talk is None else talk.id
        how = "send the request again" if talk is None else f"follow it at /api/conversations/{talk.id}/events"
        PalaverError.__init__(self, f"the server is restarting: {how}")


class Answer:
    """One answer: its events so far, for any number of listeners."""

    def __init__(self, talk: Conversation | None, place: AnswerPlace | None = None) -> None:
        self.talk = talk  # None: the answer is not stored
        self._place = place
        self.is_background = False  # nobody needs to listen to it
        self.question: Turn | None = None  # a stored one, if it is known
        self.return_seconds = RETURN_SECONDS
        self.events: list[GenerateEvent] = []
        self.task: asyncio.Task[None] | None = None
        self.began = time.monotonic()
        self._news: set[asyncio.Event] = set()
        self._over = False
        self.ended: float | None = None  # by the monotonic clock
        self.problem: Exception | None = None

    def publish(self, event: GenerateEvent) -> None:
        if isinstance(event, MessageStored):
            self.question = event.turn
        self.events.append(event)
        self._wake_listeners()

    def end(self, problem: Exception | None) -> None:
        self._over, self.problem, self.ended = True, problem, time.monotonic()
        self._wake_listeners()

    @property
    def outcome(self) -> str:
        """done, stopped or failed."""
        if self.problem is not None:
            return "failed"
        last = self.events[-1] if self.events else None
        return "stopped" if isinstance(last, Answered) and last.turn.finish_reason == STOPPED else "done"

    def _wake_listeners(self) -> None:
        for one in self._news:
            one.set()

    async def listen(self) -> AsyncIterator[GenerateEvent]:
        """Yield every event from the first on. Raises the error that the answer failed with."""
        news, seen = asyncio.Event(), 0
        self._news.add(news)
        try:
            while True:
                news.clear()
                while seen < len(self.events):
                    seen += 1
                    yield self.events[seen - 1]
                if self._over:
                    if self.problem is not None:
                        raise self.problem
                    return
                await news.wait()
        finally:
            self._news.discard(news)
            if self._is_unwanted():
                asyncio.get_running_loop().call_later(self.return_seconds, self._cancel_if_unwanted)

    def _is_unwanted(self) -> bool:
        """Return whether it still waits for other answers, and nobody listens to it."""
        is_waiting = self._place is not None and self._place.is_waiting
        return is_waiting and not self._news and not self.is_background

    def _cancel_if_unwanted(self) -> None:
        if self._is_unwanted() and self.task is not None:
            self.task.cancel()

    async def turn(self) -> Turn:
        async for event in self.listen():
            if isinstance(event, Answered):
                return event.turn
        raise AssertionError("every answer ends with Answered")


class Answers:
    """The running answers of this process."""

    def __init__(self, hub: ChannelHub, metrics: Metrics) -> None:
        self._hub, self._metrics = hub, metrics
        self.return_seconds = RETURN_SECONDS
        self.is_closing = False  # no new answers are started
        self._running: set[Answer] = set()

    @property
    def count(self) -> int:
        return len(self._running)

    async def start(
        self, talk: Conversation, message: Content | None, options: dict[str, Any], place: AnswerPlace | None = None
    ) -> Answer:
        """Start an answer. Invalid options raise here, and so does ConversationBusy, before anything is stored.

        With an idempotency key the place is taken later: a repeated request must get the first one's answer.
        """
        self._require_open()
        answers = services_of(talk).answers
        if "idempotency_key" not in options:
            try:
                await answers.check_budgets(talk, message, options)
            except BaseException:
                if place is not None:
                    await place.leave()
                raise
        if place is None and "idempotency_key" not in options:
            place = await answers.reserve()
        try:
            events = answers.stream(talk, message, options, place)
        except BaseException:
            if place is not None:
                await place.leave()
            raise
        answer = Answer(talk, place)
        answer.return_seconds = self.return_seconds
        answer.question = options.get("question")
        return self._start_task(answer, events)

    def relay(self, events: AsyncGenerator[GenerateEvent]) -> Answer:
        """Run an answer that is not stored. It continues even if its listener disconnects."""
        self._require_open()
        return self._start_task(Answer(None), events)

    def _require_open(self) -> None:
        if self.is_closing:
            raise ServerStopping

    def _start_task(self, answer: Answer, events: AsyncGenerator[GenerateEvent]) -> Answer:
        answer.task = asyncio.create_task(self._run_answer(answer, events), name="palaver-answer")
        self._running.add(answer)
        self._metrics.making.inc()
        return answer

    def running(self, talk: Conversation) -> Answer | None:
        """Return the latest running answer of a conversation in this process."""
        here = [one for one in self._running if one.talk is not None and one.talk.id == talk.id]
        return max(here, key=lambda one: one.began, default=None)

    async def _run_answer(self, answer: Answer, events: AsyncGenerator[GenerateEvent]) -> None:
        problem: Exception | None = None
        try:
            # The channel receives stop requests from any process.
            async with self._open_channel(answer.talk), aclosing(events):
                async for event in events:
                    answer.publish(event)
        except (Closed, asyncio.CancelledError):  # the server is stopping
            problem = ServerStopping(answer.talk)
        except Exception as raised:  # raised to the listeners
            problem = raised
        finally:
            self._running.discard(answer)
            answer.end(problem)
            self._metrics.making.dec()
            self._metrics.answers.labels(answer.outcome).inc()

    def _open_channel(self, talk: Conversation | None) -> AbstractAsyncContextManager[object]:
        return nullcontext() if talk is None else self._hub.channel(talk.info.tenant, talk.id)

    async def close(self, seconds: float, *, ask_again: bool = False, stop_seconds: float = STOP_SECONDS) -> None:
        """Let answers finish. After `seconds`, keep the text of the others as it is, and cancel what is left.

        With `ask_again`, another process answers their questions again; the text so far is an aborted turn.
        """
        await self._wait(seconds)
        for answer in tuple(self._running):
            with suppress(PalaverError):  # its conversation may be deleted
                if ask_again and answer.talk is not None and answer.question is not None:
                    await _enqueue(answer.talk, answer.question)
                elif answer.talk is not None:
                    await answer.talk.stop()
        if not ask_again:
            await self._wait(stop_seconds)
        tasks = [answer.task for answer in self._running if answer.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def answer_again(self, store: Store) -> Handler:
        """Return the job that answers the questions of a conversation whose answers another process gave up."""

        async def run(_: JobServices, job: Job, give_way: bool) -> None:
            assert job.conversation is not None
            talk = await store.scoped(Scope.of(job.tenant, None)).get(job.conversation)
            asked = await talk.history(RECENT, roles=["user"])
            for question in asked:
                is_old = question.seq < (job.argument or 0)
                if not is_old and await find_stored_answer(talk, question) is None:
                    answer = await self.start(talk, None, {"question": question})
                    answer.is_background = True
                    await answer.turn()

        return run

    async def _wait(self, seconds: float) -> None:
        tasks = [answer.task for answer in self._running if answer.task is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=seconds)


async def _enqueue(talk: Conversation, question: Turn) -> None:
    """Leave a question to another process."""
    services = services_of(talk).answers.services
    await services.engine.add_job(services.scope, talk.id, ANSWER_JOB, question.seq)
