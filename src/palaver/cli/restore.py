"""`palaver restore`: put a backup back in place."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from palaver.cli.app import Call, command
from palaver.cli.database import sqlite_path
from palaver.cli.export_import import progress
from palaver.cli.output import counted, emit, note, say
from palaver.errors import InvalidInput

if TYPE_CHECKING:
    pass
from palaver.cli.backup import Files, files_folder

PANEL = "Export and backup"


@command("restore", PANEL)
async def restore(
    call: Call,
    source: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder of the backup.", show_default=False)],
    files: Files = None,
    force: Annotated[bool, typer.Option("--force", help="Move an existing database aside.")] = False,
    erasures: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Output of `palaver erasures export`: erase these people again.")
    ] = None,
    anyway: Annotated[bool, typer.Option("--anyway", help="Restore even if a conversation does not verify.")] = False,
) -> None:
    """Restore a backup of an SQLite database to the file of --db. Every conversation is verified first.

    Stop the server first. An existing database is never overwritten: --force moves it aside. With PALAVER_AUDIT_KEY,
    the seals are checked as well.

    People who were erased after the backup was made are erased again. The command reads who they are from the database
    that it moves aside and from --erasures.

    Examples:

      palaver restore backups/2026-11-15 --db chat.db
      palaver restore backups/2026-11-15 --db chat.db --force
    """
    from palaver.interchange.backup import restore_file

    target, folder = sqlite_path(call.url), files_folder(call, files)
    if target is None or folder is None:
        raise InvalidInput("db", "must be a file, with its attachments in a folder; for Postgres, use pg_restore")
    key = os.environ.get("PALAVER_AUDIT_KEY")
    with progress("Verifying", None) as advance:
        done = await restore_file(
            source,
            target,
            folder,
            force=force,
            anyway=anyway,
            key=key.encode() if key else None,
            advance=advance,
            erasures=erasures.read_text(encoding="utf-8").splitlines() if erasures else (),
        )
    if call.as_json:
        aside, aside_files = (None if one is None else str(one) for one in (done.aside, done.aside_files))
        counts = {"conversations": done.conversations, "turns": done.turns, "erased": done.erased}
        emit({"database": str(target), **counts, "aside": aside, "aside_files": aside_files, "problems": done.problems})
        return
    verified = "" if done.problems else ", verified"
    say(f"{target}: {counted(done.conversations, 'conversation')} with {counted(done.turns, 'turn')}{verified}.")
    if done.erased:
        note(f"{counted(done.erased, 'person')} erased again: the erasure came after the backup.")
    for problem in done.problems:
        note(f"Does not verify: {problem}")
    if done.aside is not None:
        note(f"The previous database is now {done.aside}. Delete it when you no longer need it.")
    if done.aside_files is not None:
        note(
            f"The previous folder of attachments, {folder}, is now {done.aside_files}. "
            "If another database used it too, move its files back."
        )
