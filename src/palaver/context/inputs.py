"""The inputs of a context, and the context itself. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from palaver.context import render
from palaver.context.explain import Explanation
from palaver.context.render import AnthropicPrompt, Message
from palaver.model import Attachment, Fact, FileQuote, Summary, Turn


class Condenser(Protocol):
    """Shortens texts that do not fit, without a model."""

    def merge(self, texts: tuple[str, ...], most: int, /) -> str:
        """Return several summaries as one of at most `most` tokens."""

    def summarise(self, turns: tuple[Turn, ...], most: int, /) -> str:
        """Return a summary of turns, of at most `most` tokens."""


@dataclass(frozen=True, slots=True)
class QuoteHints:
    """Hints of the question for quoting turns.

    - `rarity`: how much each of its stems counts.
    - `asks_assistant`: it is about what the assistant said.
    - `collects`: it asks for several things.
    - `past`: it asks what happened.
    """

    rarity: Mapping[str, float] = field(default_factory=dict)
    asks_assistant: bool = False
    collects: bool = False
    past: bool = False


@dataclass(frozen=True, slots=True)
class RecalledTurn:
    """A turn that recall found, with the parts of its score; `quote` is a fitting passage of one of its files.

    `place` is its place in the ranking. `spans` are the parts of it that the last prompt for the same message quoted,
    and that are quoted again; empty for all of it, None in a first prompt.
    """

    turn: Turn
    score: float
    parts: dict[str, float] = field(default_factory=dict)
    standing: bool = False
    quote: FileQuote | None = None
    relevance: float = 0.0
    place: int = 0
    spans: tuple[tuple[int, int], ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PersonItem:
    """An item that is known about the person, as a line of a prompt.

    `priority` says in which order items get room, `rank` the place in a ranking for the question, if it fits that.
    """

    line: str
    heading: str
    priority: int
    rank: int | None = None
    turns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadFile:
    """A file of the current message, as it was read.

    `ends` are the ends of the passages of its text, `ranking` the indices of those that fit the question, best first.
    Without a text, `problem` says why there is none; None means that it is still being read.
    """

    attachment: Attachment
    text: str = ""
    ends: tuple[int, ...] = ()
    ranking: tuple[int, ...] = ()
    problem: str | None = ""

    def passage(self, index: int) -> tuple[int, int]:
        """Return the start and the end of a passage."""
        return self.ends[index - 1] if index else 0, self.ends[index]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The turn that a context ends with. Nothing that came after it is shown, except the `steps` of its own answer.

    With `is_question`, the turn is the message to answer; otherwise the thread is answered as it was then.
    `earlier` are turns that were stored later and yet come before it: the answers that a queued question waited for.
    """

    turn: Turn
    is_question: bool = True
    steps: frozenset[str] = frozenset()
    earlier: frozenset[str] = frozenset()

    def excludes(self, turn: Turn) -> bool:
        """Return whether a turn came later. Another version at the position of this turn counts as later."""
        if turn.id == self.turn.id or turn.id in self.steps or turn.id in self.earlier:
            return False
        if turn.conversation != self.turn.conversation:
            return turn.created > self.turn.created
        return turn.position >= self.turn.position


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """Everything that was read for a context, bounded by the budget."""

    turn_count: int
    owner: str
    participants: tuple[str, ...] = ()
    conversation: str = ""
    tail: tuple[Turn, ...] = ()  # the last complete turns of the active branch, oldest first
    current: Turn | None = None  # the message to answer, even if the tail does not reach back to it
    message: Turn | None = None  # a current message that is not stored
    files: tuple[ReadFile, ...] = ()  # of the current message
    file_room: int | None = None  # that they had in the first prompt for this message, to show the same in each round
    summaries: tuple[Summary, ...] = ()
    memory_lines: tuple[str, ...] = ()
    standing: tuple[str, ...] = ()  # lines of the standing instructions to show in memory, oldest first
    facts: tuple[Fact, ...] = ()
    person: tuple[PersonItem, ...] = ()  # in the order in which they are shown
    person_name: str = ""
    recalled: tuple[RecalledTurn, ...] = ()
    recall_note: str = "off"
    hints: QuoteHints = field(default_factory=QuoteHints)
    recall_room: int = 0  # what the recalled turns took in the first prompt for this message
    counter: str = ""
    counted: bool = True  # the stored token counts of turns are by this counter
    tokens_before: int = 0  # of the thread, before the first turn of the tail
    summarized: int = 0  # position: all turns before it have a summary
    reads_from_start: bool = False  # the tail begins with the first turn of the thread
    compacts: bool = True  # false: the conversation is never summarised
    condenser: Condenser | None = None
    revision: int = 0  # of the thread

    @property
    def several(self) -> bool:
        """Whether other people than the owner take part."""
        spoken = {turn.actor for turn in self.tail if turn.role == "user"}
        return not spoken.union(self.participants) <= {self.owner, "user"}


@dataclass(frozen=True, kw_only=True)
class Context:
    """A prompt that fits its budget, with the reason for each part.

    - `messages`: the prompt as messages with `role` and `content`, independent of a provider. `to_openai()`,
      `to_responses()` and `to_anthropic()` return it in the form of a provider.
    - `tokens`: the size of the prompt, in the unit of the budget.
    - `turn_ids`: the turns that are in it word for word.
    - `explanation`: the result of `explain()`.
    - `stable`: the number of messages before the recalled turns. They do not depend on the question.
    - `revision`: the version of the conversation that was read.
    - `outgrown`: if summaries should be written, the maximum number of tokens that may stay without a summary;
      otherwise None.
    - `file_room`: the space for the files of the current message, in the unit of the budget; None if it has no files.
    - `quoted`: the recalled turns by their ids, with the quoted parts of each; empty if the whole turn is quoted.
    """

    messages: list[Message]
    tokens: int
    turn_ids: tuple[str, ...]
    explanation: Explanation
    stable: int = 0
    revision: int = 0
    outgrown: int | None = None
    file_room: int | None = None
    quoted: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)

    @cached_property
    def text(self) -> str:
        """The whole prompt as one string."""
        return render.messages_text(self.messages)

    def to_openai(self) -> list[Message]:
        """Return the messages for OpenAI's Chat Completions."""
        return render.to_openai(self.messages)

    def to_responses(self) -> list[Message]:
        """Return the input items for OpenAI's Responses API."""
        return render.to_responses(self.messages)

    def to_anthropic(self) -> AnthropicPrompt:
        """Return `{"system", "messages"}` for Anthropic's Messages API."""
        return render.to_anthropic(self.messages)

    def explain(self) -> Explanation:
        """Return the reason for each part of the prompt, and the turns that were left out."""
        return self.explanation
