"""`palaver person`: what is remembered about a person, across conversations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from palaver.cli.app import Call, command
from palaver.cli.database import existing
from palaver.cli.output import emit, local, say, table
from palaver.conversations.subjects import item_as_json

if TYPE_CHECKING:
    from palaver.conversations.subjects import Subject
    from palaver.model import MemoryItem

PANEL = "Memory"
Who = Annotated[str, typer.Argument(metavar="PERSON", help="Id of a user.")]


@command("person", PANEL)
async def person(
    call: Call,
    name: Who,
    everything: Annotated[
        bool, typer.Option("--all", help="Include items that no longer hold, and proposed items.")
    ] = False,
    profile: Annotated[bool, typer.Option("--profile", help="Show only the text that goes into prompts.")] = False,
    remember: Annotated[str | None, typer.Option(metavar="TEXT", help="Remember this text.")] = None,
    approve: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Approve the proposed item with this id, so that prompts may contain it."),
    ] = None,
    drop: Annotated[str | None, typer.Option(metavar="ID", help="Delete the item with this id permanently.")] = None,
    export: Annotated[bool, typer.Option("--export", help="Print everything as one JSON object.")] = False,
    learn: Annotated[bool, typer.Option("--learn", help="Read the conversations of this person again.")] = False,
    forget: Annotated[
        bool,
        typer.Option("--forget", help="Delete everything that is remembered, permanently. Conversations are kept."),
    ] = False,
) -> None:
    """Show what is remembered about a person across conversations, with the source of each item.

    Examples:

      palaver person ada
      palaver person ada --remember "I live in Rome"
      palaver person ada --export > ada.json
      palaver person ada --forget
    """
    async with existing(call, person="read-write" if learn else "off") as store:
        one = store.person(name)
        await _change(one, remember, approve, drop)
        if forget:
            await one.forget()
        if learn:
            await one.learn()
            await store.settle()
        if export:
            emit(await one.export())
            return
        text = await one.profile()
        items = await one.fact_history() if everything else await one.facts()
    _show(call, items, text if profile else None)


async def _change(one: Subject, remember: str | None, approve: str | None, drop: str | None) -> None:
    if remember is not None:
        await one.remember(remember)
    if approve is not None:
        await one.approve(approve)
    if drop is not None:
        await one.drop(drop)


def _show(call: Call, items: list[MemoryItem], profile: str | None) -> None:
    if profile is not None:
        say(profile or "Nothing is remembered.")
    elif call.as_json:
        for item in items:
            emit(item_as_json(item))
    elif items:
        columns = ("id", "learnt", "kind", "text", "status", "from", "until")
        table(columns, [_row(item) for item in items], wide="text")
    else:
        say("Nothing is remembered.")


def _row(item: MemoryItem) -> list[str]:
    until = "" if item.valid_to is None else local(item.valid_to, "%Y-%m-%d")
    sources = [source.title or source.conversation for source in item.sources]
    learnt = local(item.learnt_at, "%Y-%m-%d")
    return [item.id, learnt, item.kind, item.text, item.status, ", ".join(dict.fromkeys(sources)) or item.by, until]
