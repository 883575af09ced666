"""Places in the order of answers, as they travel to an engine."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceRequest:
    """A place that an answer takes or renews.

    `question` is the sequence number of the stored question; None while it is not stored. With `alone`, no place is
    taken behind others.
    """

    id: str
    question: int | None = None
    alone: bool = False


def queue_name(conversation: str) -> str:
    """Return the name under which the answers of a conversation wait to be woken."""
    return f"{conversation}/answers"
