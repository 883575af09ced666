"""Long work in a thread, in short strides.

A thread that computes keeps all others waiting: each time one of them comes back from the database, it waits for the
next forced switch, five milliseconds later by default, and reading a context comes back a hundred times.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")

STRIDE = 0.001  # seconds

Breathe = Callable[[], None]


def hold_on() -> None:
    """For work that nobody runs beside."""


def strolling(items: Iterable[T], breathe: Breathe) -> Iterator[T]:
    for item in items:
        breathe()
        yield item


@dataclass(slots=True)
class Breath:
    """To be called now and then: after a millisecond of work it rests for as long, ten at most."""

    _since: float = field(default_factory=time.perf_counter)

    def __call__(self) -> None:
        worked = time.perf_counter() - self._since
        if worked >= STRIDE:
            time.sleep(min(worked, 10 * STRIDE))
            self._since = time.perf_counter()
