"""Erasing a person: erase-user, and what it leaves: erasures list, export, import, verify."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from palaver.cli.app import Call, Yes, app, command
from palaver.cli.database import existing
from palaver.cli.forget import confirm
from palaver.cli.output import counted, emit, note, say, table
from palaver.conversations.internals import engine_of
from palaver.core.identity import moment
from palaver.errors import InvalidInput
from palaver.model import Scope

if TYPE_CHECKING:
    from palaver.conversations.store import Store
    from palaver.model import ErasureReceipt

group = typer.Typer(no_args_is_help=True, help="Records of erased people: list, export, import; verify a receipt.")
app.add_typer(group, name="erasures", rich_help_panel="Maintenance")

Tombstones = Annotated[
    Path, typer.Argument(metavar="FILE", help="Output of `palaver erasures export`.", show_default=False)
]
Receipt = Annotated[
    Path, typer.Argument(metavar="FILE", help="Receipt that `palaver erase-user` wrote.", show_default=False)
]


def _as_administrator(store: Store) -> Store:
    """Anyone who can open the database may erase a person."""
    return store.scoped(Scope.of(store.scope.tenant, None))


def _audit_key() -> bytes | None:
    text = os.environ.get("PALAVER_AUDIT_KEY")
    return text.encode() if text else None


@command("erase-user", "Delete")
async def erase_user(
    call: Call,
    person: Annotated[str, typer.Argument(metavar="USER", help="Id of the user.", show_default=False)],
    receipt: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the receipt to this new file.")] = None,
    yes: Yes = False,
) -> None:
    """Erase a person permanently: their conversations, their turns elsewhere, files, notes, keys, and their name.

    Text that other people wrote about them is kept. The receipt lists the ids of everything that was erased. With
    PALAVER_AUDIT_KEY, it is signed. If the command is interrupted, run it again.

    Examples:

      palaver erase-user ada --receipt ada-receipt.json
      palaver erase-user ada --yes --json
    """
    from palaver.audit.erasure import receipt_fields

    async with existing(call) as store:
        confirm(f"Erase {person} and everything of theirs?", yes=yes)
        with _reserved(receipt):
            done = await _as_administrator(store).erase_user(person, audit_key=_audit_key())
    fields = receipt_fields(done)
    if receipt is not None:
        receipt.write_text(json.dumps(fields, indent=2) + "\n", encoding="utf-8")
    if call.as_json:
        emit(fields)
        return
    for kind, count in fields["counts"].items():
        say(f"{kind:<14} {count:,}")
    say("Erased." if fields["counts"] else "Nothing of this user was found.")
    if receipt is None:
        note("The receipt was not stored. Use --receipt FILE or --json to keep one.")
    if not done.scrubbed:
        note("Some bytes are still on disk, because of a reader or a full disk. The next sweep removes them.")


@contextmanager
def _reserved(receipt: Path | None) -> Iterator[None]:
    """Create the file before anything is erased, because a lost receipt cannot be replaced. Keep earlier receipts."""
    if receipt is None:
        yield
        return
    if receipt.exists() and receipt.stat().st_size:  # an empty one is that of a run that was killed
        raise InvalidInput("receipt", f"{receipt} already exists: name a new file")
    try:
        receipt.touch()
    except OSError as problem:
        raise InvalidInput("receipt", f"{receipt} cannot be written ({type(problem).__name__})") from None
    try:
        yield
    except BaseException:  # re-raised: the empty receipt of a failed run must not stay
        receipt.unlink(missing_ok=True)
        raise


@command("list", group=group)
async def list_(call: Call) -> None:
    """List the people who were erased: a digest of each name, and the time.

    Example:

      palaver erasures list
    """
    async with existing(call, embedder="none") as store:
        administrator = _as_administrator(store)
        found = await engine_of(store).erasures(administrator.scope)
    rows = [
        (one.digest[:16], moment(one.at).isoformat() if one.at else "", "under way" if one.user else "finished")
        for one in found
    ]
    if call.as_json:
        for digest, at, state in rows:
            emit({"digest": digest, "at": at or None, "state": state})
    elif rows:
        table(("digest", "erased", "state"), rows)
    else:
        say("Nobody was erased.")


@command("export", group=group)
async def export(call: Call) -> None:
    """Print the records of erased people (tombstones) as lines of JSON. They contain digests of names, and no name.

    Keep them apart from your backups: an older backup has no record of later erasures.

    Example:

      palaver erasures export > erasures.jsonl
    """
    from palaver.interchange.erasures import erasure_lines

    async with existing(call, embedder="none") as store:
        for line in await erasure_lines(_as_administrator(store)):
            typer.echo(line)


@command("import", group=group)
async def import_(call: Call, file: Tombstones) -> None:
    """Import records of erased people, and erase these people again. Run this after you restore an older backup.

    Example:

      palaver erasures import erasures.jsonl --db restored.db
    """
    from palaver.interchange.erasures import import_erasures

    lines = file.read_text(encoding="utf-8").splitlines()
    async with existing(call, embedder="none") as store:
        found = await import_erasures(_as_administrator(store), lines)
    if call.as_json:
        emit({"tombstones": len(lines), "persons": found})
    else:
        again = counted(found, "person was", "persons were")
        say(f"{counted(len(lines), 'tombstone')}; {again} found and erased again.")


@command("verify", group=group)
async def verify(call: Call, file: Receipt) -> None:
    """Verify a receipt: nothing that it lists is in the database, and nothing names the person.

    With PALAVER_AUDIT_KEY, also check that the receipt was signed with this key.

    Example:

      palaver erasures verify ada-receipt.json
    """
    receipt = _read(file)
    async with existing(call, embedder="none") as store:
        await _as_administrator(store).check_erasure(receipt, audit_key=_audit_key())
    counts = {kind: len(ids) for kind, ids in receipt.erased.items()}
    if call.as_json:
        emit({"ok": True, "counts": counts, "signed": receipt.signature is not None})
    else:
        say(f"ok  {sum(counts.values()):,} items are gone, and nothing names the person.")


def _read(file: Path) -> ErasureReceipt:
    from palaver.audit.erasure import read_receipt

    try:
        fields = json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        raise InvalidInput("receipt", "is not JSON") from None
    return read_receipt(fields)
