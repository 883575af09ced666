"""The events that `generate_stream` yields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from palaver.context.inputs import Context
from palaver.model import ToolCall, Turn
from palaver.ports.models import ReasoningDelta, TextDelta, Thought


@dataclass(frozen=True, slots=True)
class MessageStored:
    """The message is on disk; now it is being answered."""

    turn: Turn


@dataclass(frozen=True, slots=True)
class Prompted:
    """The context is built, and the model is being asked: what it was given, and why."""

    context: Context


@dataclass(frozen=True, slots=True)
class TurnOpened:
    """The turn that the next words of the answer go to."""

    turn: Turn


@dataclass(frozen=True, slots=True)
class ToolsPlanned:
    """The model wants these calls; they are stored, and about to run. Those for the client are not among them."""

    turn: Turn
    calls: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True)
class ToolDone:
    """One call has ended. `content` is what it gave, before it is shortened."""

    call: ToolCall
    content: Any
    is_error: bool


@dataclass(frozen=True, slots=True)
class Answered:
    """The end: the answer, as it is stored. With calls, they are for the client to run."""

    turn: Turn


GenerateEvent = (
    MessageStored | Prompted | TurnOpened | TextDelta | ReasoningDelta | Thought | ToolsPlanned | ToolDone | Answered
)
