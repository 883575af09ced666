"""The clock and the source of new ids."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """The source of the current time, in UTC."""

    def now(self) -> datetime: ...


class Ids(Protocol):
    """Makes a new id for each call."""

    def __call__(self) -> str: ...
