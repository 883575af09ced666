"""Arguments of the engine's methods for the memory of subjects."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from palaver.model import PERSON, ItemSource, ItemStatus, MemoryItem

MEMORY_KEYS = "palaver:memory/"  # the beginning of the key of a conversation that is the log of a subject's memory
MEMORY_OF_PERSON = f"{MEMORY_KEYS}{PERSON}"
ALL_ITEMS = 100_000  # that are read at once, at most


def memory_place(kind: str, id: str) -> tuple[str, str]:
    """Return the owner and the key of the conversation that holds the log of a subject's memory.

    The memory of a person belongs to that person, every other one to the application.
    """
    return (id, MEMORY_OF_PERSON) if kind == PERSON else ("", f"{MEMORY_KEYS}{kind}/{id}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemQuery:
    """Which items of a subject to read, newest first."""

    status: ItemStatus | None = "approved"
    kind: str | None = None
    include_ended: bool = False
    ids: tuple[str, ...] | None = None
    limit: int = ALL_ITEMS


class EndedItem(NamedTuple):
    """An item that ends: when that was learnt, and the item that takes its place."""

    id: str
    at: datetime
    by: str | None


class ItemWords(NamedTuple):
    """The words of an item, for ranking."""

    id: str
    kind: str
    subject: str
    predicate: str
    object: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemsDraft:
    """Changes of a subject's memory, in one transaction.

    `after` is the number of the last event when the items were read: nothing is stored if there is a later one. A
    source that is no longer in the active branch of its conversation is left out, and so is an item that came with
    sources and has none left.
    """

    event: str  # learn, remember, correct, approve
    new: tuple[MemoryItem, ...] = ()
    ended: tuple[EndedItem, ...] = ()
    approved: tuple[str, ...] = ()
    sources: tuple[tuple[str, ItemSource], ...] = ()  # of items that are stored already
    after: int | None = None
