"""Arguments and results of the engine's methods for contexts, summaries, working memory and facts."""

from __future__ import annotations

from dataclasses import dataclass

from palaver.model import (
    ConversationInfo,
    Fact,
    Summary,
    Turn,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadBudget:
    """How much to read for a context: tokens, or characters, from the end of the thread, as `viewer` sees it.

    `summarised` is how much of it may be turns that a summary covers; an engine may read more.
    """

    budget: int = 0
    summarised: int | None = None
    in_characters: bool = False
    viewer: str | None = None
    facts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextSnapshot:
    """What a context is made from: one snapshot, bounded by the budget that was asked for."""

    info: ConversationInfo
    tail: tuple[Turn, ...]
    current: Turn | None
    summaries: tuple[Summary, ...]
    working_memory: str | None
    facts: tuple[Fact, ...]
    revision: int
    summarized_position: int
    summarized_turns: int  # of the view; without those whose words are gone


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryDraft:
    """A summary, ready to be stored. `revision` is the conversation's when its sources were read."""

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
    """A working memory, ready to be stored in the place of `before`, the text that it was made from.

    `revision` is the conversation's when turns were read for it; None when none were.
    """

    memory: str
    through_seq: int
    before: str | None
    revision: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FactsDraft:
    """Facts, ready to be stored, and which old ones they replace (old id, new id)."""

    new: tuple[Fact, ...]
    replaced: tuple[tuple[str, str], ...] = ()
    revision: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsummarised:
    """What compaction has to work with."""

    info: ConversationInfo
    revision: int
    position: int
    turns: tuple[Turn, ...]  # from there on, up to a pending one
    stale: tuple[Summary, ...]
    working_memory: str | None
    facts: tuple[Fact, ...]
