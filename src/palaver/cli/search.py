"""`palaver search`: find conversations or turns by words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from palaver.cli.app import Call, command
from palaver.cli.database import existing, find
from palaver.cli.filters import Actors, Conditions, Roles, Since, Until, build_where
from palaver.cli.output import (
    clean,
    emit,
    match_wire,
    say,
    show_match,
    wire,
)

if TYPE_CHECKING:
    from palaver.conversations.store import Store
    from palaver.core.filters import Where
    from palaver.model import ConversationMatch
from palaver.cli.show import title

PANEL = "Read"


@command("search", PANEL)
async def search(
    call: Call,
    text: Annotated[list[str], typer.Argument(metavar="TEXT", help="Words to search for.", show_default=False)],
    conversation: Annotated[
        str | None,
        typer.Option("--in", metavar="CONVERSATION", help="Search the turns of this conversation (id or key)."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1_000, help="Maximum number of results.")] = 20,
    where: Conditions = None,
    actor: Actors = None,
    role: Roles = None,
    since: Since = None,
    until: Until = None,
) -> None:
    """Find conversations that contain all of these words. With --in, find turns that contain any of them.

    Forms of a word match each other, such as test and tests. The last word may be a prefix.

    Examples:

      palaver search allergic to peanuts
      palaver search --in support/42 refund
      palaver search refund --where topic=billing --role user
    """
    words, wanted = " ".join(text), build_where(where, actor, role, since, until)
    async with existing(call) as store:
        if conversation is not None:
            found = await _search_turns(call, store, conversation, words, limit, wanted)
        else:
            found = await _search_conversations(call, store, words, limit, wanted)
    if not found and not call.as_json:
        say("Nothing found.")


async def _search_turns(
    call: Call, store: Store, conversation: str, words: str, limit: int, where: Where | None
) -> int:
    matches = await (await find(store, conversation)).search(words, limit, where=where)
    for match in matches:
        if call.as_json:
            emit(match_wire(match))
        else:
            show_match(match)
    return len(matches)


async def _search_conversations(call: Call, store: Store, words: str, limit: int, where: Where | None) -> int:
    found = await store.search(words, limit=limit, where=where)
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
