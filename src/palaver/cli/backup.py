"""`palaver backup`: copy a database and its files."""

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

PANEL = "Export and backup"
NOT_COPIED = "name their folder with --files or PALAVER_FILES. If they are in a bucket, turn on versioning there."

Files = Annotated[
    str | None,
    typer.Option(
        metavar="FOLDER", help="Folder of the attachments. Default: PALAVER_FILES, else next to the database file."
    ),
]


@command("backup", PANEL)
async def backup(
    call: Call,
    target: Annotated[Path, typer.Argument(metavar="FOLDER", help="New folder for the backup.", show_default=False)],
    files: Files = None,
) -> None:
    """Copy the database and its attachments into a new folder, while servers and programs keep writing.

    The copy of an SQLite file is a consistent snapshot. For Postgres, the command runs pg_dump; --db must be the URL of
    an administrator. The folder appears when the copy is complete. Only its owner can read it, because it contains all
    conversations.

    Examples:

      palaver backup backups/2026-11-15
      palaver backup backups/2026-11-15 --db postgresql://admin@host/name --json
    """
    from palaver.interchange.backup import back_up_file, back_up_server

    source, folder = sqlite_path(call.url), files_folder(call, files)
    if source is not None and not source.exists():
        raise NoDatabase(source)
    with progress("Copying", _size(source, folder)) as advance:
        if source is not None:
            made = await back_up_file(source, folder, target, advance)
        elif call.url.startswith(("postgresql:", "postgres:")):
            made = await back_up_server(call.url, folder, target, advance)
        else:
            raise InvalidInput("db", "must be a file or a Postgres database; Supabase makes its own backups")
    _tell(call, target, made, folder)


def files_folder(call: Call, files: str | None) -> Path | None:
    """Return the folder of attachments, from the same setting as `palaver serve`; None if they are in no folder."""
    files = files or os.environ.get("PALAVER_FILES") or None
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
        note(f"Attachments are not in this backup: {NOT_COPIED}")
    if made.missing:
        note(f"Not found, although the database lists them: {counted(len(made.missing), 'attachment')}.")


def _shown(made: Backup) -> dict[str, object]:
    from dataclasses import asdict

    return {**asdict(made), "missing": len(made.missing)}
