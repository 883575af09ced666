"""The events that `generate_stream` yields."""

from __future__ import annotations

from dataclasses import dataclass

from palaver.context.inputs import Context
from palaver.generation.tool_clearing import NOTHING, Cleared
from palaver.model import ToolCall, Turn
from palaver.ports.models import ReasoningDelta, TextDelta, Thought


@dataclass(frozen=True, slots=True)
class MessageStored:
    """The message is stored, and the answer begins."""

    turn: Turn


@dataclass(frozen=True, slots=True)
class Prompted:
    """The context is built and sent to the model. `cleared` has the counts of old tool results that were cleared."""

    context: Context
    cleared: Cleared = NOTHING


@dataclass(frozen=True, slots=True)
class TurnOpened:
    """A turn of the answer is open. The text that follows is stored in it."""

    turn: Turn


@dataclass(frozen=True, slots=True)
class ToolsPlanned:
    """The model made these tool calls. They are stored and will run now. Calls for the client are not included."""

    turn: Turn
    calls: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True)
class ToolDone:
    """A tool call has ended. `content` is its whole result."""

    call: ToolCall
    content: object
    is_error: bool


@dataclass(frozen=True, slots=True)
class Answered:
    """The answer is complete and stored. If its turn has tool calls, the client must run them."""

    turn: Turn


GenerateEvent = (
    MessageStored | Prompted | TurnOpened | TextDelta | ReasoningDelta | Thought | ToolsPlanned | ToolDone | Answered
)
