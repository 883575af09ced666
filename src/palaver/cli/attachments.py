"""Commands for files: attach, attachments, attachment."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from palaver.cli.app import Call, Name, command
from palaver.cli.database import creating, existing, find, find_or_create
from palaver.cli.output import counted, emit, note, say, size, table, wire
from palaver.errors import InvalidInput

if TYPE_CHECKING:
    from palaver.conversations.conversation import Conversation
    from palaver.model import Attachment

FileId = Annotated[str, typer.Argument(help="Id of the file: see `palaver attachments`.", show_default=False)]


@command("attach", "Write")
async def attach(
    call: Call,
    conversation: Name,
    files: Annotated[
        list[Path],
        typer.Argument(
            exists=True, dir_okay=False, readable=True, help="Files to store, at most 10.", show_default=False
        ),
    ],
    text: Annotated[str, typer.Option("--text", "-t", help="Text of the message. By default, it has none.")] = "",
) -> None:
    """Store files as a message of the user: images, PDF, text, office documents, audio, video, archives.

    The type of a file is detected from its bytes. A file whose name contradicts its type is refused. `palaver worker`
    or a server extracts the text of documents in the background. After that, recall finds it.

    Examples:

      palaver attach support/42 contract.pdf
      palaver attach support/42 *.png --text "How it looks here."
    """
    async with creating(call) as store:
        talk, new = await find_or_create(store, conversation)
        stored = [await talk.attach(path) for path in files]
        turn = await talk.append("user", text, attachments=stored)
    if call.as_json:
        emit(wire(turn))
    else:
        place = f"{'the new conversation ' if new else ''}{conversation}"
        say(f"Stored {counted(len(stored), 'file')} with turn {turn.seq} ({turn.id}) in {place}.")


@command("attachments", "Read")
async def attachments(
    call: Call,
    conversation: Name,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=100_000, help="Number of files.")] = 50,
) -> None:
    """List the files of a conversation, newest first.

    Examples:

      palaver attachments support/42
      palaver attachments support/42 --json | jq -r .id
    """
    async with existing(call) as store:
        found = await (await find(store, conversation)).attachments(limit)
    if call.as_json:
        for one in found:
            emit(_shown(one))
    elif found:
        rows = [[one.id, one.filename, one.media_type, size(one.bytes), one.turn or "no turn yet"] for one in found]
        table(("id", "name", "type", "size", "turn"), rows, wide="name")
    else:
        say("No files.")


def _shown(one: Attachment) -> dict[str, object]:
    return {name: value for name, value in wire(one).items() if name != "path"}


@command("attachment", "Read")
async def attachment(
    call: Call,
    conversation: Name,
    file: FileId,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="File to write; - is stdout. Default: the file's own name, in the current folder."
        ),
    ] = None,
    text: Annotated[bool, typer.Option("--text", "-t", help="Print the extracted text, and save nothing.")] = False,
) -> None:
    """Save a file of a conversation, or print its text. An existing file is not overwritten.

    Examples:

      palaver attachment support/42 01KA2V6M3T9Q4X7C5N1R8F2B6D
      palaver attachment support/42 01KA2V6M3T9Q4X7C5N1R8F2B6D --text
    """
    async with existing(call) as store:
        talk = await find(store, conversation)
        if text:
            await _tell(call, talk, file)
            return
        known = await talk.attachment(file)
        data = await talk.read_attachment(known)
    if str(output) == "-":
        sys.stdout.buffer.write(data)
        return
    # A name from elsewhere leads nowhere but into this folder.
    target = output or Path(Path(known.filename).name or "file")
    try:
        with target.open("xb") as out:
            out.write(data)
    except FileExistsError:
        raise InvalidInput("output", f"{target} exists already: name another file with -o") from None
    if call.as_json:
        emit({**_shown(known), "file": str(target)})
    else:
        say(f"Wrote {target} ({size(known.bytes)}).")


async def _tell(call: Call, talk: Conversation, file: str) -> None:
    found = await talk.attachment_text(file)
    if call.as_json:
        emit(wire(found))
    elif found.text:
        say(found.text)
    else:
        note(f"No text: the file {found.problem}.")
