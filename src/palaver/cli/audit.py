"""`palaver audit`: print the log, or the anchors of all logs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Annotated

import typer

from palaver.cli.app import Call, Name, command
from palaver.cli.database import existing, find
from palaver.cli.output import emit, event_line, say, wire
from palaver.conversations.internals import clock_of, engine_of
from palaver.errors import ConversationGone

if TYPE_CHECKING:
    from palaver.conversations.store import Store
from palaver.cli.tail import PAGE, After

PANEL = "Log"


async def _log_id(store: Store, name: str) -> str:
    """The id to read a log by. The log of a deleted conversation is there still, by its id only."""
    try:
        return (await find(store, name)).id
    except ConversationGone:
        return name


@command("audit", PANEL)
async def audit(
    call: Call,
    conversation: Name,
    after: After = 0,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=100_000, help="Maximum number of events.")] = 1_000,
    kind: Annotated[list[str] | None, typer.Option(help="Only events of this kind. May be repeated.")] = None,
    actor: Annotated[list[str] | None, typer.Option(help="Only events of this actor. May be repeated.")] = None,
    turn: Annotated[str | None, typer.Option(help="Only events about the turn with this id.")] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="Only from this time on (ISO 8601).")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Only before this time (ISO 8601).")] = None,
) -> None:
    """Print the log of a conversation: who did what, and when.

    The log of a deleted conversation is kept. To read it, give the id of the conversation.

    `palaver audit anchor` prints the end of every log. Keep this list outside the database. `palaver verify --anchors`
    compares it with the logs later, and detects a log that was cut short or rewritten. With PALAVER_AUDIT_KEY, each
    line is signed.

    Examples:

      palaver audit support/42
      palaver audit support/42 --kind forget --since 2026-01-01
      palaver audit anchor > anchors.jsonl
    """
    if conversation == ANCHOR:
        await anchor(call)
        return
    async with existing(call) as store:
        events = await store.audit(
            await _log_id(store, conversation),
            after=after,
            limit=limit,
            kinds=kind or None,
            actors=actor or None,
            turn=turn,
            since=since,
            until=until,
        )
    for event in events:
        if call.as_json:
            emit(wire(event))
        else:
            say(event_line(event))
    if not events and not call.as_json:
        say("No events.")


ANCHOR = "anchor"


async def anchor(call: Call) -> None:
    """Print one line of JSON per conversation of the tenant: its last event, that event's hash, and a seal."""
    from palaver.audit.seals import clean_sealing_key, sealed

    text = os.environ.get("PALAVER_AUDIT_KEY")
    key = clean_sealing_key(text.encode()) if text else None
    async with existing(call, embedder="none") as store:
        now, after = clock_of(store).now(), ""
        while tips := await engine_of(store).tips(store.scope, after, PAGE):
            seals = [sealed(key, store.scope.tenant, tip, now) for tip in tips] if key else []
            if seals:
                await engine_of(store).put_seals(store.scope.tenant, seals)
            for number, tip in enumerate(tips):
                line = {"tenant": store.scope.tenant, "conversation": tip.conversation, "n": tip.n, "tip": tip.hash}
                emit({**line, "at": now.isoformat(), **({"seal": seals[number].seal} if seals else {})})
            after = tips[-1].conversation
