"""One answer: the question is stored, the context built, the model asked, the reply stored while it streams, tools run.

A `Generation` runs in a task of its own and tells what happens as events. Nothing is lost on the way: the question is
on disk before the model is asked, the reply while it comes, tool calls before they run. A stop keeps what came, as an
answer with the finish reason "stopped"; an error or a cancellation leaves it as an aborted turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from palaver.context.builder import parse_options
from palaver.context.client_history import ClientHistory, read_client_history
from palaver.context.inputs import Bound, Context
from palaver.context.options import OVERHEAD_TOKENS, policy_named
from palaver.context.render import prepend
from palaver.core.concurrency import run_uncancelled
from palaver.core.identity import canonical_json
from palaver.core.process_identity import is_gone, this_process
from palaver.errors import AppendConflict, BudgetTooSmall, InvalidInput, TurnSuperseded
from palaver.generation.builtin_tools import built_in
from palaver.generation.events import Answered, GenerateEvent, MessageStored, Prompted, ToolDone, ToolsPlanned
from palaver.generation.model_call import ModelCall, Prompt
from palaver.generation.options import GenerateOptions
from palaver.generation.provider_thread import Continuity, ProviderThread, only_new, still_holds
from palaver.generation.services import GenerationServices
from palaver.generation.settings import Agent, GenerationContext
from palaver.generation.tools import CallOutcome, Toolbox, shortened, text_of
from palaver.model import ToolCall, ToolResult, Turn
from palaver.models.context_windows import default_budget
from palaver.models.response_accumulator import STOPPED, ModelResponse
from palaver.models.tokens import counter_for
from palaver.ports.conversation import Thread
from palaver.ports.models import ChatModel, Quote, ToolSpec

INTERRUPTED = "This call was cut off: the program that ran it ended before there was a result. It was not run again."
STOPPED_CALL = "This call was stopped by the user before there was a result."
CANCELLED_CALL = "This call was cancelled before there was a result. It was not run again."
SLACK = 5.0  # seconds between the last moment of a tool round and taking it for dead
HISTORY_SHARE = 3  # a history that is handed in takes a third of the budget at most
QUOTED_HITS = 40
CLIENT_CALLS = "client_calls"  # in the metadata of a turn: the ids of its calls that the client runs
TEACHING_SHARE = 4  # a prompt that takes a quarter of its budget says something about counting


class Generation:
    """One answer in the making. Iterate over `events()` once; `stop()` ends it early."""

    def __init__(self, talk: Thread, services: GenerationServices, asked: GenerateOptions) -> None:
        self.talk, self.services, self.asked = talk, services, asked
        self.shared: GenerationContext = services.talking
        self.limits = self.shared.settings
        self.agent = self._agent()
        chosen = self.shared.models.choose(talk.info, call=asked.model, agent=asked.agent)
        self.model: ChatModel = self.shared.models.chat(chosen)
        self.price = self.shared.models.price(chosen)
        self.actor = asked.agent or talk.info.agent or "assistant"
        self.instructions = asked.instructions or self.agent.instructions or self.limits.instructions
        self.toolbox = self._toolbox()
        self.continuity: Continuity = (asked.continuity or self.limits.continuity) if self.model.remembers else "off"
        self.question: Turn | None = None
        self.bound: Bound | None = None
        self.history = ClientHistory()
        self.sources: list[Mapping[str, Any]] = []
        self.thoughts: dict[str, tuple[Mapping[str, Any], ...]] = {id: tuple(t) for id, t in asked.reasoning.items()}
        self.ratio = 1.0
        self.stopped = False
        self._phase: asyncio.Task[None] | None = None
        self._events: asyncio.Queue[GenerateEvent | None] = asyncio.Queue()

    def _agent(self) -> Agent:
        name = self.asked.agent or self.talk.info.agent or ""
        if self.asked.agent is not None and self.asked.agent not in self.shared.agents:
            raise InvalidInput("agent", f"{name!r} is not one of agents=: {', '.join(self.shared.agents) or 'none'}")
        return self.shared.agents.get(name, Agent())

    def _toolbox(self) -> Toolbox:
        given = self.asked.tools
        chosen = (self.agent.tools or self.limits.tools) if given is None else given
        box = Toolbox.of(chosen, built_in(self.talk, self.services.search)) if chosen else Toolbox()
        return box.without(self.client_names)

    @property
    def client_names(self) -> frozenset[str]:
        """Tools that the client runs itself; its own come before ours of the same name."""
        return frozenset(one.name for one in self.asked.client_tools)

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        return (*self.toolbox.specs, *self.asked.client_tools)

    # ---- running and stopping

    async def events(self) -> AsyncGenerator[GenerateEvent]:
        """Leaving the loop early is pressing stop; cancelling the task that is in it is giving up."""
        place = (self.services.scope.tenant, self.talk.id)
        work = asyncio.create_task(self._run(), name="palaver-generate")
        self.shared.started(place, self)
        try:
            while (event := await self._events.get()) is not None:
                yield event
            await work
        except GeneratorExit:
            self.stop()
            await work
            raise
        except asyncio.CancelledError:
            work.cancel()
            await asyncio.gather(work, return_exceptions=True)
            raise
        finally:
            self.shared.ended(place, self)

    def tell(self, event: GenerateEvent) -> None:
        self._events.put_nowait(event)

    def stop(self) -> None:
        """Keep what came. A model that is still talking is hung up on; tools that are running are cut off."""
        self.stopped = True
        if self._phase is not None:
            self._phase.cancel()

    async def interruptible(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run a part that a stop may cut short."""
        self._phase = phase = asyncio.create_task(work)
        if self.stopped:
            phase.cancel()
        try:
            await asyncio.wait([phase])
        except asyncio.CancelledError:  # this whole answer is given up
            phase.cancel()
            await asyncio.gather(phase, return_exceptions=True)
            raise
        finally:
            self._phase = None
        if not (phase.cancelled() and self.stopped):
            phase.result()

    async def _run(self) -> None:
        try:
            async with AsyncExitStack() as stack:
                key = self.asked.idempotency_key
                if key is not None:
                    lock = self.shared.lock(self.services.scope.tenant, self.talk.id, key)
                    await stack.enter_async_context(lock)
                self.tell(Answered(await self._answer()))
        finally:
            self._events.put_nowait(None)

    async def _answer(self) -> Turn:
        latest = await self._mend()
        await self._ask_question()
        self.bound = await self._bound(latest)
        stored = await self._stored_answer()
        if stored is not None:
            return stored
        self.ratio = await self.shared.token_ratios.ratio(self.services.scope, self.model.name)
        newest, number = self.question, 0
        while not self.stopped:
            prompt = await self._prompt(newest)
            if self.asked.all_events and not number:
                self.tell(Prompted(prompt.context))
            may_call = self.asked.may_call and number < self.limits.tool_rounds
            round_ = ModelCall(self, prompt, may_call, must_call=not number and self.asked.must_call)
            try:
                turn = await round_.run()
                await self._learn(prompt, round_, newest, turn)
                if not number:
                    await self._plan_title(prompt.context)
            except asyncio.CancelledError:
                await self._end_calls(round_.turn)
                raise
            if not turn.tool_calls:
                return turn
            newest = await self._run_tools(turn)
            if newest is None or client_calls(turn):
                return turn
            number += 1
        return await self._nothing_said()

    async def _nothing_said(self) -> Turn:
        """The answer when a stop came before the model was asked."""
        answers = self.answer_metadata
        fields: dict[str, Any] = {"model": self.model.name, "adapter": self.model.adapter, "finish_reason": STOPPED}
        return await self.talk.append("assistant", "", actor=self.actor, metadata=answers, **fields)

    @property
    def answer_metadata(self) -> dict[str, Any]:
        answers = {} if self.question is None else {"answers": self.question.id}
        return {**self.asked.answer_metadata, **answers}

    # ---- the question

    async def _mend(self) -> Turn | None:
        """Give a tool round that a crash has cut off its end, so that everybody can see it, the model included.

        Returns the latest turn.
        """
        found: list[Turn] = await self.talk.history(1)
        latest = found[0] if found else None
        if latest is None or not latest.tool_calls or not is_dead(latest, self.services.clock.now()):
            return latest
        results = [ToolResult(call.id, INTERRUPTED, True) for call in server_calls(latest)]
        with suppress(AppendConflict):  # somebody else was faster
            return await self.talk.append(
                "tool", "", tool_results=results, metadata={"interrupted": True}, expected_seq=latest.seq + 1
            )
        return latest

    async def _bound(self, latest: Turn | None) -> Bound | None:
        """What the prompts of this answer end with: its question, or the thread as it stands now."""
        if self.question is None:
            return None if latest is None else Bound(turn=latest, is_question=False)
        is_last = self.asked.question is None or (latest is not None and latest.id == self.question.id)
        steps = frozenset() if is_last else await self.services.contexts.steps_of(self.question)
        return Bound(turn=self.question, steps=steps)

    def _add_steps(self, *turns: Turn) -> None:
        if self.bound is not None:
            self.bound = replace(self.bound, steps=self.bound.steps | {turn.id for turn in turns})

    async def _ask_question(self) -> None:
        asked = self.asked
        if asked.message is not None:
            await self._store_question(asked)
        else:
            self.question = asked.question
        if asked.history and self.question is not None:
            await self._take_history(self.question.text, asked.history)

    async def _store_question(self, asked: GenerateOptions) -> None:
        fields: dict[str, Any] = {"actor": asked.actor} if asked.actor else {}
        self.question = await self.talk.append(
            "user",
            asked.message,
            replaces=asked.replaces,
            discard_after=asked.replaces is not None,
            attachments=tuple(asked.attachments),
            metadata=asked.metadata,
            idempotency_key=asked.idempotency_key,
            **fields,
        )
        if not self.question.active:
            raise TurnSuperseded(self.question.id, by=self.question.superseded_by)
        self.tell(MessageStored(self.question))

    async def _take_history(self, current: str, history: Any) -> None:
        stored: list[Turn] = await self.talk.history(2 * self.limits.history_messages + 1)
        known = [(turn.role, turn.text) for turn in stored]
        self.history = read_client_history(history, current=current, known=known, most=self.limits.history_messages)

    async def _stored_answer(self) -> Turn | None:
        """What an earlier call with the same idempotency key was answered."""
        if self.asked.idempotency_key is None or self.question is None:
            return None
        following: list[Turn] = await self.talk.history(200, after=self.question)
        return next((turn for turn in following if _answers(turn, self.question)), None)

    # ---- the prompt

    async def _prompt(self, newest: Turn | None) -> Prompt:
        at = self.services.clock.now()
        budget, extra, options = self._budget()
        context = await self.services.contexts.build(
            parse_options(
                **options,
                **self.asked.context,
                instructions=self.instructions,
                viewer=self.asked.agent,
                filter_participants=self.agent.sees,
                model=self.model.name,
            ),
            self.bound,
        )
        messages = tuple([await self._with_images(message) for message in self._with_history(context)])
        prompt = Prompt(
            context=context,
            at=at,
            messages=messages,
            counted=context.tokens + extra,
            quotes=await self._quotes(),
        )
        return self._chained(prompt, newest, budget)

    def _budget(self) -> tuple[int, int, dict[str, Any]]:
        """The budget of the whole prompt, what of it tools and a handed-in history take, and options for the rest."""
        if self._counts_characters():
            return 2**31, 0, {}
        budget = self.asked.token_budget or self.limits.token_budget or default_budget(self.model.window)
        specs = [canonical_json([one.name, one.description, dict(one.parameters)]) for one in self.specs]
        while self.history.messages and self._weight([self.history.text]) > budget // HISTORY_SHARE:
            self.history = self.history.without_oldest()
        extra = self._weight([*specs, self.history.text])
        left = int(budget / self.ratio) - extra
        if left < 1:
            raise BudgetTooSmall("what the tools say of themselves", needed=extra, budget=budget, unit="tokens")
        return budget, extra, {"token_budget": left}

    def _counts_characters(self) -> bool:
        """Whether the budget is in characters: asked for, or the policy's own."""
        options = self.asked.context
        policy = policy_named(options.get("policy", "balanced"))
        by_policy = policy.char_budget is not None and self.asked.token_budget is None
        return options.get("char_budget") is not None or by_policy

    def _weight(self, texts: Sequence[str]) -> int:
        count = counter_for(self.model.name)
        return sum(count(text) + OVERHEAD_TOKENS for text in texts if text)

    def _with_history(self, context: Context) -> list[dict[str, Any]]:
        """What the client remembers stands at the head of the current message, quoted."""
        messages = list(context.messages)
        text, place = self.history.text, context.stable
        if text and place < len(messages):
            messages[place] = prepend(messages[place], text)
        return messages

    async def _with_images(self, message: dict[str, Any]) -> dict[str, Any]:
        """An image that is stored here is sent as a data: URL."""
        if isinstance(message["content"], str):
            return message
        parts = [
            {**part, "url": await self.talk.data_url(part["attachment"])}
            if part["type"] == "image" and part.get("attachment") and not part.get("url")
            else part
            for part in message["content"]
        ]
        return {**message, "content": parts}

    async def _quotes(self) -> tuple[Quote, ...]:
        """For a model that answers with quotations: the turns that fit the question best, without the question."""
        text = self.question.text if self.question is not None else ""
        if not getattr(self.model, "quotes", False) or not text.strip():
            return ()
        from palaver.models.offline.chat import quotes_of

        hits = await self.talk.recall(text, QUOTED_HITS, include_facts=False)
        assert self.question is not None
        assert self.bound is not None
        before = [hit for hit in hits if hit.turn is not None and not self.bound.excludes(hit.turn)]
        return quotes_of(text, [hit for hit in before if hit.turn is not None and hit.turn.id != self.question.id])

    # ---- going on from the provider's own memory

    def _chained(self, prompt: Prompt, newest: Turn | None, budget: int) -> Prompt:
        """The prompt with the answer to go on from, where there is one."""
        if self.continuity == "off" or newest is None:
            return prompt
        link = self.shared.provider_threads.get(self.services.scope.tenant, self.talk.id, self.actor)
        if link is None or not still_holds(link, self.model, newest, prompt.context, self.instructions, budget):
            return prompt
        if self.continuity == "with-history":
            return replace(prompt, previous=link.response_id, new=prompt.messages)
        context = replace(prompt.context, messages=list(prompt.messages))
        new = only_new(context, newest, self.instructions)
        return prompt if new is None else replace(prompt, previous=link.response_id, new=new)

    async def _learn(self, prompt: Prompt, round_: ModelCall, newest: Turn | None, turn: Turn) -> None:
        """What a reply teaches: how the provider counts, and where to go on from."""
        heard = round_.heard
        if heard.usage.prompt is not None and self._can_teach(prompt, round_):
            await self.shared.token_ratios.learn(
                self.services.scope, self.model.name, counted=prompt.counted, reported=heard.usage.prompt
            )
        # Where somebody spoke in between, the provider has not heard all that the next prompt must hold.
        is_next = newest is None or turn.seq == newest.seq + 1
        if self.continuity != "off" and heard.id is not None and not self.stopped and is_next:
            link = self._link(prompt, heard, heard.id, turn)
            self.shared.provider_threads.put(self.services.scope.tenant, self.talk.id, self.actor, link)

    def _can_teach(self, prompt: Prompt, round_: ModelCall) -> bool:
        """Whether the provider counted what we counted. A prompt that is far from its budget teaches nothing: what a
        provider adds to each would distort the ratio, and only near the budget does it matter."""
        same = "previous_response_id" not in round_.current.body and not _has_images(prompt.messages)
        near = prompt.counted * TEACHING_SHARE >= prompt.context.explanation.budget
        return same and near and not self._counts_characters()

    def _link(self, prompt: Prompt, heard: ModelResponse, id: str, turn: Turn) -> ProviderThread:
        return ProviderThread(
            response_id=id,
            model=self.model.name,
            project=self.model.project,
            turn=turn.id,
            seq=turn.seq,
            slot=turn.slot or turn.id,
            revision=prompt.context.revision,
            prompt_tokens=heard.usage.prompt or 0,
            asker=self.question.actor if self.question else None,
            instructions=self.instructions,
        )

    # ---- tools

    def running(self, calls: Sequence[ToolCall]) -> dict[str, Any]:
        """What a round of these calls carries along: which of them the client runs; for the others until when they run
        at most, and where. One without results after that, or whose process is gone, was cut off."""
        theirs = [call.id for call in calls if call.name in self.client_names]
        ours = [call for call in calls if call.name not in self.client_names]
        return {**({CLIENT_CALLS: theirs} if theirs else {}), **(self._leased(ours) if ours else {})}

    def _leased(self, calls: Sequence[ToolCall]) -> dict[str, str]:
        longest = timedelta(seconds=self.toolbox.longest(calls, self.limits.tool_timeout) + SLACK)
        return {"tools_until": (self.services.clock.now() + longest).isoformat(), "tools_in": this_process()}

    async def _run_tools(self, turn: Turn) -> Turn | None:
        """Announce the calls that run here, run them, and store their results right behind them."""
        calls = server_calls(turn)
        if not calls:
            return None
        self.tell(ToolsPlanned(turn, calls))
        done: dict[str, CallOutcome] = {}

        def finished(ran: CallOutcome) -> None:
            done[ran.call.id] = ran
            self.tell(ToolDone(ran.call, ran.content, ran.is_error))

        try:
            await self._run_calls(calls, finished)
        except asyncio.CancelledError:
            await run_uncancelled(self._keep_results(turn, done, CANCELLED_CALL))
            raise
        return await run_uncancelled(self._keep_results(turn, done, STOPPED_CALL))

    async def _end_calls(self, turn: Turn | None) -> None:
        """Calls that are stored, and will not run: this answer was given up."""
        if turn is not None and server_calls(turn):
            await run_uncancelled(self._keep_results(turn, {}, CANCELLED_CALL))

    async def _run_calls(self, calls: Sequence[ToolCall], finished: Callable[[CallOutcome], None]) -> None:
        names = sorted({call.name for call in calls})
        with self.shared.telemetry.span(
            f"execute_tool {' '.join(names)}"[:200],
            gen_ai__operation__name="execute_tool",
            gen_ai__conversation__id=self.talk.id,
        ):
            await self.interruptible(self.toolbox.run(calls, self.limits.tool_timeout, finished))

    async def _keep_results(self, turn: Turn, done: Mapping[str, CallOutcome], otherwise: str) -> Turn:
        """Store what the calls gave, and `otherwise` for those that were cut short."""
        results, files = [], []
        for call in server_calls(turn):
            ran = done.get(call.id) or CallOutcome(call, otherwise, True)
            result, whole = await self._result(ran)
            results.append(result)
            files += whole
            self.sources += ran.sources
        return await self._store_results(turn, {"tool_results": results, "attachments": tuple(files)})

    async def _result(self, ran: CallOutcome) -> tuple[ToolResult, list[Any]]:
        """What the model gets of a result, and the whole of it as a file where that is more."""
        text = text_of(ran.content)
        if len(text) <= self.limits.tool_characters:
            return ToolResult(ran.call.id, ran.content, ran.is_error), []
        text = self.services.redact_content(text)
        whole = await self.talk.attach(text.encode(), filename=f"{ran.call.name}.txt", media_type="text/plain")
        cut = shortened(text, self.limits.tool_characters, f", all of them in attachment {whole.id}")
        return ToolResult(ran.call.id, cut, ran.is_error), [whole]

    async def _store_results(self, turn: Turn, fields: dict[str, Any]) -> Turn:
        try:
            stored: Turn = await self.talk.append("tool", "", expected_seq=turn.seq + 1, **fields)
            self._add_steps(turn, stored)
            return stored
        except AppendConflict:
            # Somebody spoke meanwhile. A result must stand right behind its call, so both are said again.
            metadata = {**turn.metadata, "repeats": turn.id}
            calls = {"role": "assistant", "actor": self.actor, "tool_calls": turn.tool_calls, "metadata": metadata}
            again, stored = await self.talk.append_many([calls, {"role": "tool", **fields}])
            self._add_steps(again, stored)
            return stored

    async def _plan_title(self, context: Context) -> None:
        """After the first exchange, a job writes a title; unless somebody has given one."""
        first = self.question is not None and context.explanation.turns_total <= 2
        if first and self.limits.titles and self.talk.info.title is None:
            await self.services.engine.add_job(self.services.scope, self.talk.id, "title", None)


