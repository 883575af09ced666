"""A log of labelled values, for adapters whose framework keeps more than talk.

It is a conversation of the kind `state`, or `items` if its values have a text to be found by. A value is any bytes, up
to `MAX_VALUE`. It is compressed, and split over several turns if it is large; they are stored in one transaction.
Labels are a small JSON object. Nothing is cached: what was deleted elsewhere is not returned.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any, TypeVar

from palaver import (
    Conversation,
    ConversationGone,
    ConversationNotFound,
    ConversationSettings,
    Kind,
    Store,
    Text,
    TooLarge,
    Turn,
    TurnGone,
    TurnInput,
    TurnNotFound,
    data_part,
)

T = TypeVar("T")

MAX_KEY = 512  # bytes
PIECE = 3_000_000  # bytes in one turn, which takes 5,000,000 of base64
MAX_VALUE = 200_000_000
BATCH_BYTES = 30_000_000  # of values that one transaction copies
PAGE = 100
READERS = 16  # turns that are read at once
LARGE = 200_000
SMALL = 200  # bytes that are not worth compressing


@dataclass(frozen=True, slots=True)
class Entry:
    """One value of the log. `number` is its place, `pieces` the number of turns that hold it."""

    turn: str
    number: int
    labels: Mapping[str, Any]
    pieces: int
    stored: datetime


@dataclass(frozen=True, slots=True)
class Value:
    """A value to store. `text` is what it is found by, in a conversation of the kind `items`."""

    labels: Mapping[str, Any]
    data: bytes
    text: str = ""


@dataclass(slots=True)
class StateLog:
    """The values of one state conversation, in the order in which they were stored."""

    talk: Conversation
    last: str | None = None  # the turn up to which `read_new` has read
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    piece: int = PIECE
    max_value: int = MAX_VALUE

    @classmethod
    async def open(
        cls, store: Store, key: str, agent: str, metadata: Mapping[str, Any], kind: Kind = "state"
    ) -> StateLog:
        """Open the log with this key, and create it if there is none."""
        settings: ConversationSettings = {"kind": kind}
        return cls(await store.conversation(key, agent=agent, metadata=metadata, settings=settings))

    @classmethod
    async def find(cls, store: Store, key: str) -> StateLog | None:
        """Return the log with this key; None if there is none."""
        try:
            return cls(await store.find(key))
        except (ConversationNotFound, ConversationGone):
            return None

    async def append(self, values: Sequence[Value], *, expected: int | None = None) -> None:
        """Store values together: all of them or none. With `expected`, only if the log has this many turns."""
        size = sum(len(value.data) for value in values)
        turns = await _in_thread(lambda: self._turns(values), size)
        await self.talk.append_many(turns, expected_seq=expected)

    def _turns(self, values: Sequence[Value]) -> list[TurnInput]:
        return [turn for value in values for turn in _turns(value, self.piece, self.max_value)]

    async def read_new(self) -> list[Entry]:
        """Return the entries that were stored since the last call, by anybody."""
        turns = await self._following() if self.last else await self._all()
        if turns:
            self.last = turns[-1].id
        return [entry for turn in turns if (entry := _entry(turn)) is not None]

    async def _following(self) -> list[Turn]:
        turns = page = await self._page(after=self.last)
        while len(page) == PAGE:
            page = await self._page(after=page[-1].id)
            turns = [*turns, *page]
        return turns

    async def _page(self, *, before: str | None = None, after: str | None = None) -> list[Turn]:
        """Return a page in the order of arrival. Positions are taken again after a deletion, seqs are not."""
        return await self.talk.history(PAGE, before=before, after=after, include_superseded=True)

    async def _all(self) -> list[Turn]:
        pages = [await self._page()]
        while len(pages[-1]) == PAGE:
            pages.append(await self._page(before=pages[-1][0].id))
        return [turn for page in reversed(pages) for turn in page]

    async def read(self, entries: Iterable[Entry]) -> list[bytes | None]:
        """Return the values of entries; None for one that was deleted since."""
        places = asyncio.Semaphore(READERS)

        async def one(entry: Entry) -> bytes | None:
            async with places:
                return await self._read(entry)

        return await asyncio.gather(*map(one, entries))

    async def _read(self, entry: Entry) -> bytes | None:
        try:
            last = await self.talk.turn(entry.turn)
            before = await self._pieces(last, entry.pieces - 1)
        except (TurnGone, TurnNotFound):
            return None
        data = b"".join(turn.data or b"" for turn in [*before, last])
        if not last.metadata.get("zip"):
            return data
        return await _in_thread(lambda: zlib.decompress(data), len(data))

    async def _pieces(self, last: Turn, count: int) -> list[Turn]:
        return await self.talk.history(count, before=last, include_superseded=True) if count else []

    async def forget(self, entries: Iterable[Entry]) -> None:
        """Delete values permanently."""
        for entry in entries:
            try:
                last = await self.talk.turn(entry.turn)
                before = await self._pieces(last, entry.pieces - 1)
                for turn in [*before, last]:
                    await self.talk.forget(turn)
            except (TurnGone, TurnNotFound):
                continue  # another process was first


def log_key(prefix: str, name: str) -> str:
    """Return the key of a log that belongs to `name`. A name that is too long for a key is hashed."""
    key = f"{prefix}/{name}"
    return key if len(key.encode()) <= MAX_KEY else f"{prefix}/{sha256(name.encode()).hexdigest()}"


async def _in_thread(work: Callable[[], T], size: int) -> T:
    """Do work on bytes: at once, or in a thread if there are many. Both zlib and base64 release the interpreter."""
    return await asyncio.to_thread(work) if size > LARGE else work()


def _turns(value: Value, most: int, max_value: int) -> list[TurnInput]:
    """Return the turns that hold a value, each with at most `most` bytes of it."""
    data = value.data
    if len(data) > max_value:
        raise TooLarge("value", size=len(data), limit=max_value, unit="bytes")
    packed = zlib.compress(data, 1) if len(data) > SMALL else data
    is_packed = len(packed) < len(data)
    raw = packed if is_packed else data
    pieces = [raw[start : start + most] for start in range(0, len(raw), most)] or [b""]
    metadata = {"labels": dict(value.labels), "pieces": len(pieces), **({"zip": True} if is_packed else {})}
    inner = [_turn(piece, {"piece": True}) for piece in pieces[:-1]]
    return [*inner, _turn(pieces[-1], metadata, value.text)]


def _turn(data: bytes, metadata: Mapping[str, Any], text: str = "") -> TurnInput:
    words = [Text(text)] if text else []
    return {"role": "assistant", "content": [*words, data_part(data)], "metadata": metadata}


def _entry(turn: Turn) -> Entry | None:
    labels = turn.metadata.get("labels")
    if not isinstance(labels, Mapping):
        return None  # a piece, or a turn that another program stored
    return Entry(turn.id, turn.seq, labels, int(turn.metadata.get("pieces", 1)), turn.created)
