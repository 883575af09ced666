"""`palaver sweep`: delete what has expired."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from palaver.cli.app import Call, command
from palaver.cli.database import existing
from palaver.cli.output import counted, emit, say, wire

if TYPE_CHECKING:
    pass

PANEL = "Maintenance"


@command("sweep", PANEL)
async def sweep(
    call: Call,
    retention_minutes: Annotated[
        float | None,
        typer.Option(
            metavar="N", envvar="RETENTION_MINUTES", help="Also forget every turn that is older. Off unless given."
        ),
    ] = None,
) -> None:
    """Delete what has outlived its time: expired conversations and, when asked for, old turns. Seals dead streams.

    It does not ask, and what it deletes is gone for good. Safe to run in several places at once.

    Examples:

      palaver sweep
      palaver sweep --retention-minutes 43200
    """
    async with existing(call) as store:
        swept = await store.sweep(retention_minutes=retention_minutes)
    if call.as_json:
        emit(wire(swept))
        return
    say(
        f"Deleted {counted(len(swept.conversations), 'expired conversation')} and {counted(swept.turns, 'old turn')}; "
        f"sealed {counted(swept.streams, 'stream')} without a writer; "
        f"removed {counted(swept.files, 'file')} of uploads that came to nothing."
    )
    if retention_minutes is None:
        say("Turns are kept whatever their age: --retention-minutes or RETENTION_MINUTES would limit it.")
