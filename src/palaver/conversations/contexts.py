"""Contexts of one conversation: options are checked, the context is built, and the work is measured."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

from palaver.context.builder import ContextBuilder
from palaver.context.inputs import Bound, Context
from palaver.context.options import OPTIONS, ContextOptions, Options, parse_options
from palaver.context.tool_rounds import earlier_answers, steps_of
from palaver.conversations.arguments import check_keywords, turn_id
from palaver.conversations.emptiness import EmptyResults
from palaver.conversations.handle import Handle
from palaver.errors import InvalidInput
from palaver.generation.settings import GenerationContext
from palaver.model import READ, SYSTEM, Turn
from palaver.ports.conversation import FileTexts
from palaver.ports.queries import HistoryQuery
from palaver.telemetry import Meter, Telemetry

MAX_STEPS = 200  # turns after a question that are searched for the steps of its answer


@dataclass(frozen=True, slots=True)
class Contexts:
    """Builds contexts. This is the `ContextSource` that `generation` works with."""

    handle: Handle
    builder: ContextBuilder
    files: FileTexts
    generation: GenerationContext
    empties: EmptyResults
    meter: Meter
    telemetry: Telemetry

    async def build_checked(
        self, token_budget: int | None, question: Turn | str | None, options: ContextOptions
    ) -> Context:
        """Build a context from the caller's own options, and the defaults of the conversation, agent and so on."""
        self.handle.require(READ)
        self.handle.require_talk("show to a model")
        check_keywords(options, OPTIONS, "an option of build_context")
        if options.get("instructions") is not None:
            self.handle.require(SYSTEM)
        bound = None
        if question is not None:
            if options.get("message") is not None:
                raise InvalidInput("question", "is a stored message: pass either that or a new message")
            id = turn_id("turn", question)
            turn = await self.handle.engine.turn(self.handle.scope, self.handle.id, id)
            bound = await self.bound_to(turn)
        call: dict[str, Any] = {"token_budget": token_budget, **options}
        parsed = parse_options(**self.generation.context_options(self.handle.info, call, agent=options.get("viewer")))
        return await self.build(await self._with_safe_budget(parsed), bound)

    async def build(self, options: Options, bound: Bound | None = None) -> Context:
        if not options.wants_recall:
            return await self._build_timed(options, bound)
        with self.telemetry.memory("search_memory", self.handle.id) as span:
            context = await self._build_timed(options, bound)
            quoted = [block for block in context.explanation.blocks if block.kind == "recalled"]
            span.set(gen_ai__memory__record__count=sum(len(block.turn_ids) for block in quoted))
            return context

    async def _build_timed(self, options: Options, bound: Bound | None) -> Context:
        began = time.perf_counter()
        context = await self.builder.build(self.handle.scope, self.handle.id, options, bound, self.files)
        self.meter.built(time.perf_counter() - began)
        if context.explanation.empty is not None:
            self.empties.note("context", context.explanation.empty)
        return context

    async def _with_safe_budget(self, options: Options) -> Options:
        """Reduce the budget for a model whose provider counts more tokens than we do."""
        if options.model is None or options.token_budget is None:
            return options
        ratio = await self.generation.token_ratios.ratio(self.handle.scope, options.model)
        return replace(options, token_budget=max(1, int(options.token_budget / ratio)))

    async def bound_to(self, question: Turn, *, with_earlier: bool = False) -> Bound:
        """Return the bound of contexts for `question`, with the steps of its answer so far."""
        query = HistoryQuery(limit=MAX_STEPS, after=question.id)
        following = await self.handle.engine.history(self.handle.scope, self.handle.id, query)
        earlier = earlier_answers(question, following) if with_earlier else frozenset()
        return Bound(turn=question, steps=steps_of(question, following), earlier=earlier)
