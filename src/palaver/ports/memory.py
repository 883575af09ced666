"""Arguments and results of the engine's methods for contexts, summaries, working memory and facts."""

from __future__ import annotations

from dataclasses import dataclass

from palaver.model import (
    ConversationInfo,
    Fact,
    Summary,
    Turn,
)
from palaver.ports.damage import Damage


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBudget:
    """How much to read for a context: tokens, or characters, from the end of the thread, as `viewer` sees it.

    Of a thread that does not fit as a whole, no more than `summarised` is read once turns with a summary are reached.
    An engine may read more.
    """

    budget: int = 0
    summarised: int | None = None
    in_characters: bool = False
    viewer: str | None = None
    facts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextSnapshot:
    """The data that a context is made from, read in one snapshot and bounded by the budget.

    `damage` names rows that were left out because they cannot be used.
    """

    info: ConversationInfo
    tail: tuple[Turn, ...]
    current: Turn | None
    summaries: tuple[Summary, ...]
    working_memory: str | None
    facts: tuple[Fact, ...]
    revision: int
    summarized_position: int
    summarized_turns: int  # of the active branch, without retired turns
    damage: tuple[Damage, ...] = ()
    refused: tuple[str, ...] = ()  # derived rows that are not what the log says, and so are not here: their keys


@dataclass(frozen=True, slots=True, kw_only=True)
class CallCount:
    """Calls of models that background work has made for a conversation, from its requests.

    `calls` are all that are not answers. `in_use` says whether any request but an extraction was ever recorded.
    """

    calls: int
    in_use: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryDraft:
    """A summary to store. `revision` is the conversation's when its turns were read."""

    id: str
    level: int
    from_seq: int
    through_seq: int
    turns: int
    tokens: int
    text: str
    token_count: int
    model: str
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryDraft:
    """A working memory to store in place of `before`, the text that it was made from.

    `revision` is the conversation's when turns were read for it; None when none were read.
    """

    memory: str
    through_seq: int
    before: str | None
    revision: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FactsDraft:
    """Facts to store, and which old ones they replace (old id, new id)."""

    new: tuple[Fact, ...]
    replaced: tuple[tuple[str, str], ...] = ()
    revision: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsummarised:
    """The data that compaction works with."""

    info: ConversationInfo
    revision: int
    position: int
    turns: tuple[Turn, ...]  # from `position` on, up to a pending one
    stale: tuple[Summary, ...]
    working_memory: str | None
    facts: tuple[Fact, ...]