def client_calls(turn: Turn) -> tuple[ToolCall, ...]:
    """The calls of a turn that its client runs."""
    theirs = turn.metadata.get(CLIENT_CALLS, ())
    return tuple(call for call in turn.tool_calls if call.id in theirs)


def server_calls(turn: Turn) -> tuple[ToolCall, ...]:
    theirs = turn.metadata.get(CLIENT_CALLS, ())
    return tuple(call for call in turn.tool_calls if call.id not in theirs)


def _answers(turn: Turn, question: Turn) -> bool:
    """Whether a turn is the answer to a question, and not a step on the way to it; calls for the client are one."""
    is_reply = turn.role == "assistant" and turn.status == "complete" and (not turn.tool_calls or client_calls(turn))
    return bool(is_reply) and turn.metadata.get("answers") == question.id


def is_dead(turn: Turn, now: datetime) -> bool:
    """Whether the one who ran these calls must be gone: its process is, or the last moment that it allowed itself."""
    until, process = turn.metadata.get("tools_until"), turn.metadata.get("tools_in")
    try:
        is_over = isinstance(until, str) and datetime.fromisoformat(until) < now
    except (ValueError, TypeError):
        is_over = False
    return is_over or (isinstance(process, str) and is_gone(process))


def _has_images(messages: Sequence[Mapping[str, Any]]) -> bool:
    return any(not isinstance(message["content"], str) for message in messages)
