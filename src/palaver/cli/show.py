"""`palaver show`: the turns of a conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, cast

import typer

from palaver.cli.app import Call, Name, command
from palaver.cli.database import existing, find
from palaver.cli.filters import Actors, Conditions, Since, Until, build_where
from palaver.cli.output import (
    emit,
    note,
    say,
    show_turn,
    wire,
)
from palaver.model import ROLES

if TYPE_CHECKING:
    from palaver.model import ConversationInfo, Role

PANEL = "Read"
EVERYTHING = 100_000


def title(info: ConversationInfo) -> str:
    """Return the name of a conversation in a list."""
    return info.title or info.preview or ""


def _roles(text: str | None) -> list[str] | None:
    roles = None if text is None else [role.strip() for role in text.split(",") if role.strip()]
    unknown = set(roles or ()) - set(ROLES)
    if unknown:
        raise typer.BadParameter(f"{sorted(unknown)[0]!r} is not one of {', '.join(ROLES)}", param_hint="--roles")
    return roles


@command("show", PANEL)
async def show(
    call: Call,
    conversation: Name,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=EVERYTHING, help="Number of latest turns.")] = 50,
    before: Annotated[str | None, typer.Option(metavar="TURN", help="Only turns before the one with this id.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Include superseded and aborted turns.")] = False,
    roles: Annotated[
        str | None, typer.Option(metavar="ROLES", help="Only turns with these roles, separated by commas.")
    ] = None,
    where: Conditions = None,
    actor: Actors = None,
    since: Since = None,
    until: Until = None,
) -> None:
    """Show the turns of a conversation, oldest first.

    Examples:

      palaver show support/42
      palaver show support/42 --limit 5 --roles user,assistant
      palaver show support/42 --all --json
      palaver show support/42 --where topic=billing --where "priority>=3" --since 2026-01-01
    """
    wanted = cast("list[Role] | None", _roles(roles))
    async with existing(call) as store:
        talk = await find(store, conversation)
        only = build_where(where, actor, None, since, until)
        turns = await talk.history(limit, before=before, include_superseded=everything, roles=wanted, where=only)
    if call.as_json:
        for turn in turns:
            emit(wire(turn))
        return
    for turn in turns:
        show_turn(turn)
    if not turns:
        say("No turns.")
    elif talk.info.summarized_through:
        note(f"Summarised: the turns before #{talk.info.summarized_through}. palaver summaries {conversation}")
    if len(turns) == limit and turns[0].position > 0:
        note(f"Earlier turns: palaver show {conversation} --before {turns[0].id}")
