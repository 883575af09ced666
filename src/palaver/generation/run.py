"""An answer from the question to the last turn: build a prompt, call the model, run its tools, repeat.

A `Generation` runs in a task of its own and emits events. Nothing is lost on the way: the question is on disk before
the model is called, the reply while it arrives, tool calls before they run. A stop keeps the text so far, as an answer
with the finish reason "stopped"; an error or a cancellation leaves it as an aborted turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack

from palaver.context.client_history import ClientHistory
from palaver.context.inputs import Context
from palaver.generation.answer_place import AnswerPlace
from palaver.generation.continuation import continue_thread, remember_response
from palaver.generation.events import Answered, GenerateEvent, MessageStored, Prompted
from palaver.generation.model_call import ModelCall
from palaver.generation.options import GenerateArguments
from palaver.generation.plan import check_budgets, offer_file_tool, plan_answer
from palaver.generation.progress import Progress
from palaver.generation.prompt import Prompt, build_prompt, can_teach_ratio
from palaver.generation.question import (
    close_interrupted_tool_round,
    find_bound,
    find_stored_answer,
    newest_turn,
    read_history,
    store_question,
)
from palaver.generation.services import GenerationServices
from palaver.generation.tool_calls import client_calls
from palaver.generation.tool_round import cancel_calls, run_tools
from palaver.model import Turn
from palaver.models.response_accumulator import STOPPED
from palaver.ports.conversation import Thread
from palaver.ports.models import ToolChoice


class Generation:
    """One answer in progress. Iterate over `events()` once; `stop()` ends it early."""

    def __init__(self, thread: Thread, services: GenerationServices, options: GenerateArguments) -> None:
        self._plan = plan_answer(thread, services, options)
        self._events: asyncio.Queue[GenerateEvent | None] = asyncio.Queue()
        reasoning = {id: tuple(blocks) for id, blocks in options.reasoning.items()}
        self._work: asyncio.Task[None] | None = None
        self._progress = Progress(emit=self._events.put_nowait, reasoning=reasoning)

    async def events(self) -> AsyncGenerator[GenerateEvent]:
        """Run the answer and yield its events. Leaving the loop early stops it; cancelling the task cancels it."""
        shared, place = self._plan.shared, (self._plan.services.scope.tenant, self._plan.thread.id)
        work = self._work = asyncio.create_task(self._run(), name="palaver-generate")
        shared.add_running(place, self)
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
            shared.remove_running(place, self)

    def stop(self) -> None:
        """Close the model's stream and cancel running tools. The text so far is kept."""
        self._progress.stop.press()

    async def finish(self) -> None:
        """Stop, and wait until the text so far is stored."""
        self.stop()
        if self._work is not None:
            await asyncio.wait([self._work])

    async def _run(self) -> None:
        plan = self._plan
        try:
            async with AsyncExitStack() as stack:
                key = plan.options.idempotency_key
                if key is not None:
                    lock = plan.shared.lock(plan.services.scope.tenant, plan.thread.id, key)
                    await stack.enter_async_context(lock)
                place = plan.options.place or AnswerPlace(plan.thread.info, plan.services)
                stack.push_async_callback(place.leave)
                turn = await self._answer(place)
                await (
                    place.leave()
                )  # before the caller learns of the answer: the next question must find the place free
                self._progress.emit(Answered(turn))
        finally:
            self._events.put_nowait(None)

    async def _answer(self, place: AnswerPlace) -> Turn:
        plan, progress = self._plan, self._progress
        latest = await close_interrupted_tool_round(plan.thread, plan.services.clock.now())
        is_new = plan.options.message is not None or plan.options.place is not None
        if is_new and plan.options.idempotency_key is None:  # a repeated question gets the answer that it has
            await check_budgets(plan)
        if is_new:
            await place.reserve()
        history = await self._ask_question()
        newest = progress.question or latest
        await progress.stop.run(place.wait(newest.seq if newest is not None else 0))
        waited = place.is_queued and (is_new or place.is_behind_others)
        if waited and progress.question is None:
            latest = await newest_turn(plan.thread)
        progress.bound = await find_bound(plan.services.contexts, progress.question, latest, waited=waited)
        if plan.options.idempotency_key is not None and progress.question is not None:
            stored = await find_stored_answer(plan.thread, progress.question)
            if stored is not None:
                return stored
        return await self._run_rounds(history)

    async def _ask_question(self) -> ClientHistory:
        """Store the question, or take the stored one; return the history that the client sent with it."""
        plan, options = self._plan, self._plan.options
        question = options.question
        if options.message is not None:
            question = await store_question(plan.thread, options)
            self._progress.emit(MessageStored(question))
        elif question is not None and not isinstance(question, Turn):
            question = await plan.thread.turn(question)
        self._progress.question = question
        if question is None or not options.history:
            return ClientHistory()
        return await read_history(plan.thread, options, question, plan.settings.history_messages)

    async def _run_rounds(self, history: ClientHistory) -> Turn:
        """Call the model, and run its tools, until a reply has no calls left for the server."""
        plan = self._plan = await offer_file_tool(self._plan)
        progress = self._progress
        ratio = await plan.shared.token_ratios.ratio(plan.services.scope, plan.model.name)
        newest, number = progress.question, 0
        while not progress.stop.pressed:
            prompt = continue_thread(plan, await build_prompt(plan, progress, history, ratio), newest)
            turn = await self._run_round(prompt, newest, number)
            if not turn.tool_calls:
                return turn
            newest = await run_tools(plan, progress, turn)
            if newest is None or client_calls(turn):
                return turn
            number += 1
        return await self._store_empty_answer()

    def _tool_choice(self, number: int) -> ToolChoice:
        """Return the choice for a round: a call can be required in the first one only, and the last one allows none."""
        choice = self._plan.options.tool_choice
        if choice == "none" or number >= self._plan.settings.tool_rounds:
            return "none"
        return "auto" if number else choice

    async def _run_round(self, prompt: Prompt, newest: Turn | None, number: int) -> Turn:
        plan, progress = self._plan, self._progress
        if plan.options.all_events and not number:
            progress.emit(Prompted(prompt.context, prompt.cleared))
        call = ModelCall(plan, progress, prompt, self._tool_choice(number))
        try:
            turn = await call.run()
            await self._learn(call, newest, turn)
            if not number:
                await self._plan_title(prompt.context)
        except asyncio.CancelledError:
            await cancel_calls(plan, progress, call.turn)
            raise
        return turn

    async def _learn(self, call: ModelCall, newest: Turn | None, turn: Turn) -> None:
        """Learn from a reply how the provider counts tokens, and which response to continue from."""
        plan, prompt, response = self._plan, call.prompt, call.response
        if response.usage.prompt is not None and can_teach_ratio(plan, prompt, call.attempt.body):
            await plan.shared.token_ratios.learn(
                plan.services.scope, plan.model.name, counted=prompt.counted, reported=response.usage.prompt
            )
        if not self._progress.stop.pressed:
            question = self._progress.question
            remember_response(plan, prompt, response, question=question, newest=newest, turn=turn)

    async def _plan_title(self, context: Context) -> None:
        """After the first exchange, enqueue a job that writes a title, unless there is one."""
        plan = self._plan
        is_first = self._progress.question is not None and context.explanation.turns_total <= 2
        if is_first and plan.settings.titles and plan.thread.info.title is None:
            await plan.services.engine.add_job(plan.services.scope, plan.thread.id, "title", None)

    async def _store_empty_answer(self) -> Turn:
        """Store the answer of a generation that was stopped before the model was called."""
        plan = self._plan
        return await plan.thread.append(
            "assistant",
            "",
            actor=plan.actor,
            metadata=plan.metadata_for(self._progress.question),
            model=plan.model.name,
            adapter=plan.model.adapter,
            finish_reason=STOPPED,
        )
