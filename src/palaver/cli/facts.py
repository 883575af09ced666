"""`palaver facts`: show, extract, correct or forget facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from palaver.cli.app import Call, Name, command
from palaver.cli.database import existing, find
from palaver.cli.output import emit, local, say, table, wire
from palaver.errors import NotFound

if TYPE_CHECKING:
    from palaver.model import Fact
from palaver.cli.memory import show_failure

PANEL = "Memory"


@command("facts", PANEL)
async def facts(
    call: Call,
    conversation: Name,
    extract: Annotated[bool, typer.Option("--extract", help="First extract facts from the latest turns.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Include facts that a later fact has replaced.")] = False,
    correct: Annotated[
        tuple[str, str] | None, typer.Option(metavar="ID TEXT", help="Replace the object of this fact.")
    ] = None,
    forget: Annotated[str | None, typer.Option(metavar="ID", help="Delete this fact permanently.")] = None,
) -> None:
    """Show the facts of a conversation, each with the date from which it holds and its source turn.

    Examples:

      palaver facts support/42
      palaver facts support/42 --extract
      palaver facts support/42 --correct 01JD3VNWKQ5CR4W7E5H2Y0M8ZT Rome
      palaver facts support/42 --forget 01JD3VNWKQ5CR4W7E5H2Y0M8ZT
    """
    async with existing(call) as store:
        talk = await find(store, conversation)
        if forget is not None and not await talk.forget_fact(forget):
            raise NotFound(f"no fact {forget!r} in this conversation")
        if correct is not None:
            await talk.correct_fact(*correct)
        if extract:
            await talk.extract_facts()
        known = await talk.facts(include_invalidated=everything)
        memory = await talk.working_memory()
    if call.as_json:
        for fact in known:
            emit(wire(fact))
    elif known:
        columns = ("id", "since", "subject", "predicate", "object", "sure", "turn", "until")
        table(columns, [_fact_row(fact) for fact in known], wide="object")
    else:
        say("No facts." if extract else "No facts. To extract some, use --extract.")
    if not call.as_json:
        show_failure(memory)


def _fact_row(fact: Fact) -> list[str]:
    until = "" if fact.invalidated_at is None else local(fact.invalidated_at, "%Y-%m-%d")
    since, sure = local(fact.valid_from, "%Y-%m-%d"), f"{fact.confidence:.0%}"
    return [fact.id, since, fact.subject, fact.predicate, fact.object, sure, fact.source_turn or "", until]
