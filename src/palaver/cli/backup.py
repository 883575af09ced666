"""Commands that keep a second copy: backup, restore."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from palaver.cli.app import Call, command
from palaver.cli.database import NoDatabase, sqlite_path
from palaver.cli.export_import import progress
from palaver.cli.output import counted, emit, note, say, size
from palaver.conversations.opening import default_folder
from palaver.errors import InvalidInput

if TYPE_CHECKING:
    from palaver.interchange.backup import Backup

PANEL = "Carry"

Files = Annotated[
    str | None,
    typer.Option(metavar="FOLDER", help="Where the attachments are; else PALAVER_FILES, else beside the database."),
]


@command("backup", PANEL)
async def backup(
    call: Call,
    target: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder for it.", show_default=False)],
    files: Files = None,
) -> None:
    """Copy the database and its attachments into a new folder, while servers and programs go on writing.

    An SQLite file is copied as it is at one moment. For Postgres, pg_dump is run with an administrator's address. The
    folder appears when the copy is whole, and only its owner can read it: it holds everything that was said.

    Examples:

      palaver backup backups/2026-11-15
      palaver backup backups/2026-11-15 --db postgresql://admin@host/name --json
    """
    from palaver.interchange.backup import back_up_file, back_up_server

    source, folder = sqlite_path(call.url), _folder(call, files)
    if source is not None and not source.exists():
        raise NoDatabase(source)
    with progress("Copying", _size(source, folder)) as advance:
        if source is not None:
            made = await back_up_file(source, folder, target, advance)
        elif call.url.startswith(("postgresql:", "postgres:")):
            made = await back_up_server(call.url, folder, target, advance)
        else:
            raise InvalidInput("db", "must be a file or a Postgres database; Supabase keeps backups of its own")
    _tell(call, target, made, folder)


def _folder(call: Call, files: str | None) -> Path | None:
    """The folder of attachments, as `palaver serve` is told it; None when they are in a bucket."""
    files = files or os.environ.get("PALAVER_FILES")
    if files is not None and "://" in files:
        return None
    return Path(files) if files is not None else default_folder(call.url)


def _size(source: Path | None, folder: Path | None) -> float | None:
    if source is None:
        return None
    found = folder.rglob("*") if folder is not None else ()
    return source.stat().st_size + sum(file.stat().st_size for file in found if file.is_file())


def _tell(call: Call, target: Path, made: Backup, folder: Path | None) -> None:
    if call.as_json:
        emit({"folder": str(target), **_shown(made)})
        return
    say(f"{target}: the database ({size(made.bytes)}) and {counted(made.files, 'file')} ({size(made.file_bytes)}).")
    if folder is None:
        note("The attachments are in a bucket, and not in this backup: keep versions there.")
    if made.missing:
        note(f"{counted(len(made.missing), 'attachment')} that the database names could not be found.")


def _shown(made: Backup) -> dict[str, object]:
    from dataclasses import asdict

    return {**asdict(made), "missing": len(made.missing)}


@command("restore", PANEL)
async def restore(
    call: Call,
    source: Annotated[Path, typer.Argument(metavar="FOLDER", help="A backup.", show_default=False)],
    files: Files = None,
    force: Annotated[bool, typer.Option("--force", help="Move aside the database that is there.")] = False,
    anyway: Annotated[bool, typer.Option("--anyway", help="Also when something in it does not verify.")] = False,
) -> None:
    """Put a backup into its place: the database that --db names. Every conversation is verified first.

    Nothing is overwritten: with --force, what is there is moved aside. Stop the server before. With
    PALAVER_AUDIT_KEY, the seals are checked as well.

    Examples:

      palaver restore backups/2026-11-15 --db chat.db
      palaver restore backups/2026-11-15 --db chat.db --force
    """
    from palaver.interchange.backup import restore_file

    target, folder = sqlite_path(call.url), _folder(call, files)
    if target is None or folder is None:
        raise InvalidInput("db", "must be a file, with its attachments in a folder; for Postgres there is pg_restore")
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
        )
    if call.as_json:
        aside = None if done.aside is None else str(done.aside)
        counts = {"conversations": done.conversations, "turns": done.turns}
        emit({"database": str(target), **counts, "aside": aside, "problems": done.problems})
        return
    verified = "" if done.problems else ", verified"
    say(f"{target}: {counted(done.conversations, 'conversation')} with {counted(done.turns, 'turn')}{verified}.")
    for problem in done.problems:
        note(f"Does not verify: {problem}")
    if done.aside is not None:
        note(f"What was there is {done.aside} now. Delete it when it is not needed any more.")
