"""The question of an answer: storing it, finding an earlier answer to it, and the place where prompts for it end."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

from palaver.context.client_history import ClientHistory, read_client_history
from palaver.context.inputs import Bound
from palaver.core.turn_options import TurnOptions
from palaver.errors import AppendConflict, TurnSuperseded
from palaver.generation.options import GenerateArguments
from palaver.generation.tool_calls import client_calls, is_abandoned, server_calls
from palaver.model import ToolResult, Turn
from palaver.ports.conversation import ContextSource, Thread

INTERRUPTED = "This call was cut off: the program that ran it ended before there was a result. It was not run again."
TURNS_AFTER_QUESTION = 200  # that are searched for an answer that is stored already


async def close_interrupted_tool_round(thread: Thread, now: datetime) -> Turn | None:
    """Store error results for tool calls that a crash interrupted, so that readers and models see how they ended.

    Returns the newest turn of the thread.
    """
    latest = await newest_turn(thread)
    if latest is None or not latest.tool_calls or not is_abandoned(latest, now):
        return latest
    results = [ToolResult(call.id, INTERRUPTED, True) for call in server_calls(latest)]
    with suppress(AppendConflict):  # another process closed the round first
        return await thread.append(
            "tool", "", tool_results=results, metadata={"interrupted": True}, expected_seq=latest.seq + 1
        )
    return latest


async def newest_turn(thread: Thread) -> Turn | None:
    newest = await thread.history(1)
    return newest[0] if newest else None


async def store_question(thread: Thread, options: GenerateArguments) -> Turn:
    """Store the message. Raises TurnSuperseded if its idempotency key belongs to a turn that was edited since."""
    fields: TurnOptions = {
        "actor": options.actor or None,
        "metadata": options.metadata,
        "idempotency_key": options.idempotency_key,
    }
    if options.attachments is not None:
        fields["attachments"] = tuple(options.attachments)
    question = await thread.append(
        "user", options.message, replaces=options.replaces, discard_after=options.replaces is not None, **fields
    )
    if not question.active:
        raise TurnSuperseded(question.id, by=question.superseded_by)
    return question


async def find_stored_answer(thread: Thread, question: Turn) -> Turn | None:
    """Return the answer that an earlier call with the same idempotency key stored, if any."""
    following = await thread.history(TURNS_AFTER_QUESTION, after=question)
    return next((turn for turn in following if _is_answer(turn, question)), None)


def _is_answer(turn: Turn, question: Turn) -> bool:
    """Return whether a turn is the answer, not a step on the way to it. Calls that the client runs end an answer."""
    is_reply = turn.role == "assistant" and turn.status == "complete" and (not turn.tool_calls or client_calls(turn))
    return bool(is_reply) and turn.metadata.get("answers") == question.id


async def read_history(thread: Thread, options: GenerateArguments, question: Turn, limit: int) -> ClientHistory:
    """Read the history that a client sent, without the messages that are stored here."""
    stored = await thread.history(2 * limit + 1)
    known = [(turn.role, turn.text) for turn in stored]
    return read_client_history(options.history or (), current=question.text, known=known, most=limit)


async def find_bound(
    contexts: ContextSource, question: Turn | None, latest: Turn | None, *, waited: bool = False
) -> Bound | None:
    """Return where the prompts of an answer end: at its question, or at the newest turn when there is none.

    A question that has `waited` comes behind the answers that it waited for.
    """
    if question is None:
        return None if latest is None else Bound(turn=latest, is_question=False)
    # A question that was stored before, such as a retried one, may have tool rounds already.
    is_new = latest is None or latest.seq <= question.seq
    if is_new and not waited:
        return Bound(turn=question)
    return await contexts.bound_to(question, with_earlier=waited)
