"""`palaver branches`: places with more than one version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from palaver.cli.app import Call, Name, command
from palaver.cli.database import existing, find
from palaver.cli.output import (
    body,
    counted,
    emit,
    heading,
    say,
    wire,
)

if TYPE_CHECKING:
    pass

PANEL = "Read"


@command("branches", PANEL)
async def branches(call: Call, conversation: Name) -> None:
    """List the positions where a conversation has more than one version.

    Example:

      palaver branches support/42
    """
    async with existing(call) as store:
        found = await (await find(store, conversation)).branches()
    for branch in found:
        if call.as_json:
            active = branch.active.id if branch.active else None
            emit({"position": branch.position, "active": active, "turns": [wire(turn) for turn in branch.turns]})
            continue
        say(f"At position {branch.position}: {counted(len(branch.turns), 'version')}")
        for turn in branch.turns:
            say(heading(turn), *body(turn))
        say("")
    if not found and not call.as_json:
        say("No branches: every turn has one version.")
