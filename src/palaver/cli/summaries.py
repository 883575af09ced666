"""`palaver summaries` and `palaver compact`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from palaver.cli.app import Call, Name, command
from palaver.cli.database import existing, find
from palaver.cli.output import clean, counted, emit, local, say, wire

if TYPE_CHECKING:
    from collections.abc import Sequence

    from palaver.model import Summary

PANEL = "Memory"


@command("summaries", PANEL)
async def summaries(call: Call, conversation: Name) -> None:
    """Show the summaries of a conversation, each with the turns that it covers and the model that wrote it.

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
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Summarise the older half of the turns without a summary, even if no summary is due."
        ),
    ] = False,
    through: Annotated[
        str | None, typer.Option(metavar="TURN", help="Summarise all turns through the one with this id.")
    ] = None,
) -> None:
    """Write the summaries of older turns that are due, and show them. The turns are kept.

    Examples:

      palaver compact support/42
      palaver compact support/42 --force
      palaver compact support/42 --through 01JD3VNWKQ5CR4W7E5H2Y0M8ZT
    """
    async with existing(call) as store:
        talk = await find(store, conversation)
        before = {one.id for one in await talk.summaries()}
        await (talk.summarize(through=through) if force or through else talk.compact())
        new = [one for one in await talk.summaries() if one.id not in before]
    _show_summaries(call, new)
    if not call.as_json:
        asked = force or through is not None
        nothing = "Nothing is left to summarise." if asked else "Nothing was due. To summarise anyway, use --force."
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
