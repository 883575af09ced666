"""Arguments and results of the engine's methods for conversations, turns, streams and the log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import msgspec

from palaver.core.filters import NO_FILTER, Interval, TurnFilter
from palaver.core.turn_draft import TurnDraft
from palaver.model import Tip


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationSpec:
    """The fields of a new conversation. JSON fields are canonical text."""

    id: str
    owner: str
    key: str | None = None
    workspace: str | None = None
    agent: str | None = None
    model: str | None = None
    title: str | None = None
    participants: tuple[str, ...] = ()
    metadata: str | None = None
    settings: str | None = None
    ttl: int | None = None
    salt: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationChanges:
    """New values for the named fields of a conversation; `fields` says which."""

    fields: frozenset[str]
    title: str | None = None
    workspace: str | None = None
    agent: str | None = None
    model: str | None = None
    participants: tuple[str, ...] = ()
    metadata: str | None = None
    settings: str | None = None
    ttl: int | None = None
    salt: bytes = b""
    if_untitled: bool = False  # change nothing if it has a title
    expected_updated: int | None = None  # raise UpdateConflict if it was updated at any other time


class AppendBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Turns to store together, or not at all.

    If the only draft is a new version of a turn, `replaces` is that turn; with `discard_after` it also replaces all
    later turns. `expected_seq` is the seq that the first turn must get.
    """

    drafts: tuple[TurnDraft, ...]
    expected_seq: int | None = None
    replaces: str | None = None
    discard_after: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamChunk:
    """Piece number `n` of a stream. Writing the same number again changes nothing."""

    n: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEnd:
    """The end of a complete stream: its whole text as the writer knows it, the last piece, and the other fields."""

    content: str
    token_count: int
    tail: StreamChunk | None = None
    tool_calls: str | None = None
    sources: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    model: str | None = None
    adapter: str | None = None
    finish_reason: str | None = None
    metadata: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryQuery:
    """Which turns to read: the latest `limit` that meet every condition, oldest first."""

    limit: int = 50
    before: str | None = None
    after: str | None = None
    since: int | None = None
    until: int | None = None
    include_superseded: bool = False
    participants: tuple[str, ...] | None = None
    roles: tuple[str, ...] | None = None
    metadata: tuple[Interval, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Which conversations to list, newest first. `before` is the (updated, id) of the last one seen.

    In `filter`, the actors are the owner and the participants, and the time is that of the last change.
    """

    limit: int = 50
    owner: str | None = None
    workspace: str | None = None
    agent: str | None = None
    before: tuple[int, str] | None = None
    filter: TurnFilter = NO_FILTER


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchQuery:
    """Stems to find in titles and turns.

    `prefix` is the last word as typed, which may be incomplete: a word that begins with it counts as the last stem.
    With a `filter`, only the turns that meet it are searched, and no titles.
    """

    stems: tuple[str, ...]
    prefix: str | None = None
    limit: int = 20
    conversation: str | None = None
    filter: TurnFilter = NO_FILTER


@dataclass(frozen=True, slots=True, kw_only=True)
class EventQuery:
    """Which events to read, in order of their numbers."""

    after: int = 0
    limit: int = 1_000
    kinds: tuple[str, ...] | None = None
    actors: tuple[str, ...] | None = None
    turn: str | None = None
    since: int | None = None
    until: int | None = None


class ArchivedRows(NamedTuple):
    """How many rows an archive took out of the database."""

    events: int
    requests: int


RecordKind = Literal[
    "conversation", "event", "turn", "attachment", "working_memory", "fact", "summary", "file_text", "request", "item",
    "source",
]  # fmt: skip


# Notes and facts come last in an export.
REMEMBERED_KINDS: frozenset[RecordKind] = frozenset({"working_memory", "fact"})


@dataclass(frozen=True, slots=True)
class Record:
    """A stored row, unchanged: `verify` reads it, export and import copy it."""

    kind: RecordKind
    row: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRange:
    """Which events and turns of a conversation to read: events after one number up to another, turns from a seq on."""

    after: int = 0
    through: int = 2**62
    from_seq: int = 0
    before_seq: int = 2**62


ALL_RECORDS = RecordRange()


@dataclass(frozen=True, slots=True, kw_only=True)
class Adoption:
    """A copy of a conversation that takes the place of a stored one, whose last event must be `expected`.

    `whole`: the records are the whole conversation, and whatever else is stored of it goes. Otherwise they continue it:
    later events, new turns, and derived rows; derived rows with the keys `dropped` go. `moved` are turns that have
    another id from now on.
    """

    expected: Tip
    records: Sequence[Record]
    whole: bool
    dropped: tuple[str, ...] = ()
    moved: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Deletion:
    """The ids that were deleted. `scrubbed` is false while old bytes remain in a WAL that another process reads."""

    conversations: tuple[str, ...] = ()
    turns: tuple[str, ...] = ()
    scrubbed: bool = True


# ---- erasing a person ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Erasure:
    """A person who was erased, by a salted digest of the name; nothing of theirs from before `at` may come back.

    `user` and `key` are there only while the erasure is under way. `conversations` are digests of the ids of those
    that were deleted.
    """

    digest: str
    salt: str
    started: int
    at: int = 0  # 0: the first erasure has not been finished yet
    user: str | None = None
    key: str | None = None
    conversations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ErasedName:
    """A user's name, the pseudonym that replaces it, the digest of the erasure that notes what is deleted, and the
    time before which it is."""

    user: str
    pseudonym: str
    digest: str
    before: int


@dataclass(frozen=True, slots=True)
class ConversationNames:
    """A conversation, deleted or not, and everybody whom its rows name, with the time of the first row."""

    id: str
    gone: bool
    owner: str
    created: int
    updated: int
    names: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ErasedTurns:
    """The turns that one step of erasing forgot in a conversation, and the files that it deleted and no turn had."""

    turns: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    more: bool = False  # the batch was full
