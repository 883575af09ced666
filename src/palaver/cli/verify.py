"""`palaver verify`: check every hash, log and file."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from palaver.audit.seals import check_seals, check_tip
from palaver.cli.app import Call, command
from palaver.cli.database import existing, to_verify
from palaver.cli.output import complain, counted, emit, say, wire
from palaver.conversations.internals import engine_of
from palaver.errors import (
    AttachmentNotFound,
    ConversationNotFound,
    InvalidInput,
    VerificationFailed,
)
from palaver.model import Tip

if TYPE_CHECKING:
    from palaver.conversations.conversation import Conversation
    from palaver.conversations.store import Store

PANEL = "Maintenance"


@command("verify", PANEL)
async def verify(
    call: Call,
    conversations: Annotated[
        list[str] | None, typer.Argument(metavar="CONVERSATION", help="Ids or keys of conversations. Default: all.")
    ] = None,
    anchors: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also compare the logs with this output of `palaver audit anchor`."),
    ] = None,
    archive: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="File that `palaver archive` wrote. May be repeated.")
    ] = None,
) -> None:
    """Recompute every hash, replay the log and read every file. Report the first bad row of each conversation.

    With PALAVER_AUDIT_KEY, the seals of a server are checked as well. The exit status is 1 if anything was changed or
    is missing.

    Examples:

      palaver verify
      palaver verify support/42 --json
      palaver verify --anchors anchors.jsonl
    """
    async with existing(call) as store:
        talks = await to_verify(store, conversations or [])
        archived = [line for file in archive or [] for line in file.read_text(encoding="utf-8").splitlines()]
        sound = [await _verify_conversation(call, store, talk, archived) for talk in talks]
        if anchors is not None:
            lines = [line for line in anchors.read_text().splitlines() if line.strip()]
            sound += [await _check_anchor(call, store, line) for line in lines]
    if not call.as_json and not talks:
        say(f"No conversations in the tenant '{call.tenant}'.")
    elif not call.as_json:
        say(f"{counted(sum(sound[: len(talks)]), 'conversation')} of {len(talks):,} verified.")
    if not all(sound):
        raise typer.Exit(1)


async def _check_anchor(call: Call, store: Store, line: str) -> bool:
    """Check that a log still contains an event that was noted elsewhere."""
    try:
        found = json.loads(line)
        tip = Tip(conversation=found["conversation"], n=found["n"], hash=found["tip"])
    except (ValueError, KeyError, TypeError):
        raise InvalidInput("anchors", "is not what `palaver audit anchor` prints") from None
    try:
        await check_tip(engine_of(store), store.scope, tip)
    except (VerificationFailed, ConversationNotFound) as problem:
        complain(problem, as_json=call.as_json)
        return False
    return True


async def _verify_conversation(call: Call, store: Store, talk: Conversation, archived: list[str]) -> bool:
    name, key = talk.key or talk.id, os.environ.get("PALAVER_AUDIT_KEY")
    try:
        found = await talk.verify(archive=archived)
        if key:
            await check_seals(engine_of(store), key.encode(), store.scope, talk.id)
    except (VerificationFailed, AttachmentNotFound) as problem:
        if call.as_json:
            emit({"conversation": talk.id, "key": talk.key, "ok": False, "problem": str(problem)})
        complain(problem, as_json=call.as_json)
        return False
    if call.as_json:
        emit({**wire(found), "key": talk.key, "ok": True})
    else:
        counts = f"{counted(found.turns, 'turn')}, {counted(found.events, 'event')}"
        missing = f", {counted(found.archived, 'event')} in an archive that was not given" if found.archived else ""
        early = f", {counted(found.unproven, 'derived row')} from before rows were proved" if found.unproven else ""
        say(f"ok  {name}  {counts}, {counted(found.attachments, 'file')}{missing}{early}")
    return True
