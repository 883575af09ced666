"""Conversations, messages and files of an export, in one form for all products."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class ExportedFile:
    """A file of a message. `read` returns its bytes; None when the export does not have them."""

    name: str
    read: Callable[[], bytes] | None
    media_type: str | None = None


@dataclass(frozen=True, slots=True)
class ExportedTurn:
    """A message. `parent` is the id of the one before it; several with the same parent are versions of one place."""

    id: str
    parent: str | None
    role: str
    content: str = ""
    created: datetime | None = None
    actor: str | None = None
    model: str | None = None
    tool_calls: Sequence[Mapping[str, Any]] = ()
    tool_results: Sequence[Mapping[str, Any]] = ()
    files: Sequence[ExportedFile] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class ExportedConversation:
    """A conversation. A parent comes before its children in `turns`; `current` is the last turn of the active branch.

    `records` counts the messages that the export has. Each became a turn (or several: `split` counts the further
    ones), was merged with another, or was left out for a reason.
    """

    id: str
    title: str | None = None
    model: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    turns: list[ExportedTurn] = field(default_factory=list)
    current: str | None = None
    records: int = 0
    split: int = 0
    merged: int = 0
    left_out: Counter[str] = field(default_factory=Counter)

    @property
    def is_accounted_for(self) -> bool:
        """Whether every message of the export is a turn, merged, or left out for a reason."""
        return self.records + self.split == len(self.turns) + self.merged + self.left_out.total()


@dataclass(frozen=True, slots=True)
class Entry:
    """A conversation that can be read. `updated` is when it was last changed, in seconds; 0 when that is unknown."""

    updated: float
    load: Callable[[], ExportedConversation]


def moment(value: object) -> datetime | None:
    """Return a time of any usual form: ISO 8601, seconds or milliseconds since 1970. None when it is not one."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        try:
            return datetime.fromtimestamp(value / 1000 if abs(value) > 1e11 else value, UTC)
        except (ValueError, OverflowError, OSError):
            return None
    try:
        found = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def seconds(value: object) -> float:
    """Return a time as seconds since 1970, for sorting; 0 when there is none."""
    found = moment(value)
    return found.timestamp() if found else 0.0


def text_of(value: object) -> str:
    """Return text, without characters that no turn can hold."""
    return value.replace("\0", "") if isinstance(value, str) else ""


def mapping(value: object) -> dict[str, Any]:
    """Return an object; an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def objects(value: object) -> list[dict[str, Any]]:
    """Return the objects of a list; none for anything else."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
