"""`palaver forget`: delete a turn or a conversation permanently."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from palaver.cli.app import Call, Name, Yes, command
from palaver.cli.database import existing, find
from palaver.cli.output import console, counted, emit, say, warn
from palaver.errors import PalaverError, ScrubPending
from palaver.models.registry import OFFLINE

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from palaver.conversations.conversation import Conversation
    from palaver.model import Turn

PANEL = "Delete"


class NotConfirmed(PalaverError):
    """Nothing was deleted, because the deletion was not confirmed."""


def confirm(question: str, *, yes: bool) -> None:
    """Return when the answer is yes; raise otherwise."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise NotConfirmed(
            "nothing was deleted: a permanent deletion must be confirmed, and there is no terminal. Add --yes"
        )
    console(stderr=True).print(f"{question} This cannot be undone. [y/N] ", end="")
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise NotConfirmed("nothing was deleted")


async def delete_and_warn(work: Awaitable[None], *, as_json: bool) -> bool:
    """Delete. False when old bytes stay in the WAL for now, which is a warning: the rows are gone."""
    try:
        await work
    except ScrubPending as pending:
        warn(pending, as_json=as_json)
        return False
    return True


@command("forget", PANEL)
async def forget(
    call: Call,
    conversation: Name,
    turn: Annotated[
        str | None, typer.Argument(help="Id of one turn. Without it, the whole conversation is deleted.")
    ] = None,
    yes: Yes = False,
) -> None:
    """Delete a turn, or a whole conversation, permanently: rows, index, files, and the bytes on disk.

    Offline answers that quote the turn are deleted with it. The log, which has no content, records the deletion.

    Examples:

      palaver forget support/42 01JD3VNWKQ5CR4W7E5H2Y0M8ZT
      palaver forget support/42 --yes
    """
    async with existing(call) as store:
        talk = await find(store, conversation)
        if turn is None:
            await _forget_conversation(call, talk, conversation, yes)
        else:
            await _forget_turn(call, talk, turn, yes)


async def _forget_conversation(call: Call, talk: Conversation, name: str, yes: bool) -> None:
    confirm(f"Forget the conversation {name} with {counted(talk.info.turn_count, 'turn')}?", yes=yes)
    scrubbed = await delete_and_warn(talk.forget(), as_json=call.as_json)
    done = f"Forgot the conversation {name}. Its log stays: palaver audit {talk.id}"
    report_deletion(call, done, conversation=talk.id, turns=None, scrubbed=scrubbed)


async def _forget_turn(call: Call, talk: Conversation, turn: str, yes: bool) -> None:
    known = await talk.turn(turn)
    quotes = await find_quoting_answers(talk, known.id)
    more = f" and {counted(len(quotes), 'answer that quotes', 'answers that quote')} it" if quotes else ""
    confirm(f"Forget turn {known.seq} ({known.id}){more}?", yes=yes)
    # The quotes first: whatever stops this half-way, no quote outlives its turn unnoticed.
    ids = [*(one.id for one in quotes), known.id]
    scrubbed = [await delete_and_warn(talk.forget(id), as_json=call.as_json) for id in ids][-1]
    report_deletion(call, f"Forgot turn {known.seq}{more}.", conversation=talk.id, turns=ids, scrubbed=scrubbed)


def report_deletion(call: Call, sentence: str, **data: Any) -> None:
    if call.as_json:
        emit(data)
    else:
        say(sentence)


async def find_quoting_answers(talk: Conversation, turn: str) -> list[Turn]:
    """The offline answers that quote a turn. Forgetting the turn must forget these too."""
    answers = await talk.history(100_000, include_superseded=True, roles=["assistant"])
    offline = [one for one in answers if OFFLINE in (one.adapter, one.actor)]
    return [one for one in offline if any(source.get("turn") == turn for source in one.sources)]
