"""Contexts of one conversation: options are checked, the context is built, and the work is measured."""

from __future__ import annotations

import time
from dataclasses import dataclass

from palaver.context.builder import ContextBuilder
from palaver.context.inputs import Bound, Context
from palaver.context.options import Options
from palaver.context.tool_rounds import steps_of
from palaver.model import Scope, Turn
from palaver.ports.engine import Engine
from palaver.ports.queries import HistoryQuery
from palaver.telemetry import Meter, Telemetry

STEPS_AMONG = 200  # turns after a question that are searched for the steps of its answer


@dataclass(frozen=True, slots=True)
class Contexts:
    """Builds contexts. This is the `ContextSource` that `generation` works with."""

    engine: Engine
    scope: Scope
    conversation: str
    builder: ContextBuilder
    meter: Meter
    telemetry: Telemetry

    async def build(self, options: Options, bound: Bound | None = None) -> Context:
        if not options.wants_recall:
            return await self._build_measured(options, bound)
        with self.telemetry.memory("search_memory", self.conversation) as span:
            context = await self._build_measured(options, bound)
            quoted = [block for block in context.explanation.blocks if block.kind == "recalled"]
            span.set(gen_ai__memory__record__count=sum(len(block.turn_ids) for block in quoted))
            return context

    async def _build_measured(self, options: Options, bound: Bound | None) -> Context:
        began = time.perf_counter()
        context = await self.builder.build(self.scope, self.conversation, options, bound)
        self.meter.built(time.perf_counter() - began)
        return context

    async def steps_of(self, question: Turn) -> frozenset[str]:
        """Return the ids of the turns after `question` that are steps of its answer: tool calls and their results."""
        following = await self.engine.history(
            self.scope, self.conversation, HistoryQuery(limit=STEPS_AMONG, after=question.id)
        )
        return steps_of(question, following)
