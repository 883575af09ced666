"""What a context is made from, and the context itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from palaver.context import render
from palaver.context.explain import Explanation
from palaver.context.render import Message
from palaver.model import Fact, FileQuote, Summary, Turn


@dataclass(frozen=True, slots=True)
class Recalled:
    """A turn that recall found, with what its score is made of; `quote` is what one of its files says to it."""

    turn: Turn
    score: float
    parts: dict[str, float] = field(default_factory=dict)
    standing: bool = False
    quote: FileQuote | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The turn that a context ends with. Nothing that came after it is shown, except the `steps` of its own answer.

    With `is_question`, the turn is the message to answer; otherwise the thread is answered as it stood then.
    """

    turn: Turn
    is_question: bool = True
    steps: frozenset[str] = frozenset()

    def excludes(self, turn: Turn) -> bool:
        """Whether a turn came later. One of another version of this turn's place did, too."""
        if turn.id == self.turn.id or turn.id in self.steps:
            return False
        if turn.conversation != self.turn.conversation:
            return turn.created > self.turn.created
        return turn.position >= self.turn.position


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """What was read, all of it bounded by the budget."""

    turn_count: int
    owner: str
    conversation: str = ""
    tail: tuple[Turn, ...] = ()  # the last complete turns of the active view, oldest first
    current: Turn | None = None  # the newest user turn, also when the tail does not reach back to it
    message: Turn | None = None  # a current message that is not stored
    summaries: tuple[Summary, ...] = ()
    memory_lines: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = ()
    recalled: tuple[Recalled, ...] = ()
    recall_note: str = "off"
    counter: str = ""
    counted: bool = True  # the turns' stored counts are this counter's
    revision: int = 0  # of the thread


@dataclass(frozen=True, kw_only=True)
class Context:
    """What the model will see."""

    messages: list[Message]
    tokens: int
    turn_ids: tuple[str, ...]
    explanation: Explanation
    stable: int = 0  # how many of the messages come before the recalled block
    revision: int = 0  # of the thread that it was read from
    outgrown: int | None = None  # compaction should leave at most so much unsummarised

    @cached_property
    def text(self) -> str:
        return render.messages_text(self.messages)

    def to_openai(self) -> list[Message]:
        return render.to_openai(self.messages)

    def to_responses(self) -> list[Message]:
        return render.to_responses(self.messages)

    def to_anthropic(self) -> dict[str, Any]:
        return render.to_anthropic(self.messages)

    def explain(self) -> Explanation:
        return self.explanation
