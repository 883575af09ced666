"""Rows of memory, read so that a damaged one is left out and reported, and the others are used. For both engines."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import msgspec

from palaver.core.identity import from_json
from palaver.engines.rows import DAMAGED
from palaver.errors import InvalidInput
from palaver.memory import working_memory
from palaver.model import MEMORY_LISTS, Fact, Note, Summary, WorkingMemory
from palaver.ports.damage import UNREADABLE, Damage

T = TypeVar("T", Summary, Fact)
_ZERO = "\0"  # no text that we store contains it: zeroed bytes do
_BAD = frozenset((_ZERO, "\ufffd"))  # and what takes the place of bytes that are not text


def read_rows(table: str, rows: Iterable[Any], make: Callable[[Any], T]) -> tuple[tuple[T, ...], list[Damage]]:
    """Make values of rows. A row that is not one is left out."""
    found: list[T] = []
    damage = []
    for row in rows:
        try:
            value = make(row)
            sound = is_sound(value)
        except DAMAGED:
            sound = False
        if sound:
            found.append(value)
        else:
            damage.append(Damage(table=table, problem=UNREADABLE))
    return tuple(found), damage


def is_sound(value: Summary | Fact) -> bool:
    """Return whether a value can be one that was written."""
    if isinstance(value, Summary):
        numbers = value.level >= 0 and 0 <= value.from_seq < value.through_seq and value.turns >= 0
        return numbers and value.token_count >= 0 and not any(_ZERO in text for text in (value.text, value.model))
    texts = (value.subject, value.predicate, value.object, value.by)
    return 0 <= value.confidence <= 1 and not any(_ZERO in text for text in texts)


def is_memory(text: str | None) -> bool:
    """Return whether a text is a working memory that was written."""
    if text is None:
        return False
    try:
        memory = working_memory.from_json(text)
    except InvalidInput:
        return False
    notes = [note.text for name in MEMORY_LISTS for note in getattr(memory, name)]
    return memory.through_seq >= -1 and not any(_ZERO in one for one in (memory.summary, *notes))


def read_memory(text: str | None, *, is_there: bool = True) -> tuple[str | None, list[Damage]]:
    """Return a working memory, or that it is damaged. `is_there`: there is a row, even if it has no text."""
    if not is_there:
        return None, []
    return (text, []) if is_memory(text) else (None, [Damage(table="working_memory", problem=UNREADABLE)])


def notes_of_people(data: bytes) -> WorkingMemory:
    """Return the notes in a damaged working memory that people wrote and that can still be read.

    The others are rebuilt from the turns: the result has read none of them.
    """
    try:
        found = from_json(data.decode(errors="replace"))
        lists: dict[str, Any] = {name: _readable_notes(found.get(name)) for name in MEMORY_LISTS}
    except DAMAGED:
        return WorkingMemory()
    return WorkingMemory(**lists)


def _readable_notes(given: object) -> tuple[Note, ...]:
    found = []
    for one in given if isinstance(given, list) else []:
        try:
            note = msgspec.convert(one, Note)
        except msgspec.ValidationError:
            continue
        if not working_memory.is_machine(note) and not _BAD.intersection(note.text):
            found.append(note)
    return tuple(found)


def is_vector(half: bytes) -> bool:
    """Return whether bytes are a vector of half floats that says something: finite, and not zero."""
    import numpy as np

    if not half or len(half) % 2:
        return False
    vector = np.frombuffer(half, np.float16)
    return bool(np.isfinite(vector).all() and vector.any())
