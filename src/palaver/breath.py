"""Long work in a thread, in short strides. Pure: who runs it says how it rests (see `manners`).

A thread that computes keeps all others waiting: each time one of them comes back from the database, it waits for the
next forced switch, five milliseconds later by default, and reading a context comes back a hundred times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")

Breathe = Callable[[], None]


def hold_on() -> None:
    """For work that nobody runs beside."""


def strolling(items: Iterable[T], breathe: Breathe) -> Iterator[T]:
    for item in items:
        breathe()
        yield item
