"""Erasing a person: erase-user, and what it leaves: erasures list, export, import, verify."""

from __future__ import annotations

import json
import os
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

group = typer.Typer(no_args_is_help=True, help="People who were erased: list, export, import, verify a receipt.")
app.add_typer(group, name="erasures", rich_help_panel="Maintenance")

File = Annotated[Path, typer.Argument(metavar="FILE", show_default=False)]


def _as_administrator(store: Store) -> Store:
    """Anyone who can open the database may erase a person."""
    return store.scoped(Scope.of(store.scope.tenant, None))


def _audit_key() -> bytes | None:
    text = os.environ.get("PALAVER_AUDIT_KEY")
    return text.encode() if text else None


@command("erase-user", "Delete")
async def erase_user(
    call: Call,
    person: Annotated[str, typer.Argument(metavar="USER", help="The user's id.", show_default=False)],
    receipt: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the receipt here.")] = None,
    yes: Yes = False,
) -> None:
    """Erase a person for good: their conversations, their turns elsewhere, files, notes, keys, and their name.

    The words of others about them stay. The receipt lists what was erased, by ids; with PALAVER_AUDIT_KEY it is signed.
    Safe to repeat: an interrupted erasure is continued.

    Examples:

      palaver erase-user ada --receipt ada-receipt.json
      palaver erase-user ada --yes --json
    """
    from palaver.audit.erasure import receipt_fields

    async with existing(call) as store:
        confirm(f"Erase {person} and everything of theirs?", yes=yes)
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
        note("--receipt FILE or --json would keep the receipt.")
    if not done.scrubbed:
        note("A reader or a full disk keeps some bytes: the next sweep removes them.")


@command("list", group=group)
async def list_(call: Call) -> None:
    """List who was erased, by a digest of the name and the time.

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
    """Print the tombstones as lines of JSON: digests of names, and no name.

    Keep them apart from backups: an older backup does not know who was erased later.

    Example:

      palaver erasures export > erasures.jsonl
    """
    from palaver.interchange.erasures import erasure_lines

    async with existing(call, embedder="none") as store:
        for line in await erasure_lines(_as_administrator(store)):
            typer.echo(line)


@command("import", group=group)
async def import_(call: Call, file: File) -> None:
    """Take over tombstones, and erase again what came back: to be run after an older backup was restored.

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
async def verify(call: Call, file: File) -> None:
    """Check a receipt: that nothing which it lists is there, and nothing names the person; with PALAVER_AUDIT_KEY also
    that it was signed with this key.

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
