"""`palaver requests`: list the requests to models and their results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from palaver.cli.app import Call, Name, command
from palaver.cli.database import existing, find
from palaver.cli.explain import recalled_turns, show_explanation
from palaver.cli.output import clean, emit, local, say, table, wire
from palaver.context.explain import Explanation

if TYPE_CHECKING:
    from palaver.conversations.conversation import Conversation
    from palaver.model import Request

PANEL = "Memory"


@command("requests", PANEL)
async def requests(
    call: Call,
    conversation: Name,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="Number of latest requests.")] = 20,
    turn: Annotated[str | None, typer.Option(metavar="ID", help="Only requests whose answer is this turn.")] = None,
    body: Annotated[bool, typer.Option("--body", help="Print the body of the latest request, as it was sent.")] = False,
    why: Annotated[bool, typer.Option("--why", help="Explain the prompt of the latest request.")] = False,
) -> None:
    """List the requests to models in a conversation, each with its model, tokens, times, result and retries.

    The body of a request is what was sent, with secrets redacted. It is deleted when a turn in it is forgotten.

    Examples:

      palaver requests support/42
      palaver requests support/42 --why
      palaver requests support/42 --body | jq .messages
    """
    async with existing(call, embedder="none") as store:
        talk = await find(store, conversation)
        found = await talk.requests(limit, turn=turn)
        if body:
            emit(found[-1].body if found else None)
        elif call.as_json:
            for one in found:
                emit({**wire(one), "previous_response_id": one.previous_response_id})
        elif not found:
            say("No request to a model yet.")
        elif why:
            await _explain(talk, found[-1])
        else:
            columns = ("at", "model", "for", "prompt", "cached", "answer", "first", "total", "end", "notes")
            table(columns, [_row(one) for one in found], wide="notes")


async def _explain(talk: Conversation, request: Request) -> None:
    if request.explanation is None:
        say(f"This is a request to {request.purpose}, which has no context to explain. Name an answer with --turn.")
        return
    explanation = Explanation.from_dict(request.explanation)
    show_explanation(explanation, await recalled_turns(talk, explanation))


def _row(request: Request) -> list[str]:
    response = dict(request.response or {})
    usage, timings = response.get("usage") or {}, response.get("timings") or {}
    return [
        local(request.at),
        clean(request.model),
        request.purpose,
        _number(usage.get("prompt")),
        _number(usage.get("cached")),
        _number(usage.get("completion")),
        _seconds(timings.get("first_token")),
        _seconds(timings.get("total")),
        _end(request),
        "; ".join(_notes(request, response)),
    ]


def _end(request: Request) -> str:
    if request.response is None:
        return "cut off"
    error = request.response.get("error")
    return str(error["type"] if error else request.response.get("finish_reason") or "")


def _notes(request: Request, response: dict[str, Any]) -> list[str]:
    notes = [f"{one['error']}, waited {one['waited']:g} s" for one in response.get("retries") or ()]
    if request.previous_response_id is not None:
        notes.append("continued the previous answer")
    same = (request.explanation or {}).get("identical_prefix")
    if same is not None:
        notes.append(f"{same:.0%} as before")
    if request.body is None:
        notes.append("body deleted")
    return notes


def _number(value: Any) -> str:
    return "" if value is None else f"{value:,}"


def _seconds(value: Any) -> str:
    return "" if value is None else f"{value:.2f} s"
