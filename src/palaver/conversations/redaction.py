"""Redaction on the write path: of conversations, turns, notes, and streams whose end may still become a secret."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from palaver.conversations.handle import Handle
from palaver.core.bounded_dict import BoundedDict
from palaver.core.concurrency import run_in_strides
from palaver.core.strides import LARGE, size_of
from palaver.errors import InvalidInput
from palaver.model import ConversationInfo
from palaver.ports.queries import StreamChunk
from palaver.redaction.apply import redact_calls, redact_content, redact_json, redact_results

if TYPE_CHECKING:
    from palaver.redaction import Redactor, StreamRedactor

REDACTED_FIELDS = {
    "tool_calls": redact_calls,
    "tool_results": redact_results,
    "sources": redact_json,
    "metadata": redact_json,
}
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

    async def redact_text(self, text: str) -> str:
        return await redact_in_strides(self.redactor, text) if self.is_on else text

    async def redact_note(self, text: str) -> str:
        """Redact a note of a person. Notes are part of memory, which never holds a secret."""
        return await redact_in_strides(self.redactor, text)

    def redact_turn(self, content: Any, fields: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Redact the content and all fields of a turn except its actor. Run it in strides: a turn may be large."""
        if not self.is_on:
            return content, dict(fields)
        redact = self.redactor.redact
        changed = {
            name: change(fields[name], redact) for name, change in REDACTED_FIELDS.items() if is_given(fields.get(name))
        }
        if self._is_secret(fields.get("idempotency_key")):
            changed["hash_key"] = True
        return redact_content(content, redact), {**fields, **changed}

    def redact_filename(self, name: str | None) -> str | None:
        """Redact the name of a file, and keep its ending if that is not part of a secret."""
        if not self.is_on or not self._is_secret(name):
            return name
        stem, dot, ending = str(name).rpartition(".")
        kept = f"{self.redactor.redact(stem).text}{dot}{ending}"
        return self.redactor.redact(str(name)).text if not stem or self._is_secret(kept) else kept

    def check_identity(self, field: str, name: str) -> None:
        """Refuse the name of a speaker that holds a secret, unless the conversation has that name already."""
        info = self.handle.info
        if self.is_on and name not in (info.owner, info.agent, *info.participants):
            check_identity(field, name, self.redactor)

    def _is_secret(self, value: object) -> bool:
        return isinstance(value, str) and bool(self.redactor.redact(value[:LARGE]).findings)

    def open_stream(self) -> StreamRedactor | None:
        """Return a redactor for one stream; None when this conversation is not redacted."""
        return new_stream_redactor(self.redactor) if self.is_on else None


def new_stream_redactor(redactor: Redactor) -> StreamRedactor:
    from palaver.redaction.stream import StreamRedactor  # loads the rules

    return StreamRedactor(redactor)


async def redact_in_strides(redactor: Redactor, text: str) -> str:
    return await run_in_strides(lambda: redactor.redact(text).text, len(text))


def is_given(value: object) -> bool:
    """Return whether a field has a value of the form that is redacted. Another one is refused later."""
    return bool(value) and isinstance(value, Mapping | list | tuple)


def check_identity(field: str, name: object, redactor: Redactor) -> None:
    """Refuse a name that holds a secret. It is not replaced: two people would become one."""
    if isinstance(name, str) and (found := redactor.redact(name[:LARGE]).findings):
        raise InvalidInput(
            field,
            f"holds what looks like a secret or personal data ({found[0].kind}), and this conversation is redacted: "
            "names are never changed, so use an id that holds none",
        )


async def redact_details(
    fields: Mapping[str, Any], stored: ConversationInfo | None, redactor: Redactor
) -> Mapping[str, Any]:
    """Redact the title and the metadata of a conversation that asks for it, and check the names that are new."""
    settings = fields.get("settings", stored.settings if stored else None)
    if not isinstance(settings, Mapping) or not settings.get("redact"):
        return fields
    begins = stored is None or not stored.settings.get("redact")
    for name, one in _names(fields, stored if begins else None):
        if begins or stored is None or one not in (stored.owner, stored.agent, *stored.participants):
            check_identity(name, one, redactor)
    changed = {name: fields[name] for name in ("title", "metadata") if isinstance(fields.get(name), str | Mapping)}
    work = partial(redact_json, list(changed.values()), redactor.redact)
    clean = await run_in_strides(work, size_of(list(changed.values())))
    return {**fields, **dict(zip(changed, clean, strict=True))}


def _names(fields: Mapping[str, Any], stored: ConversationInfo | None) -> Iterator[tuple[str, object]]:
    """Yield the names in the fields, and those of a stored conversation that is redacted from now on."""
    for field_name in ("owner", "agent", "participants"):
        given = fields.get(field_name, getattr(stored, field_name, None))
        for one in given if isinstance(given, list | tuple) else (given,):
            yield field_name, one


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
