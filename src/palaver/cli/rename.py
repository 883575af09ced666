"""`palaver rename`: give a conversation a title."""

from __future__ import annotations

from typing import Annotated

import typer

from palaver.cli.app import Call, Name, command
from palaver.cli.database import existing, find
from palaver.cli.output import emit, say, wire

PANEL = "Write"


@command("rename", PANEL)
async def rename(
    call: Call,
    conversation: Name,
    title: Annotated[str, typer.Argument(help="The new title. An empty title removes it.", show_default=False)],
) -> None:
    """Set the title of a conversation. Its key and its id do not change.

    Example:

      palaver rename support/42 "Nut allergy"
    """
    async with existing(call) as store:
        info = await (await find(store, conversation)).rename(title or None)
    if call.as_json:
        emit(wire(info))
    else:
        say(f"{conversation} is now called {info.title!r}." if info.title else f"{conversation} has no title now.")
