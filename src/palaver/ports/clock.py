"""The clock and the source of new ids."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    def now(self) -> datetime: ...


class Ids(Protocol):
    def __call__(self) -> str: ...
