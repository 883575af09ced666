"""Redaction on the write path: of whole turns, and of streams whose end may still turn out to be a secret."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from palaver.conversations.handle import Handle
from palaver.core.bounded_dict import BoundedDict
from palaver.errors import InvalidInput
from palaver.ports.queries import StreamChunk
from palaver.redaction.apply import redact_calls, redact_content, redact_json, redact_results

if TYPE_CHECKING:
    from palaver.redaction import Redactor, StreamRedactor

MAX_STREAMS = 10_000  # streams of remote writers; when there are more, the oldest have lost their writers
LOST = "the text held back from this stream was lost when its process ended: abort it, and start again"


@dataclass(frozen=True, slots=True)
class TurnRedaction:
    """Removes secrets from the turns of one conversation, if its settings ask for that."""

    handle: Handle
    redactor: Redactor

    @property
    def is_on(self) -> bool:
        return bool(self.handle.info.settings.get("redact"))

    def redact_text(self, text: str) -> str:
        return self.redactor.redact(text).text if self.is_on else text

    def redact_turn(self, content: Any, fields: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Redact content, tool calls, tool results and sources. Metadata belongs to the application and stays."""
        if not self.is_on:
            return content, dict(fields)
        redact = self.redactor.redact
        changed = {
            name: change(fields[name], redact)
            for name, change in (
                ("tool_calls", redact_calls),
                ("tool_results", redact_results),
                ("sources", redact_json),
            )
            if fields.get(name)
        }
        return redact_content(content, redact), {**fields, **changed}

    def open_stream(self) -> StreamRedactor | None:
        """Return a redactor for one stream; None when this conversation is not redacted."""
        return new_stream_redactor(self.redactor) if self.is_on else None


def new_stream_redactor(redactor: Redactor) -> StreamRedactor:
    from palaver.redaction.stream import StreamRedactor  # loads the rules

    return StreamRedactor(redactor)


@dataclass(slots=True)
class HeldBackText:
    """The redaction of a stream whose pieces a remote writer sends one by one.

    A piece keeps its number and may become empty; its text is then stored with a later piece. A repeated piece is not
    read again.
    """

    redactor: StreamRedactor
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _next: int = 0
    _last: str = ""
    _rest: str = ""

    def take(self, number: int, text: str) -> StreamChunk:
        """Read a piece and return the piece to store now."""
        if number > self._next:
            waits = f"chunk {self._next} has not arrived yet, so chunk {number} cannot be stored"
            raise InvalidInput("n", waits if self._next else f"{waits}; or else {LOST}")
        if number == self._next:
            self._last = self.redactor.feed(text)
            self._next += 1
        return StreamChunk(n=self._next - 1, text=self._last)

    def finish(self) -> StreamChunk:
        """Return the rest as a piece of its own."""
        self._rest += self.redactor.finish()
        return StreamChunk(n=self._next, text=self._rest)


class HeldBackStreams:
    """The redacted streams of remote writers in this process, by turn id."""

    def __init__(self, redactor: Redactor, limit: int = MAX_STREAMS) -> None:
        self._redactor = redactor
        self._streams: BoundedDict[str, HeldBackText] = BoundedDict(limit)

    def __contains__(self, turn: str) -> bool:
        return turn in self._streams

    def get(self, turn: str) -> HeldBackText | None:
        return self._streams.get(turn)

    def get_or_open(self, turn: str) -> HeldBackText:
        if turn not in self._streams:
            self._streams[turn] = HeldBackText(new_stream_redactor(self._redactor))
        return self._streams[turn]

    def drop(self, turn: str) -> None:
        self._streams.pop(turn, None)
