"""Commands that look: ls, show, search, branches."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, cast

import typer

from palaver.cli.app import Call, Name, command
from palaver.cli.database import existing, find
from palaver.cli.output import (
    body,
    clean,
    counted,
    emit,
    heading,
    local,
    match_wire,
    note,
    say,
    show_match,
    show_turn,
    table,
    wire,
)
from palaver.model import ROLES

if TYPE_CHECKING:
    from palaver.conversations.store import Store
    from palaver.model import ConversationInfo, ConversationMatch, Role

PANEL = "Read"
EVERYTHING = 100_000


def title(info: ConversationInfo) -> str:
    """What to call a conversation in a list."""
    return info.title or info.preview or ""


# ---- ls ------------------------------------------------------------------------------------------------------------


@command("ls", PANEL)
async def ls(
    call: Call,
    owner: Annotated[str | None, typer.Option(help="Only this owner's.")] = None,
    workspace: Annotated[str | None, typer.Option(help="Only in this workspace.")] = None,
    agent: Annotated[str | None, typer.Option(help="Only with this agent.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=EVERYTHING, help="How many.")] = 50,
    cursor: Annotated[str | None, typer.Option(help="Go on where the last page ended.")] = None,
) -> None:
    """List conversations, the most recently used first.

    Examples:

      palaver ls
      palaver ls --user ada --limit 10
      palaver ls --json | jq -r .id
    """
    async with existing(call) as store:
        page = await store.conversations(owner=owner, workspace=workspace, agent=agent, limit=limit, cursor=cursor)
    if call.as_json:
        for info in page.items:
            emit(wire(info))
    elif page.items:
        _list(page.items)
    else:
        say("No conversations.")
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


# ---- show ----------------------------------------------------------------------------------------------------------


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
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=EVERYTHING, help="The latest so many turns.")] = 50,
    before: Annotated[str | None, typer.Option(metavar="TURN", help="Only what came before this turn.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Also superseded and aborted turns.")] = False,
    roles: Annotated[str | None, typer.Option(metavar="ROLES", help="Only these, with commas between.")] = None,
) -> None:
    """Show the turns of a conversation, oldest first.

    Examples:

      palaver show support/42
      palaver show support/42 --limit 5 --roles user,assistant
      palaver show support/42 --all --json
    """
    wanted = cast("list[Role] | None", _roles(roles))
    async with existing(call) as store:
        talk = await find(store, conversation)
        turns = await talk.history(limit, before=before, include_superseded=everything, roles=wanted)
    if call.as_json:
        for turn in turns:
            emit(wire(turn))
        return
    for turn in turns:
        show_turn(turn)
    if not turns:
        say("No turns.")
    elif len(turns) == limit and turns[0].position > 0:
        note(f"Earlier turns: palaver show {conversation} --before {turns[0].id}")


# ---- search --------------------------------------------------------------------------------------------------------


@command("search", PANEL)
async def search(
    call: Call,
    text: Annotated[list[str], typer.Argument(metavar="TEXT", help="Words to look for.", show_default=False)],
    conversation: Annotated[
        str | None, typer.Option("--in", metavar="CONVERSATION", help="Only turns of this conversation.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1_000, help="How many.")] = 20,
) -> None:
    """Find conversations that hold all of these words; with --in, turns that hold any of them.

    Word forms count as the same word, and the last word may be the beginning of one.

    Examples:

      palaver search allergic to peanuts
      palaver search --in support/42 refund
    """
    words = " ".join(text)
    async with existing(call) as store:
        if conversation is not None:
            found = await _search_turns(call, store, conversation, words, limit)
        else:
            found = await _search_conversations(call, store, words, limit)
    if not found and not call.as_json:
        say("Nothing found.")


async def _search_turns(call: Call, store: Store, conversation: str, words: str, limit: int) -> int:
    matches = await (await find(store, conversation)).search(words, limit)
    for match in matches:
        if call.as_json:
            emit(match_wire(match))
        else:
            show_match(match)
    return len(matches)


async def _search_conversations(call: Call, store: Store, words: str, limit: int) -> int:
    found = await store.search(words, limit=limit)
    for one in found:
        if call.as_json:
            matches = [match_wire(match) for match in one.matches]
            emit({"conversation": wire(one.conversation), "in_title": one.in_title, "matches": matches})
        else:
            _show_found(one)
    return len(found)


def _show_found(found: ConversationMatch) -> None:
    from rich.text import Text

    info = found.conversation
    say(Text(clean("  ".join(part for part in (info.key or info.id, title(info)) if part)), "bold underline"))
    for match in found.matches:
        show_match(match)


# ---- branches ------------------------------------------------------------------------------------------------------


@command("branches", PANEL)
async def branches(call: Call, conversation: Name) -> None:
    """Show the places where a conversation has more than one version.

    Example:

      palaver branches support/42
    """
    async with existing(call) as store:
        found = await (await find(store, conversation)).branches()
    for branch in found:
        if call.as_json:
            active = branch.active.id if branch.active else None
            emit({"position": branch.position, "active": active, "turns": [wire(turn) for turn in branch.turns]})
            continue
        say(f"At position {branch.position}: {counted(len(branch.turns), 'version')}")
        for turn in branch.turns:
            say(heading(turn), *body(turn))
        say("")
    if not found and not call.as_json:
        say("No branches: every turn has one version.")
