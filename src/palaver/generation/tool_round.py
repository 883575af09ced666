"""A tool round: run the calls of a reply that belong to the server, and store their results behind it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta

from palaver.core.concurrency import run_uncancelled
from palaver.core.turn_options import TurnInput, TurnOptions
from palaver.errors import AppendConflict, FilesNotConfigured
from palaver.generation.events import ToolDone, ToolsPlanned
from palaver.generation.plan import AnswerPlan
from palaver.generation.progress import Progress
from palaver.generation.tool_calls import client_calls_metadata, lease_metadata, server_calls
from palaver.generation.tools import CallOutcome, shorten_result, text_of
from palaver.model import Attachment, ToolCall, ToolResult, Turn

STOPPED_CALL = "This call was stopped by the user before there was a result."
CANCELLED_CALL = "This call was cancelled before there was a result. It was not run again."
NOT_KEPT = ", the rest is not kept"
LEASE_SLACK = 5.0  # seconds between the deadline of a tool round and the moment when it counts as abandoned
_log = logging.getLogger("palaver.files")


def metadata_of_calls(plan: AnswerPlan, calls: Sequence[ToolCall]) -> dict[str, object]:
    """Return what a turn with these calls says about them: which the client runs, and a lease for the others."""
    client = plan.client_tool_names
    metadata = client_calls_metadata(calls, client)
    own = [call for call in calls if call.name not in client]
    if not own:
        return metadata
    seconds = plan.toolbox.longest(own, plan.settings.tool_timeout) + LEASE_SLACK
    return {**metadata, **lease_metadata(plan.services.clock.now() + timedelta(seconds=seconds))}


async def run_tools(plan: AnswerPlan, progress: Progress, turn: Turn) -> Turn | None:
    """Run the calls of a turn that belong to the server, and store their results. None if there are none."""
    calls = server_calls(turn)
    if not calls:
        return None
    progress.emit(ToolsPlanned(turn, calls))
    done: dict[str, CallOutcome] = {}

    def report(outcome: CallOutcome) -> None:
        done[outcome.call.id] = outcome
        progress.emit(ToolDone(outcome.call, outcome.content, outcome.is_error))

    try:
        await _run_calls(plan, progress, calls, report)
    except asyncio.CancelledError:
        await run_uncancelled(_store_outcomes(plan, progress, turn, done, CANCELLED_CALL))
        raise
    return await run_uncancelled(_store_outcomes(plan, progress, turn, done, STOPPED_CALL))


async def cancel_calls(plan: AnswerPlan, progress: Progress, turn: Turn | None) -> None:
    """Store error results for calls that are stored and will not run, because the answer was cancelled."""
    if turn is not None and server_calls(turn):
        await run_uncancelled(_store_outcomes(plan, progress, turn, {}, CANCELLED_CALL))


async def _run_calls(
    plan: AnswerPlan, progress: Progress, calls: Sequence[ToolCall], report: Callable[[CallOutcome], None]
) -> None:
    def span(call: ToolCall) -> AbstractContextManager[object]:
        name = call.name if call.name in plan.toolbox.tools else "unknown"  # a model may make up any text as a name
        return plan.shared.telemetry.span(
            f"execute_tool {name}",
            gen_ai__operation__name="execute_tool",
            gen_ai__tool__name=name,
            gen_ai__tool__type="function",
            gen_ai__tool__call__id=call.id,
            gen_ai__conversation__id=plan.thread.id,
        )

    await progress.stop.run(plan.toolbox.run(calls, plan.settings.tool_timeout, report, span))


async def _store_outcomes(
    plan: AnswerPlan, progress: Progress, turn: Turn, done: Mapping[str, CallOutcome], otherwise: str
) -> Turn:
    """Store the results of the calls, with the error `otherwise` for those that did not end."""
    results: list[ToolResult] = []
    files: list[Attachment] = []
    for call in server_calls(turn):
        outcome = done.get(call.id) or CallOutcome(call, otherwise, True)
        result, attached = await _make_result(plan, outcome)
        results.append(result)
        files += attached
        progress.sources += outcome.sources
    return await _append_results(plan, progress, turn, {"tool_results": results, "attachments": tuple(files)})


async def _make_result(plan: AnswerPlan, outcome: CallOutcome) -> tuple[ToolResult, list[Attachment]]:
    """Return the result for the model. If it is too long, shorten it and attach the whole of it as a file.

    Where no location for files is set, the answer continues with the shortened result.
    """
    text, limit = text_of(outcome.content), plan.settings.tool_characters
    if len(text) <= limit:
        return ToolResult(outcome.call.id, outcome.content, outcome.is_error), []
    text = await plan.services.redact_content(text)
    try:
        file = await plan.thread.attach(text.encode(), filename=f"{outcome.call.name}.txt", media_type="text/plain")
    except FilesNotConfigured as problem:
        _log.warning("a long tool result in conversation %s is only kept in part: %s", plan.thread.id, problem)
        return ToolResult(outcome.call.id, shorten_result(text, limit, NOT_KEPT), outcome.is_error), []
    cut = shorten_result(text, limit, f", all of them in attachment {file.id}")
    return ToolResult(outcome.call.id, cut, outcome.is_error), [file]


async def _append_results(plan: AnswerPlan, progress: Progress, turn: Turn, fields: TurnOptions) -> Turn:
    try:
        stored = await plan.thread.append("tool", "", expected_seq=turn.seq + 1, **fields)
        progress.add_steps(turn, stored)
    except AppendConflict:
        # Another turn was stored in between. Providers want results right behind their calls, so the calls are
        # repeated with them.
        metadata = {**turn.metadata, "repeats": turn.id}
        calls: TurnInput = {
            "role": "assistant", "actor": plan.actor, "tool_calls": turn.tool_calls, "metadata": metadata
        }  # fmt: skip
        repeated, stored = await plan.thread.append_many([calls, {"role": "tool", "content": "", **fields}])
        progress.add_steps(repeated, stored)
    return stored
