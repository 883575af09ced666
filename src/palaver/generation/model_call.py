"""One call of a model: the reply is stored while it comes, and the call goes on record, however it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from palaver.context.inputs import Context
from palaver.core.concurrency import run_uncancelled
from palaver.core.identity import canonical_json
from palaver.core.turn_draft import encode_calls
from palaver.core.validation import MAX_METADATA, replace_unstorable
from palaver.errors import (
    BadModelResponse,
    ContextTooLong,
    EngineError,
    Gone,
    InvalidInput,
    ModelError,
    NotFound,
    PreviousResponseMissing,
)
from palaver.generation.events import TurnOpened
from palaver.model import Request, TokenUsage, ToolCall, Turn
from palaver.models.request_log import RequestRecorder
from palaver.models.response_accumulator import STOPPED, ModelResponse
from palaver.models.retry import stream_with_retries
from palaver.ports.conversation import TurnStream
from palaver.ports.models import ModelEvent, ModelRequest, Quote, ReasoningDelta, TextDelta, Thought

if TYPE_CHECKING:
    from palaver.generation.run import Generation


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What a round sends: the whole context, or, with the id of the answer to go on from, only what is `new`."""

    context: Context
    at: datetime  # before it was read
    messages: tuple[dict[str, Any], ...]
    counted: int
    previous: str | None = None
    new: tuple[dict[str, Any], ...] = ()
    quotes: tuple[Quote, ...] = ()


class Choice(NamedTuple):
    """Whether the model may call tools, or must: any, or the one of that name."""

    may_call: bool
    must_call: bool | str = False


class ModelAttempt:
    """One request on its way. It is sent at once, while the turn for the reply is still being opened."""

    def __init__(self, generation: Generation, prompt: Prompt, choice: Choice, *, chained: bool) -> None:
        self.body = _body(generation, prompt, choice, chained)
        self.heard = ModelResponse()
        self.tells_all = generation.asked.all_events
        self.recording = _recording(generation, prompt, self.body)
        self.events = stream_with_retries(
            generation.model, self.body, generation.limits.retry_policy, self.heard.retries
        )
        self.first = asyncio.ensure_future(_next(self.events))
        self.recording.start()

    async def hear(self, out: TurnStream, tell: Callable[[Any], None]) -> None:
        """Take in all of the reply."""
        event = await self.first
        while event is not None:
            self.heard.consume(event)
            if isinstance(event, TextDelta):
                event = TextDelta(replace_unstorable(event.text))
                await out.write(event.text)
                tell(event)
            elif isinstance(event, ReasoningDelta) or (isinstance(event, Thought) and self.tells_all):
                tell(event)
            event = await _next(self.events)

    async def hang_up(self) -> None:
        self.first.cancel()
        await asyncio.gather(self.first, return_exceptions=True)
        await self.events.aclose()


async def _next(events: AsyncIterator[ModelEvent]) -> ModelEvent | None:
    return await anext(events, None)


