"""`palaver replicate`: bring two stores together."""

from __future__ import annotations

import asyncio
import os
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated

import typer

from palaver.cli.app import Call, command
from palaver.cli.database import creating, database_url, existing
from palaver.cli.export_import import progress
from palaver.cli.output import counted, emit, note, say
from palaver.errors import InvalidInput

if TYPE_CHECKING:
    from palaver.conversations.store import Store
    from palaver.interchange.replication.report import ReplicatedConversation, ReplicationReport

PANEL = "Export and backup"
SHORTEST = 0.1  # seconds between two runs
FilesOption = Annotated[
    str | None, typer.Option(metavar="FOLDER", help="Folder of the attachments of URL_B. Default: PALAVER_FILES.")
]


@command("replicate", PANEL)
async def replicate(
    call: Call,
    left: Annotated[
        str, typer.Argument(metavar="URL_A", help="Database at the edge, such as a local file.", show_default=False)
    ],
    right: Annotated[str, typer.Argument(metavar="URL_B", help="Main database.", show_default=False)],
    direction: Annotated[
        str,
        typer.Option(metavar="WAY", help="Direction: both, push (changes only URL_B) or pull (changes only URL_A)."),
    ] = "both",
    conversation: Annotated[
        list[str] | None,
        typer.Option("--conversation", metavar="NAME", help="Only this conversation (id or key). May be repeated."),
    ] = None,
    to_tenant: Annotated[
        str | None, typer.Option(metavar="NAME", help="Tenant in URL_B, if its name differs there.")
    ] = None,
    files: FilesOption = None,
    watch: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Repeat after this many seconds, until Ctrl-C. At least 0.1."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Report what would be copied, and change nothing.")
    ] = False,
) -> None:
    """Synchronise two databases, until both have the same conversations with the same logs.

    Use it for a local file at the edge and a central database. Deletions are copied first. A conversation that
    continued in one database is copied to the other. If it continued in both, URL_B keeps its turn numbers and its
    active branch, and the new turns of URL_A become another branch. If a run is interrupted, the next run completes
    it.

    The exit status is 1 if a conversation could not be copied yet or was refused. The report gives the reason.

    Examples:

      palaver replicate edge.db postgresql://app@host/palaver
      palaver replicate edge.db postgresql://app@host/palaver --direction push --conversation support/42
      palaver replicate edge.db main.db --watch 60 --json
    """
    if watch is not None and watch < SHORTEST:
        raise InvalidInput("watch", f"must be at least {SHORTEST} seconds")
    for name, url in (("URL_A", left), ("URL_B", right)):
        if url.startswith(("https:", "http:")):
            raise InvalidInput(name, "is the address of a server: give the URL of its database")
    here = replace(call, url=database_url(left))
    there = replace(call, url=database_url(right), tenant=to_tenant or call.tenant)
    folder = files or os.environ.get("PALAVER_FILES")
    async with (
        existing(here, embedder="none", files=None) as one,
        creating(there, embedder="none", files=folder) as other,
    ):
        while True:
            report = await _run(one, other, direction, conversation, dry_run)
            _tell(call, report)
            if watch is None:
                break
            await asyncio.sleep(watch)
    if not report.is_complete:
        raise typer.Exit(1)


async def _run(left: Store, right: Store, direction: str, names: list[str] | None, dry_run: bool) -> ReplicationReport:
    from palaver.interchange.replication.report import DIRECTIONS
    from palaver.interchange.replication.run import replicate as replicate_stores

    way = next((one for one in DIRECTIONS if one == direction), None)
    if way is None:
        raise InvalidInput("direction", f"must be one of {', '.join(DIRECTIONS)}")
    counts = [(await store.stats()).conversations for store in (left, right)]
    with progress("Replicating", max(counts)) as advance:
        return await replicate_stores(
            left, right, direction=way, conversations=names, dry_run=dry_run, progress=advance
        )


def _tell(call: Call, report: ReplicationReport) -> None:
    if call.as_json:
        emit({**asdict(report), "complete": report.is_complete})
        return
    for one in report.conversations:
        say(_line(one))
    done = ", ".join(f"{count} {action}" for action, count in sorted(report.counts.items())) or "nothing to do"
    erased = f" {counted(report.erased, 'person')} erased." if report.erased else ""
    say(f"{'Would be: ' if report.dry_run else ''}{done}.{erased}")
    if not report.is_complete:
        note("To copy the waiting conversations, run the command again.")


def _line(one: ReplicatedConversation) -> str:
    turns = f", {counted(one.turns, 'turn')}" if one.turns else ""
    branched = f", {one.branched} of them on a branch" if one.branched else ""
    to = f" ({one.to})" if one.to else ""
    reason = f": {one.reason}" if one.reason else ""
    return f"{one.action}{to}  {one.key or one.id}{turns}{branched}{reason}"
