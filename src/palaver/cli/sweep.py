"""`palaver sweep`: delete what has expired."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from palaver.cli.app import Call, command
from palaver.cli.database import existing
from palaver.cli.output import counted, emit, note, say, wire

PANEL = "Maintenance"
VARIABLE = "PALAVER_RETENTION_MINUTES"
OLD_VARIABLE = "RETENTION_MINUTES"  # the name in 0.1.0, which works for one release


@command("sweep", PANEL)
async def sweep(
    call: Call,
    retention_minutes: Annotated[
        float | None,
        typer.Option(
            metavar="MINUTES",
            envvar=[VARIABLE, OLD_VARIABLE],
            help="Also delete every turn that is older than this. By default, old turns are kept.",
        ),
    ] = None,
) -> None:
    """Delete expired conversations and, if a retention is set, old turns. Abort streams whose writer has died.

    The command does not ask for confirmation, and deletion is permanent. Several sweeps can run at the same
    time. `palaver serve` and `palaver worker` sweep by themselves.

    Examples:

      palaver sweep
      palaver sweep --retention-minutes 43200
    """
    if os.environ.get(OLD_VARIABLE) and not os.environ.get(VARIABLE):
        note(f"{OLD_VARIABLE} is deprecated: set {VARIABLE}, which `palaver serve` and `palaver worker` also read.")
    async with existing(call) as store:
        swept = await store.sweep(retention_minutes=retention_minutes)
    if call.as_json:
        emit(wire(swept))
        return
    say(
        f"Deleted {counted(len(swept.conversations), 'expired conversation')} and {counted(swept.turns, 'old turn')}; "
        f"sealed {counted(swept.streams, 'stream')} without a writer; "
        f"removed {counted(swept.files, 'file')} of unfinished uploads."
    )
    if retention_minutes is None:
        say(f"Old turns were kept. To delete them, use --retention-minutes or {VARIABLE}.")
