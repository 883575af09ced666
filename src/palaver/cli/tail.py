"""`palaver tail`: follow a conversation."""

from __future__ import annotations

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
    from palaver.model import Event, Turn

PANEL = "Log"
PAGE = 1_000
SPOKEN = ("append", "chunk")  # events with text to show
MOST = 2**53

After = Annotated[int, typer.Option(min=0, max=MOST, metavar="N", help="Only events after the one with this number.")]


@command("tail", PANEL)
async def tail(
    call: Call,
    conversation: Name,
    after: After = 0,
    once: Annotated[bool, typer.Option("--once", help="Print the stored events, and exit.")] = False,
) -> None:
    """Follow a conversation live: every event with its text, even while a turn is being written.

    To continue later without gaps or repetition, pass the number of the last event to --after. Ctrl-C ends the command.

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
    """Reads the turns of events. Events of one stream share a read if it has enough text."""

    def __init__(self, talk: Conversation) -> None:
        self._talk = talk
        self._last: Turn | None = None

    async def turn_of(self, event: Event) -> Turn | None:
        """Return the turn of an event that added text; None if it added none or the turn was forgotten."""
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
    """Return the text that the event added to its turn; None if it added none or it was forgotten."""
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
    """Prints events for people: a stream grows on one line, every other event is a block."""

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
