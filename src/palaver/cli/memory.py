"""`palaver memory`: show or change working memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from palaver.cli.app import Call, Name, command
from palaver.cli.database import existing, find
from palaver.cli.output import emit, say, wire
from palaver.model import MEMORY_LISTS

if TYPE_CHECKING:
    from palaver.conversations.conversation import Conversation
    from palaver.model import Note, WorkingMemory

PANEL = "Memory"


@command("memory", PANEL)
async def memory(
    call: Call,
    conversation: Name,
    add: Annotated[tuple[str, str] | None, typer.Option(metavar="LIST TEXT", help="Add a note.")] = None,
    correct: Annotated[
        tuple[str, int, str] | None, typer.Option(metavar="LIST INDEX TEXT", help="Replace the text of a note.")
    ] = None,
    drop: Annotated[tuple[str, int] | None, typer.Option(metavar="LIST INDEX", help="Remove a note.")] = None,
) -> None:
    """Show the working memory of a conversation (goals, decisions, instructions and so on), or change one note.

    The lists are goals, requirements, constraints, decisions, assumptions, open_questions, glossary, stakeholders
    and instructions. The index of a note is the number in front of it.

    Examples:

      palaver memory support/42
      palaver memory support/42 --add goals "Ship the beta in May"
      palaver memory support/42 --correct goals 0 "Ship the beta in June"
      palaver memory support/42 --drop goals 0
    """
    if sum(edit is not None for edit in (add, correct, drop)) > 1:
        raise typer.BadParameter("one change at a time", param_hint="--add, --correct, --drop")
    async with existing(call) as store:
        known = await _edit(await find(store, conversation), add, correct, drop)
    if call.as_json:
        emit(wire(known))
    else:
        _show_memory(known)


async def _edit(
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
        say(f"No notes: {known.empty.detail}." if known.empty else "No notes.")
    show_failure(known)


def show_failure(known: WorkingMemory) -> None:
    if known.extractor_failure:
        say(f"The extractor failed ({known.extractor_failure}): only the rules provide notes and facts.")
    if known.extractor_dropped:
        say(f"Items of the extractor that were dropped because no turn supports them: {known.extractor_dropped}.")


def _note_line(index: int, one: Note) -> str:
    return f"  {index}  {one.text}  ({one.by})"
