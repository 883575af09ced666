"""One model call: the reply is stored while it arrives, and the call is recorded however it ends."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from palaver.context.render import original_names
from palaver.core.budgets import max_output_of, payer_of
from palaver.core.concurrency import run_uncancelled
from palaver.core.identity import canonical_json
from palaver.core.turn_draft import encode_calls
from palaver.core.validation import MAX_METADATA, replace_unstorable
from palaver.errors import (
    BadModelResponse,
    ContextTooLong,
    EngineError,
    InvalidInput,
    ModelError,
    ModelRefused,
    NotFound,
    PreviousResponseMissing,
)
from palaver.generation.events import TurnOpened
from palaver.generation.plan import AnswerPlan
from palaver.generation.progress import Progress
from palaver.generation.prompt import Prompt
from palaver.generation.tool_round import metadata_of_calls
from palaver.generation.tools import Toolbox
from palaver.model import Request, TokenUsage, ToolCall, Turn
from palaver.models.budgets import PlannedCall, cap_output
from palaver.models.request_log import RequestRecorder
from palaver.models.response_accumulator import STOPPED, ModelResponse
from palaver.models.retry import stream_with_retries
from palaver.ports.conversation import TurnStream
from palaver.ports.models import (
    JsonObject,
    ModelEvent,
    ModelRequest,
    ReasoningDelta,
    TextDelta,
    Thought,
    ToolChoice,
    provider_model,
)

TOOLS_REFUSED = (400, 404, 422)  # statuses of services whose model takes no tools


@dataclass(slots=True)
class ModelAttempt:
    """One request to the model, and its response so far."""

    body: JsonObject
    recorder: RequestRecorder
    events: AsyncGenerator[ModelEvent]
    response: ModelResponse
    _first: asyncio.Task[ModelEvent | None] | None = field(default=None, init=False)

    def start(self) -> None:
        """Send the request and record it, both in the background."""
        self._first = asyncio.create_task(_next_event(self.events))
        self.recorder.start()

    async def consume(self, out: TurnStream, progress: Progress, *, all_events: bool) -> None:
        """Read the whole response: store its text and emit its events."""
        assert self._first is not None
        event = await self._first
        while event is not None:
            self.response.consume(event)
            if isinstance(event, TextDelta):
                event = TextDelta(replace_unstorable(event.text))
                await out.write(event.text)
                progress.emit(event)
            elif isinstance(event, ReasoningDelta) or (isinstance(event, Thought) and all_events):
                progress.emit(event)
            event = await _next_event(self.events)

    async def close(self) -> None:
        """Close the connection, even if the response has not started."""
        if self._first is not None:
            self._first.cancel()
            await asyncio.gather(self._first, return_exceptions=True)
        await self.events.aclose()


async def _next_event(events: AsyncIterator[ModelEvent]) -> ModelEvent | None:
    return await anext(events, None)


class ModelCall:
    """One call of the model, and the turn that its reply becomes."""

    def __init__(self, plan: AnswerPlan, progress: Progress, prompt: Prompt, tool_choice: ToolChoice) -> None:
        self.plan, self.progress, self.prompt, self.tool_choice = plan, progress, prompt, tool_choice
        self.attempt = _make_attempt(plan, progress, prompt, tool_choice, continues=prompt.previous is not None)
        self.turn: Turn | None = None  # the reply, once it is stored

    @property
    def response(self) -> ModelResponse:
        return self.attempt.response

    async def run(self) -> Turn:
        """Store the reply and return its turn. If the call fails, the text so far is stored as an aborted turn.

        Raises BudgetExceeded before anything is sent or stored.
        """
        plan = self.plan
        tokens = math.ceil(self.prompt.counted * self.prompt.ratio)
        call = PlannedCall(plan.model, plan.price, tokens, self.attempt.body)
        payer = payer_of(plan.services.scope, plan.thread.info.owner)
        async with plan.services.budgets.reserved(payer, call, lambda: self.response):
            return await self._run()

    async def _run(self) -> Turn:
        plan, model = self.plan, self.plan.model
        metadata = plan.metadata_for(self.progress.question)
        self.attempt.start()  # before the turn is opened: the model works while the database does
        out = plan.thread.stream(
            "assistant", actor=plan.actor, model=model.name, adapter=model.adapter, metadata=metadata
        )
        try:
            async with out:
                if plan.options.all_events and out.turn is not None:
                    self.progress.emit(TurnOpened(out.turn))
                await self.progress.stop.run(self._read_response(out))
                self._finish_turn(out, metadata)
        except BaseException as problem:
            self.turn = out.turn
            await run_uncancelled(self._record_end(out.turn, problem))
            raise
        self.turn = out.turn
        assert out.turn is not None
        await run_uncancelled(self._record_end(out.turn, None))
        return out.turn

    async def _read_response(self, out: TurnStream) -> None:
        plan = self.plan
        with plan.shared.telemetry.span(
            f"chat {provider_model(plan.model)}",
            kind="client",
            gen_ai__operation__name="chat",
            gen_ai__provider__name=plan.model.provider,
            gen_ai__request__model=provider_model(plan.model),
            gen_ai__conversation__id=plan.thread.id,
        ) as span:
            await self._consume_with_fallback(out)
            span.set(
                gen_ai__response__id=self.response.id,
                gen_ai__response__model=self.response.model,
                gen_ai__usage__input_tokens=self.response.usage.prompt,
                gen_ai__usage__output_tokens=self.response.usage.completion,
                gen_ai__usage__cache_read__input_tokens=self.response.usage.cached,
            )

    async def _consume_with_fallback(self, out: TurnStream) -> None:
        """Read the response. If the provider lost the response to continue from, send the whole context, once.

        A model that refuses the request gets it once more without the tool that nobody asked for.
        """
        all_events = self.plan.options.all_events
        try:
            await self.attempt.consume(out, self.progress, all_events=all_events)
        except (PreviousResponseMissing, ContextTooLong) as problem:
            if self.prompt.previous is None:
                raise
            await self._restart_with_whole_context(problem)
            await self.attempt.consume(out, self.progress, all_events=all_events)
        except ModelRefused as problem:
            if problem.status not in TOOLS_REFUSED or not self._may_drop_tools():
                raise
            await self._restart_without_tools(problem)
            await self.attempt.consume(out, self.progress, all_events=all_events)
            self.plan.shared.without_tools.add(self.plan.model.name)

    async def _restart_with_whole_context(self, problem: ModelError) -> None:
        plan = self.plan
        plan.shared.provider_threads.drop(plan.services.scope.tenant, plan.thread.id)
        await self._restart(problem, continues=False)

    def _may_drop_tools(self) -> bool:
        """Return whether the only tool is one that nobody asked for, and no call of it is in the prompt."""
        has_calls = any("tool_calls" in message for message in self.prompt.messages)
        return self.plan.offers_files and len(self.plan.tool_specs) == 1 and not has_calls

    async def _restart_without_tools(self, problem: ModelError) -> None:
        self.plan = replace(self.plan, toolbox=Toolbox(), offers_files=False)
        await self._restart(problem, continues=self.prompt.previous is not None)

    async def _restart(self, problem: ModelError, *, continues: bool) -> None:
        await self.attempt.recorder.finish(self.response.to_record(problem), None)
        most = max_output_of(self.attempt.body)
        self.attempt = _make_attempt(self.plan, self.progress, self.prompt, self.tool_choice, continues=continues)
        if most is not None:
            cap_output(self.plan.model, self.attempt.body, most)
        self.attempt.start()

    def _finish_turn(self, out: TurnStream, metadata: Mapping[str, object]) -> None:
        """Set the fields that are stored with the end of the reply."""
        plan, progress, response = self.plan, self.progress, self.response
        stopped = progress.stop.pressed
        calls = response.calls if self.tool_choice != "none" and not stopped else []
        if calls:
            _check_calls(plan.model.name, calls)
            metadata = {**metadata, **metadata_of_calls(plan, calls)}
            progress.reasoning[calls[0].id] = tuple(response.reasoning_blocks)
        progress.sources += response.sources
        sources = [] if calls else _remove_duplicates(progress.sources)
        kept = _leading_sources_that_fit(sources)
        if len(kept) < len(sources):
            metadata = {**metadata, "sources_left_out": len(sources) - len(kept)}
        out.finish(
            tokens=TokenUsage(response.usage.prompt, response.usage.completion),
            model=plan.model.name,
            adapter=plan.model.adapter,
            finish_reason=STOPPED if stopped else "tool_calls" if calls else response.reason,
            tool_calls=calls or None,
            sources=kept or None,
            metadata={**metadata, **response.end_metadata, "latency": response.timings()},
        )

    async def _record_end(self, turn: Turn | None, problem: BaseException | None) -> None:
        """Close the connection and record how the call ended."""
        await self.attempt.close()
        self.plan.services.meter.answered(self.response.usage)
        stopped = problem is None and self.progress.stop.pressed
        record = self.response.to_record(problem, stopped=stopped)
        if self.plan.price is not None:
            record["cost"] = self.plan.price.cost(self.response.usage)
        # A busy database or a deleted conversation must neither fail an answer that is stored nor hide why one failed.
        with suppress(EngineError, NotFound):
            await self.attempt.recorder.finish(record, None if turn is None else turn.id)


# ---- the request


def _make_attempt(
    plan: AnswerPlan, progress: Progress, prompt: Prompt, tool_choice: ToolChoice, *, continues: bool
) -> ModelAttempt:
    body = _make_body(plan, progress, prompt, tool_choice, continues)
    response = ModelResponse(names=original_names([spec.name for spec in plan.tool_specs]))
    events = stream_with_retries(plan.model, body, plan.settings.retry_policy, response.retries)
    return ModelAttempt(body, _make_recorder(plan, prompt, body), events, response)


def _make_body(
    plan: AnswerPlan, progress: Progress, prompt: Prompt, tool_choice: ToolChoice, continues: bool
) -> JsonObject:
    return plan.model.body(
        ModelRequest(
            messages=prompt.new if continues else prompt.messages,
            tools=plan.tool_specs,
            tool_choice=tool_choice,
            settings=plan.options.settings,
            stream=plan.options.stream,
            previous_response_id=prompt.previous if continues else None,
            keep=plan.continuity != "off",
            quotes=prompt.quotes,
            stable=0 if continues else prompt.context.stable,
            reasoning={id: blocks for id, blocks in progress.reasoning.items() if blocks},
        )
    )


def _make_recorder(plan: AnswerPlan, prompt: Prompt, body: JsonObject) -> RequestRecorder:
    services = plan.services
    request = Request(
        id=services.ids(),
        conversation=plan.thread.id,
        at=prompt.at,
        model=plan.model.name,
        adapter=plan.model.adapter,
        body=body,
        explanation=_explain(prompt),
        quoted=_turns_quoted_from_elsewhere(prompt, plan.thread.id),
    )
    bodies = plan.settings.request_bodies
    return RequestRecorder(services.engine, services.scope, request, services.redact_record, bodies)


def _explain(prompt: Prompt) -> JsonObject:
    explanation = prompt.context.explanation.to_dict()
    if prompt.counted != prompt.context.tokens:
        explanation["tools_and_history_tokens"] = prompt.counted - prompt.context.tokens
    if prompt.ratio != 1.0:
        explanation["counter_bound"] = round(prompt.ratio, 4)
    return explanation


def _turns_quoted_from_elsewhere(prompt: Prompt, conversation: str) -> tuple[tuple[str, str], ...]:
    """List the turns of other conversations in a prompt, as (conversation, turn): forgetting one empties the record."""
    scores = [score for block in prompt.context.explanation.blocks for score in block.scores]
    quoted = [(score["conversation"], score["turn"]) for score in scores]
    quoted += [(quote.conversation, quote.turn) for quote in prompt.quotes]
    return tuple(one for one in dict.fromkeys(quoted) if one[0] != conversation)


# ---- the reply


def _check_calls(model: str, calls: Sequence[ToolCall]) -> None:
    try:
        encode_calls(calls)
    except InvalidInput as problem:
        raise BadModelResponse(model, f"made calls that cannot be stored ({problem})") from None


def _leading_sources_that_fit(sources: Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
    """Return the leading sources that fit the metadata limit, so that no answer is lost because it has too many."""
    kept, room = [], MAX_METADATA - 2
    for source in sources:
        room -= len(canonical_json(source).encode()) + 1
        if room < 0:
            break
        kept.append(source)
    return kept


def _remove_duplicates(sources: Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
    return list({canonical_json(source): source for source in sources}.values())