class ModelCall:
    """One question to the model, and the turn that its reply becomes."""

    def __init__(
        self, generation: Generation, prompt: Prompt, may_call: bool, *, must_call: bool | str = False
    ) -> None:
        self.generation, self.prompt, self.may_call = generation, prompt, may_call
        self.choice = Choice(may_call, must_call)
        self.current = ModelAttempt(generation, prompt, self.choice, chained=prompt.previous is not None)
        self.turn: Turn | None = None  # the reply, once it is stored

    @property
    def heard(self) -> ModelResponse:
        return self.current.heard

    async def run(self) -> Turn:
        """The reply, as it is stored. When it fails, what came of it is stored as an aborted turn."""
        generation = self.generation
        metadata = generation.answer_metadata
        name, adapter = generation.model.name, generation.model.adapter
        out = generation.talk.stream(
            "assistant", actor=generation.actor, model=name, adapter=adapter, metadata=metadata
        )
        try:
            async with out:
                if generation.asked.all_events and out.turn is not None:
                    generation.tell(TurnOpened(out.turn))
                await generation.interruptible(self._listen(out))
                self._finish(out, metadata)
        except BaseException as problem:  # passed on; the call is on record, however it ended
            self.turn = out.turn
            await run_uncancelled(self._end(out.turn, problem))
            raise
        self.turn = out.turn
        assert out.turn is not None
        await run_uncancelled(self._end(out.turn, None))
        return out.turn

    async def _listen(self, out: TurnStream) -> None:
        """An answer that the service has lost is asked for again, once, with all of the context."""
        generation = self.generation
        with generation.shared.telemetry.span(
            f"chat {generation.model.name}",
            client=True,
            gen_ai__operation__name="chat",
            gen_ai__provider__name=generation.model.provider,
            gen_ai__request__model=generation.model.name,
            gen_ai__conversation__id=generation.talk.id,
        ) as span:
            try:
                await self.current.hear(out, generation.tell)
            except (PreviousResponseMissing, ContextTooLong) as problem:
                if self.prompt.previous is None:
                    raise
                await self._start_afresh(problem)
                await self.current.hear(out, generation.tell)
            span.set(
                gen_ai__response__id=self.heard.id,
                gen_ai__response__model=self.heard.model,
                gen_ai__usage__input_tokens=self.heard.usage.prompt,
                gen_ai__usage__output_tokens=self.heard.usage.completion,
                gen_ai__usage__cache_read__input_tokens=self.heard.usage.cached,
            )

    async def _start_afresh(self, problem: ModelError) -> None:
        generation = self.generation
        generation.shared.provider_threads.drop(generation.services.scope.tenant, generation.talk.id)
        await self.current.recording.finish(self.heard.to_record(problem), None)
        self.current = ModelAttempt(generation, self.prompt, self.choice, chained=False)

    def _finish(self, out: TurnStream, metadata: dict[str, Any]) -> None:
        """What is stored with the end of the reply."""
        generation, heard = self.generation, self.heard
        calls = heard.calls if self.may_call and not generation.stopped else []
        if calls:
            _check_calls(generation.model.name, calls)
            metadata = {**metadata, **generation.running(calls)}
            generation.thoughts[calls[0].id] = tuple(heard.thoughts)
        generation.sources += heard.sources
        sources = [] if calls else _distinct(generation.sources)
        kept = _fitting(sources)
        if len(kept) < len(sources):
            metadata = {**metadata, "sources_left_out": len(sources) - len(kept)}
        out.finish(
            tokens=TokenUsage(heard.usage.prompt, heard.usage.completion),
            model=generation.model.name,
            adapter=generation.model.adapter,
            finish_reason=STOPPED if generation.stopped else "tool_calls" if calls else heard.reason,
            tool_calls=calls or None,
            sources=kept or None,
            metadata={**metadata, **heard.marks, "latency": heard.timings()},
        )

    async def _end(self, turn: Turn | None, problem: BaseException | None) -> None:
        """Close the connection, and put the call on record."""
        await self.current.hang_up()
        self.generation.services.meter.answered(self.heard.usage)
        response = self.heard.to_record(problem, stopped=problem is None and self.generation.stopped)
        if self.generation.price is not None:
            response["cost"] = self.generation.price.cost(self.heard.usage)
        # The answer counts, not its record: a database that is busy, or a conversation that is gone, is no reason to
        # fail an answer that is stored, nor to hide why one failed.
        with suppress(EngineError, Gone, NotFound):
            await self.current.recording.finish(response, None if turn is None else turn.id)


def _body(generation: Generation, prompt: Prompt, choice: Choice, chained: bool) -> dict[str, Any]:
    return generation.model.body(
        ModelRequest(
            messages=prompt.new if chained else prompt.messages,
            tools=generation.specs,
            may_call=choice.may_call,
            must_call=choice.must_call,
            settings=generation.asked.settings,
            stream=generation.asked.stream,
            previous_response_id=prompt.previous if chained else None,
            keep=generation.continuity != "off",
            quotes=prompt.quotes,
            stable=0 if chained else prompt.context.stable,
            thoughts={id: blocks for id, blocks in generation.thoughts.items() if blocks},
        )
    )


def _recording(generation: Generation, prompt: Prompt, body: dict[str, Any]) -> RequestRecorder:
    services, talk = generation.services, generation.talk
    explanation = prompt.context.explanation.to_dict()
    if prompt.counted != prompt.context.tokens:
        explanation["tools_and_history_tokens"] = prompt.counted - prompt.context.tokens
    if generation.ratio != 1.0:
        explanation["counter_bound"] = round(generation.ratio, 4)
    request = Request(
        id=services.ids(),
        conversation=talk.id,
        at=prompt.at,
        model=generation.model.name,
        adapter=generation.model.adapter,
        body=body,
        explanation=explanation,
        quoted=_quoted_elsewhere(prompt, talk.id),
    )
    bodies = generation.limits.request_bodies
    return RequestRecorder(services.engine, services.scope, request, services.redact_record, bodies)


def _quoted_elsewhere(prompt: Prompt, conversation: str) -> tuple[tuple[str, str], ...]:
    scores = [score for block in prompt.context.explanation.blocks for score in block.scores]
    found = [(score["conversation"], score["turn"]) for score in scores]
    found += [(quote.conversation, quote.turn) for quote in prompt.quotes]
    return tuple(one for one in dict.fromkeys(found) if one[0] != conversation)


def _check_calls(model: str, calls: Sequence[ToolCall]) -> None:
    try:
        encode_calls(calls)
    except InvalidInput as problem:
        raise BadModelResponse(model, f"made calls that cannot be stored ({problem})") from None


def _fitting(sources: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The first ones that a turn can hold: an answer is not lost because it rests on so much."""
    kept, room = [], MAX_METADATA - 2
    for one in sources:
        room -= len(canonical_json(one).encode()) + 1
        if room < 0:
            break
        kept.append(one)
    return kept


def _distinct(sources: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return list({canonical_json(one): one for one in sources}.values())
