"""`palaver reset`: forget every turn of a conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from palaver.cli.app import Call, Name, Yes, command
from palaver.cli.database import existing, find
from palaver.cli.output import counted

if TYPE_CHECKING:
    pass
from palaver.cli.forget import confirm, delete_and_warn, report_deletion

PANEL = "Delete"


@command("reset", PANEL)
async def reset(call: Call, conversation: Name, yes: Yes = False) -> None:
    """Delete every turn of a conversation permanently, and keep the conversation. Turn numbers continue.

    Example:

      palaver reset support/42
    """
    async with existing(call) as store:
        talk = await find(store, conversation)
        count = counted(talk.info.turn_count, "turn")
        confirm(f"Forget the {count} of {conversation}?", yes=yes)
        scrubbed = await delete_and_warn(talk.reset(), as_json=call.as_json)
    report_deletion(call, f"Forgot the {count} of {conversation}.", conversation=talk.id, scrubbed=scrubbed)
