"""Retries of a request that fails before any output, each of them recorded."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterable, Coroutine
from dataclasses import dataclass

from palaver.errors import BadModelResponse, ModelUnavailable, RateLimited
from palaver.ports.models import ChatModel, JsonObject, ModelEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often to retry, and how long to wait: twice as long each time, or as long as the service asks for.

    If the service asks for more than `longest` seconds, the request fails at once.
    """

    most: int = 2
    first: float = 0.5
    longest: float = 30.0

    def pause(self, attempt: int, problem: ModelUnavailable) -> float | None:
        """Return the seconds to wait before the next attempt, or None to give up."""
        if attempt >= self.most:
            return None
        requested = problem.retry_after if isinstance(problem, RateLimited) else None
        if requested is not None:
            return requested if requested <= self.longest else None
        return min(self.longest, self.first * float(2**attempt) * random.uniform(0.8, 1.2))


async def stream_with_retries(
    model: ChatModel, body: JsonObject, retries: RetryPolicy, record: list[JsonObject]
) -> AsyncGenerator[ModelEvent]:
    """Yield the events of the first attempt that succeeds. `record` gets an entry for each that failed."""
    attempt = 0
    while True:
        begun = False
        events = _events_of(model, body)
        try:
            async for event in events:
                if not isinstance(event, ModelEvent):  # of a model of the application, which no type checker has read
                    kind = type(event).__name__
                    raise BadModelResponse(model.name, f"yielded {kind} from stream(): text is palaver.TextDelta(…)")
                begun = True
                yield event
            return
        except ModelUnavailable as problem:
            pause = None if begun else retries.pause(attempt, problem)
            if pause is None:
                raise
            record.append({"error": type(problem).__name__, "status": problem.status, "waited": round(pause, 3)})
        finally:
            if isinstance(events, AsyncGenerator):
                await events.aclose()
        await asyncio.sleep(pause)
        attempt += 1


def _events_of(model: ChatModel, body: JsonObject) -> AsyncIterable[ModelEvent]:
    """Send the request. Raises BadModelResponse if `stream` is not an async generator."""
    events: object = model.stream(body)
    if isinstance(events, AsyncIterable):
        return events
    if isinstance(events, Coroutine):
        events.close()  # otherwise Python warns that it was never awaited
    raise BadModelResponse(model.name, "needs a stream() that is an async generator: `async def` with `yield`")
