"""The events that `generate_stream` yields."""

from __future__ import annotations

from dataclasses import dataclass

from palaver.context.inputs import Context
from palaver.generation.tool_clearing import NOTHING, Cleared
from palaver.model import ToolCall, Turn
from palaver.ports.models import ReasoningDelta, TextDelta, Thought


@dataclass(frozen=True, slots=True)
class MessageStored:
    """The message is stored; the answer starts."""

    turn: Turn


@dataclass(frozen=True, slots=True)
class Prompted:
    """The context is built and sent to the model. `cleared` says which old tool results were left out."""

    context: Context
    cleared: Cleared = NOTHING


@dataclass(frozen=True, slots=True)
class TurnOpened:
    """A turn of the answer is open; the following text is stored in it."""

    turn: Turn


@dataclass(frozen=True, slots=True)
class ToolsPlanned:
    """The model made these calls; they are stored and about to run. Calls for the client are not included."""

    turn: Turn
    calls: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True)
class ToolDone:
    """A call has ended. `content` is its whole result."""

    call: ToolCall
    content: object
    is_error: bool


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer is complete and stored. Calls on its turn are for the client to run."""

    turn: Turn


GenerateEvent = (
    MessageStored | Prompted | TurnOpened | TextDelta | ReasoningDelta | Thought | ToolsPlanned | ToolDone | Answered
)
