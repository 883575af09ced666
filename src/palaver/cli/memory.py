"""Commands over what is remembered: summaries, compact, memory, facts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from palaver.cli.app import Call, Name, command
from palaver.cli.database import existing, find
from palaver.cli.output import clean, counted, emit, local, say, table, wire
from palaver.errors import NotFound
from palaver.model import MEMORY_LISTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.conversations.conversation import Conversation
    from palaver.model import Fact, Note, Summary, WorkingMemory

PANEL = "Remember"


# ---- summaries -----------------------------------------------------------------------------------------------------


@command("summaries", PANEL)
async def summaries(call: Call, conversation: Name) -> None:
    """Show the summaries of a conversation, each with the turns that it stands for and who wrote it.

    Example:

      palaver summaries support/42
    """
    async with existing(call) as store:
        found = await (await find(store, conversation)).summaries()
    _show_summaries(call, found)
    if not found and not call.as_json:
        say("No summaries.")


@command("compact", PANEL)
async def compact(
    call: Call,
    conversation: Name,
    force: Annotated[bool, typer.Option("--force", help="Also when it is not due yet.")] = False,
) -> None:
    """Summarise the older turns of a conversation now, where that is due, and show the new summaries. Turns stay.

    Examples:

      palaver compact support/42
      palaver compact support/42 --force
    """
    async with existing(call) as store:
        talk = await find(store, conversation)
        before = {one.id for one in await talk.summaries()}
        await (talk.summarize() if force else talk.compact())
        new = [one for one in await talk.summaries() if one.id not in before]
    _show_summaries(call, new)
    if not call.as_json:
        nothing = "Nothing is left to summarise." if force else "Nothing was due. --force summarises all the same."
        say(f"Wrote {counted(len(new), 'summary', 'summaries')}." if new else nothing)


def _show_summaries(call: Call, found: Sequence[Summary]) -> None:
    from rich.text import Text

    for one in found:
        if call.as_json:
            emit(wire(one))
            continue
        span = f"{counted(one.turns, 'turn')}, positions {one.from_seq}–{one.through_seq - 1}"
        about = f"{counted(one.token_count, 'token')}, {one.model}, {local(one.created)}"
        say(Text.assemble((f"level {one.level}", "bold blue"), f"  {span}  ", (clean(about), "dim")), one.text, "")


# ---- memory --------------------------------------------------------------------------------------------------------


@command("memory", PANEL)
async def memory(
    call: Call,
    conversation: Name,
    add: Annotated[tuple[str, str] | None, typer.Option(metavar="LIST TEXT", help="Add a note.")] = None,
    correct: Annotated[
        tuple[str, int, str] | None, typer.Option(metavar="LIST INDEX TEXT", help="Put other words in a note's place.")
    ] = None,
    drop: Annotated[tuple[str, int] | None, typer.Option(metavar="LIST INDEX", help="Remove a note.")] = None,
) -> None:
    """Show what matters in a conversation now: goals, decisions, instructions and so on; or change one note of it.

    The lists are goals, requirements, constraints, decisions, assumptions, open_questions, glossary, stakeholders
    and instructions. The index of a note is the number before it.

    Examples:

      palaver memory support/42
      palaver memory support/42 --add goals "Ship the beta in May"
      palaver memory support/42 --correct goals 0 "Ship the beta in June"
      palaver memory support/42 --drop goals 0
    """
    if sum(edit is not None for edit in (add, correct, drop)) > 1:
        raise typer.BadParameter("one change at a time", param_hint="--add, --correct, --drop")
    async with existing(call) as store:
        known = await _edited(await find(store, conversation), add, correct, drop)
    if call.as_json:
        emit(wire(known))
    else:
        _show_memory(known)


async def _edited(
    talk: Conversation,
    add: tuple[str, str] | None,
    correct: tuple[str, int, str] | None,
    drop: tuple[str, int] | None,
) -> WorkingMemory:
    if add is not None:
        return await talk.remember(*add)
    if correct is not None:
        return await talk.correct(*correct)
    if drop is not None:
        return await talk.drop_note(*drop)
    return await talk.working_memory()


def _show_memory(known: WorkingMemory) -> None:
    from rich.text import Text

    lists: list[tuple[str, tuple[Note, ...]]] = [(name, getattr(known, name)) for name in MEMORY_LISTS]
    if known.summary:
        say(Text("summary", "bold"), f"  {known.summary}")
    for name, notes in lists:
        if notes:
            say(Text(name, "bold"), *(_note_line(index, one) for index, one in enumerate(notes)))
    if not known.summary and not any(notes for _, notes in lists):
        say("Nothing noted.")
    _show_failure(known)


def _show_failure(known: WorkingMemory) -> None:
    if known.extractor_failure:
        say(f"The extractor failed ({known.extractor_failure}): notes and facts come from the rules alone.")


def _note_line(index: int, one: Note) -> str:
    return f"  {index}  {one.text}  ({one.by})"


# ---- facts ---------------------------------------------------------------------------------------------------------


@command("facts", PANEL)
async def facts(
    call: Call,
    conversation: Name,
    extract: Annotated[bool, typer.Option("--extract", help="First look for facts in the latest turns.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Also facts that a later one has replaced.")] = False,
    forget: Annotated[str | None, typer.Option(metavar="ID", help="Forget this fact for good.")] = None,
) -> None:
    """Show the facts of a conversation: what is known, since when, and which turn says so.

    Examples:

      palaver facts support/42
      palaver facts support/42 --extract
      palaver facts support/42 --forget 01JD3VNWKQ5CR4W7E5H2Y0M8ZT
    """
    async with existing(call) as store:
        talk = await find(store, conversation)
        if forget is not None and not await talk.forget_fact(forget):
            raise NotFound(f"no fact {forget!r} in this conversation")
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
        say("No facts." if extract else "No facts. --extract looks for some.")
    if not call.as_json:
        _show_failure(memory)


def _fact_row(fact: Fact) -> list[str]:
    until = "" if fact.invalidated_at is None else local(fact.invalidated_at, "%Y-%m-%d")
    since, sure = local(fact.valid_from, "%Y-%m-%d"), f"{fact.confidence:.0%}"
    return [fact.id, since, fact.subject, fact.predicate, fact.object, sure, fact.source_turn or "", until]
