"""Commands over the log: tail, audit."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from palaver.cli.app import Call, Name, command
from palaver.cli.database import existing, find
from palaver.cli.output import body, clean, console, emit, event_line, heading, say, wire
from palaver.errors import ConversationGone, ConversationNotFound, TurnGone, TurnNotFound

if TYPE_CHECKING:
    from rich.text import Text

    from palaver.conversations.conversation import Conversation
    from palaver.conversations.store import Store
    from palaver.model import Event, Turn

PANEL = "Follow"
PAGE = 1_000
SPOKEN = ("append", "chunk")  # events with text to show
MOST = 2**53

After = Annotated[int, typer.Option(min=0, max=MOST, metavar="N", help="Only events with a number above this one.")]


# ---- tail ----------------------------------------------------------------------------------------------------------


@command("tail", PANEL)
async def tail(
    call: Call,
    conversation: Name,
    after: After = 0,
    once: Annotated[bool, typer.Option("--once", help="Print what is there, and stop.")] = False,
) -> None:
    """Follow a conversation live: every event with its text, also while a turn is being written.

    Nothing is missed and nothing comes twice: to go on later, pass the last number to --after. Ctrl-C ends it.

    Examples:

      palaver tail support/42
      palaver tail support/42 --after 120 --json
      palaver tail support/42 --once
    """
    async with existing(call) as store:
        talk = await find(store, conversation)
        events = stored_events(talk, after) if once else talk.subscribe(after)
        reader, screen = TurnReader(talk), Screen()
        async for event in events:
            turn = await reader.turn_of(event)
            if call.as_json:
                emit(_event_wire(event, turn))
            else:
                screen.show(event, turn)
        screen.end_line()


async def stored_events(talk: Conversation, after: int) -> AsyncIterator[Event]:
    while page := await talk.audit(after=after, limit=PAGE):
        for event in page:
            yield event
        after = page[-1].n


class TurnReader:
    """Reads the turn that an event is about; the pieces of one stream share a reading where it suffices."""

    def __init__(self, talk: Conversation) -> None:
        self._talk = talk
        self._last: Turn | None = None

    async def turn_of(self, event: Event) -> Turn | None:
        """The turn, when the event says something and it was not forgotten since."""
        if event.turn is None or event.kind not in (*SPOKEN, "open"):
            return None
        if self._last is None or self._last.id != event.turn or len(self._last.text) < event.payload.get("to", 0):
            self._last = await self._read(event.turn)
        return self._last

    async def _read(self, id: str) -> Turn | None:
        try:
            turn = await self._talk.turn(id)
        except (ConversationGone, ConversationNotFound, TurnGone, TurnNotFound):
            return None  # deleted between the event and now; the log goes on to say so
        return None if turn.status == "forgotten" else turn


def text_of(event: Event, turn: Turn | None) -> str | None:
    """What the event added to its turn; None when it added nothing, or when that was forgotten."""
    if turn is None or event.kind not in SPOKEN:
        return None
    if event.kind == "chunk":
        return turn.text[event.payload["from"] : event.payload["to"]]
    return turn.text


def _event_wire(event: Event, turn: Turn | None) -> dict[str, Any]:
    data: dict[str, Any] = wire(event)
    data["role"] = None if turn is None else turn.role
    data["text"] = text_of(event, turn)
    return data


class Screen:
    """Events as people read them: a stream grows on its line, everything else is a block."""

    def __init__(self) -> None:
        self._open: str | None = None  # the turn whose text the cursor stands in

    def show(self, event: Event, turn: Turn | None) -> None:
        if event.kind == "chunk" and turn is not None:
            self._piece(event, turn)
            return
        self.end_line()
        if event.kind == "append" and turn is not None:
            say(_numbered(event, turn), *body(turn))
        elif event.kind not in ("open", "commit"):  # those two only frame the text
            say(event_line(event))

    def _piece(self, event: Event, turn: Turn) -> None:
        if self._open != turn.id:
            self.end_line()
            say(_numbered(event, turn))
            self._open = turn.id
        console().print(clean(text_of(event, turn) or ""), end="", soft_wrap=True)

    def end_line(self) -> None:
        if self._open is not None:
            say("")
            self._open = None


def _numbered(event: Event, turn: Turn) -> Text:
    from rich.text import Text

    return Text.assemble((f"{event.n:>6}  ", "dim"), heading(turn))


# ---- audit ---------------------------------------------------------------------------------------------------------


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
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=100_000, help="How many.")] = 1_000,
    kind: Annotated[list[str] | None, typer.Option(help="Only this kind; may be repeated.")] = None,
    actor: Annotated[list[str] | None, typer.Option(help="Only by this actor; may be repeated.")] = None,
    turn: Annotated[str | None, typer.Option(help="Only about this turn.")] = None,
    since: Annotated[str | None, typer.Option(metavar="TIME", help="From this time on (ISO 8601).")] = None,
    until: Annotated[str | None, typer.Option(metavar="TIME", help="Before this time (ISO 8601).")] = None,
) -> None:
    """Print the log: who did what, when. It outlives the conversation; then give the id.

    `anchor` in place of a conversation prints the end of every log, to be kept elsewhere: whoever holds such a list can
    tell later whether a log was cut short or written anew. With PALAVER_AUDIT_KEY each line is signed.

    Examples:

      palaver audit support/42
      palaver audit support/42 --kind forget --since 2026-01-01
      palaver audit anchor > tips.jsonl
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


# ---- anchors -------------------------------------------------------------------------------------------------------

ANCHOR = "anchor"


async def anchor(call: Call) -> None:
    """One line of JSON for each conversation of the tenant: its last event, that event's hash, and a seal."""
    from palaver.audit.seals import clean_sealing_key, sealed

    text = os.environ.get("PALAVER_AUDIT_KEY")
    key = clean_sealing_key(text.encode()) if text else None
    async with existing(call, embedder="none") as store:
        now, after = store.parts.clock.now(), ""
        while tips := await store.engine.tips(store.scope, after, PAGE):
            seals = [sealed(key, store.scope.tenant, tip, now) for tip in tips] if key else []
            if seals:
                await store.engine.put_seals(store.scope.tenant, seals)
            for number, tip in enumerate(tips):
                line = {"tenant": store.scope.tenant, "conversation": tip.conversation, "n": tip.n, "tip": tip.hash}
                emit({**line, "at": now.isoformat(), **({"seal": seals[number].seal} if seals else {})})
            after = tips[-1].conversation
