"""Strides: work that grows with its input calls `between_strides` after each bounded part of it. Pure.

By default that does nothing. Where the work shares its process with an event loop (`core/concurrency.py`), it lets
other threads run. No part may be long: while a regular expression or a sort runs, the interpreter runs nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from datetime import datetime

ATOMS = frozenset({type(None), bool, int, float, datetime})  # types of values that contain no others
LARGE = 16_384  # characters; the work on a text that is no longer takes a few milliseconds at most

pause_between_strides: ContextVar[Callable[[], None] | None] = ContextVar("palaver_strides", default=None)


def between_strides() -> None:
    """Let others run, if this work shares its process with them."""
    pause = pause_between_strides.get()
    if pause is not None:
        pause()


def size_of(value: object, enough: int = LARGE) -> int:
    """Count the characters of all texts in a value, at least until there are more than `enough`. Any value will do."""
    size, rest = 0, [value]
    while rest and size <= enough:
        one = rest.pop()
        if isinstance(one, str | bytes):
            size += len(one)
            continue
        size += 1
        if type(one) in ATOMS:  # most fields of a turn, and every turn of a context is measured
            continue
        if isinstance(one, dict):
            rest += [*one, *one.values()]
        elif isinstance(one, list | tuple):
            rest += one
        else:
            rest += [getattr(one, name, None) for name in _field_names(one)]
    return size


def _field_names(value: object) -> Iterable[str]:
    """Return the names of the fields of a msgspec struct, such as a turn, or of a dataclass."""
    names: Iterable[str] = getattr(value, "__struct_fields__", ())
    return names or getattr(value, "__dataclass_fields__", ())
