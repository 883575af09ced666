"""`palaver archive`: move old events and requests into a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from palaver.cli.app import Call, command
from palaver.cli.database import chosen, existing
from palaver.cli.output import counted, emit, say
from palaver.conversations.arguments import optional_moment
from palaver.core.identity import moment
from palaver.errors import InvalidInput

PANEL = "Maintenance"


@command("archive", PANEL)
async def archive(
    call: Call,
    before: Annotated[
        str, typer.Option(metavar="TIME", help="Archive events and requests from before this time (ISO 8601).")
    ],
    to: Annotated[Path, typer.Option(metavar="FILE", help="File to write. If it exists, lines are appended.")],
    conversations: Annotated[
        list[str] | None, typer.Argument(metavar="CONVERSATION", help="Ids or keys of conversations. Default: all.")
    ] = None,
) -> None:
    """Move old log events and old requests to models into a file. Turns are kept.

    Logs of deleted conversations stay in the database. They have no content, and prove what was deleted.

    Keep the file: `palaver verify --archive FILE` checks the whole log with it. Without the file, `verify` starts at
    the first event that is not archived. The file does not contain the bodies of requests.

    Examples:

      palaver archive --before 2026-01-01 --to archive-2025.jsonl
    """
    from palaver.interchange.archive import archive_conversation

    time = optional_moment("before", before)
    if time is None:
        raise InvalidInput("before", "must be a time, such as 2026-01-01")
    events = requests = 0
    async with existing(call, embedder="none") as store:
        talks = await chosen(store, conversations or [])
        for talk in talks:
            found = await archive_conversation(store, talk, moment(time), lambda lines: _keep(to, lines))
            events, requests = events + found.events, requests + found.requests
    if call.as_json:
        emit({"file": str(to), "events": events, "requests": requests})
    else:
        say(f"Archived {counted(events, 'event')} and {counted(requests, 'request')} in {to}.")


def _keep(file: Path, lines: list[str]) -> None:
    """Add lines to the file, and wait until they are on the disk."""
    with open(file, "a", encoding="utf-8") as out:
        out.writelines(line + "\n" for line in lines)
        out.flush()
        os.fsync(out.fileno())
