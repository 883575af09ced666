"""The state that an answer carries from one model call to the next, and the switch that stops it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field, replace

from palaver.context.inputs import Bound
from palaver.generation.events import GenerateEvent
from palaver.model import Turn

Emit = Callable[[GenerateEvent], None]


class StopSwitch:
    """Stops an answer: cancels the part that is running and lets no other start."""

    def __init__(self) -> None:
        self.pressed = False
        self._running: asyncio.Task[object] | None = None

    def press(self) -> None:
        self.pressed = True
        if self._running is not None:
            self._running.cancel()

    async def run(self, work: Coroutine[object, object, object]) -> None:
        """Run a part of the answer. Return early if it is stopped; raise if the whole answer is cancelled."""
        self._running = task = asyncio.create_task(work)
        if self.pressed:
            task.cancel()
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            raise
        finally:
            self._running = None
        if not (task.cancelled() and self.pressed):
            task.result()


@dataclass(slots=True, kw_only=True)
class Progress:
    """The state of one answer.

    `bound` is where its prompts end: at the question, or at the newest turn when there is none. `reasoning` holds the
    model's reasoning before its tool calls, by the id of the first call, because providers want it back with the
    results.
    """

    emit: Emit
    stop: StopSwitch = field(default_factory=StopSwitch)
    question: Turn | None = None
    bound: Bound | None = None
    sources: list[Mapping[str, object]] = field(default_factory=list)
    reasoning: dict[str, tuple[Mapping[str, object], ...]] = field(default_factory=dict)

    def add_steps(self, *turns: Turn) -> None:
        """Let later prompts contain these turns, although they come after the question."""
        if self.bound is not None:
            self.bound = replace(self.bound, steps=self.bound.steps | {turn.id for turn in turns})
