"""`palaver ls`: list conversations."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from palaver.cli.app import Call, command
from palaver.cli.database import existing
from palaver.cli.filters import Conditions, Since, Until, build_where
from palaver.cli.output import (
    emit,
    local,
    note,
    say,
    table,
    wire,
)

if TYPE_CHECKING:
    from palaver.model import ConversationInfo
from palaver.cli.show import EVERYTHING, title

PANEL = "Read"


@command("ls", PANEL)
async def ls(
    call: Call,
    owner: Annotated[str | None, typer.Option(help="Only conversations of this owner.")] = None,
    workspace: Annotated[str | None, typer.Option(help="Only conversations in this workspace.")] = None,
    agent: Annotated[str | None, typer.Option(help="Only conversations with this agent.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=EVERYTHING, help="Number of conversations.")] = 50,
    cursor: Annotated[
        str | None, typer.Option(help="Continue after the previous page, which printed this value.")
    ] = None,
    where: Conditions = None,
    participant: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only conversations with this owner or participant. May be repeated."),
    ] = None,
    since: Since = None,
    until: Until = None,
) -> None:
    """List conversations, most recently used first.

    Examples:

      palaver ls
      palaver ls --user ada --limit 10
      palaver ls --json | jq -r .id
      palaver ls --where plan=pro --since 2026-01-01
    """
    async with existing(call) as store:
        wanted = build_where(where, participant, None, since, until)
        page = await store.conversations(
            owner=owner, workspace=workspace, agent=agent, limit=limit, cursor=cursor, where=wanted
        )
    if call.as_json:
        for info in page.items:
            emit(wire(info))
    elif page.items:
        _list(page.items)
    else:
        filtered = any((wanted, owner, workspace, agent, call.user))
        say(f"No conversations {'match ' if filtered else ''}in the tenant '{call.tenant}'.")
    if page.cursor:
        note(f"There are more: palaver ls --cursor {page.cursor}")


def _list(items: tuple[ConversationInfo, ...]) -> None:
    from rich.text import Text

    from palaver.core.pagination import group_by_date

    rows: list[list[str | Text]] = []
    now = datetime.now(UTC)
    for group, members in group_by_date(items, now, datetime.now().astimezone().tzinfo or UTC):
        rows.append([Text(group, "dim")])
        for info in members:
            updated = local(info.updated, "%Y-%m-%d %H:%M")
            rows.append([info.id, info.key or "", info.owner, f"{info.turn_count:,}", updated, title(info)])
    table(("id", "key", "owner", "turns", "updated", "title"), rows, wide="title")
