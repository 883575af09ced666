"""Immutable values of the public API. They know nothing of databases."""

from __future__ import annotations

import sys
import warnings
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import msgspec

_DATA_URL = "data:application/octet-stream;base64,"

Role = Literal["user", "assistant", "system", "tool"]
Status = Literal["pending", "complete", "aborted", "forgotten"]
Visibility = Literal["own", "workspace", "tenant"]

EmptyReason = Literal[
    "nothing asked",
    "nothing stored",
    "nothing relevant",
    "not ready",
    "other scope",
    "switched off",
    "all shown",
    "no room",
]
T = TypeVar("T")

ROLES: tuple[Role, ...] = ("user", "assistant", "system", "tool")


@dataclass(frozen=True, slots=True)
class Empty:
    """Why a result is empty. `detail` is a sentence for people, without content.

    - "nothing asked": there is no word to look for.
    - "nothing stored": the caller can see nothing there.
    - "nothing relevant": there is something, but nothing fits, or nothing reaches the threshold.
    - "not ready": turns have no vectors yet, the embedder does not answer, or the index is being repaired.
    - "other scope": there is something elsewhere: in other conversations, or with other filters.
    - "switched off": by an option or by the kind of the conversation.
    - "all shown", "no room": of a context: everything found is shown anyway, or did not fit.
    """

    reason: EmptyReason
    detail: str


class Results(list[T]):
    """A list that says why it is empty: `empty` is None where it is not."""

    empty: Empty | None = None

    @classmethod
    def of(cls, items: Iterable[T], empty: Empty | None = None) -> Results[T]:
        made = cls(items)
        made.empty = None if made else empty
        return made


# ---- content -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Text:
    """A part of a content that is text. `extra` keeps further fields as they were given."""

    text: str
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Image:
    """An image by URL (`https:` or `data:`) or by the id of an attachment."""

    url: str | None = None
    attachment: str | None = None
    media_type: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class File:
    """A file by URL or by the id of an attachment."""

    url: str | None = None
    attachment: str | None = None
    filename: str | None = None
    media_type: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Reasoning of a model. `signature` is the provider's own, kept verbatim."""

    text: str
    signature: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


def data_part(data: bytes | str) -> File:
    """Return a content part that holds data which is not talk. It has no words: nothing of it is indexed or embedded.

    Text is encoded as UTF-8. `Turn.data` returns the bytes.
    """
    raw = data.encode(errors="surrogatepass") if isinstance(data, str) else data
    return File(url=_DATA_URL + b64encode(raw).decode())


def is_data(part: object) -> bool:
    """Return whether a part is a `data_part`, which no model and no reader is shown."""
    return isinstance(part, File) and part.url is not None and part.url.startswith(_DATA_URL)


Part = Text | Image | File | Reasoning
Content = str | tuple[Part, ...]
ContentInput = str | Sequence[Part | Mapping[str, Any] | str]  # of a new turn; a mapping is a part with its "type"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """`arguments` is a JSON object, or the model's own string when that is not valid JSON."""

    id: str
    name: str
    arguments: Any = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of the call with the same `id`; `content` is text or any JSON value."""

    id: str
    content: Any = ""
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Tokens as the provider reported them, if it did."""

    prompt: int | None = None
    completion: int | None = None


@dataclass(frozen=True, slots=True)
class Attachment:
    """A stored file. `bytes` is its size, `path` its place in the file storage."""

    id: str
    filename: str
    media_type: str
    bytes: int
    sha256: str
    path: str = ""
    owner: str = ""
    turn: str | None = None


@dataclass(frozen=True, slots=True)
class FileText:
    """The text of a file, or in `problem` the reason why there is none."""

    attachment: str
    text: str
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class FileQuote:
    """The passage of a file that matches a query best."""

    attachment: str
    filename: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A place for a file that a client uploads by itself, until `expires_at`.

    `url` takes the bytes with one PUT; it is None where the file storage takes them only from the server. Then
    `complete_upload` checks them and makes them an attachment.
    """

    id: str
    path: str
    filename: str
    media_type: str | None
    expires_at: datetime
    url: str | None = None


# ---- the thread ----------------------------------------------------------------------------------------------------


class Turn(msgspec.Struct, frozen=True):
    """One entry of a conversation, as stored. A Struct, because a context is made of hundreds of them."""

    id: str
    conversation: str
    seq: int
    position: int
    role: Role
    actor: str
    content: Content
    created: datetime
    status: Status = "complete"
    tool_calls: tuple[ToolCall, ...] = ()
    tool_results: tuple[ToolResult, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    sources: tuple[Mapping[str, Any], ...] = ()
    tokens: TokenUsage | None = None
    token_count: int = 0
    model: str | None = None
    adapter: str | None = None
    finish_reason: str | None = None
    metadata: Mapping[str, Any] = msgspec.field(default_factory=dict)
    idempotency_key: str | None = None
    parent: str | None = None
    slot: str | None = None
    active: bool = True
    superseded_by: str | None = None
    content_hash: str | None = None

    @property
    def text(self) -> str:
        """The words of the turn: its text, or its text parts joined by newlines."""
        if isinstance(self.content, str):
            return self.content
        return "\n".join(part.text for part in self.content if isinstance(part, Text))

    @property
    def data(self) -> bytes | None:
        """The bytes of the first `data_part`, which is what a turn of a `state` conversation holds."""
        parts = () if isinstance(self.content, str) else self.content
        urls = (part.url for part in parts if isinstance(part, File) and part.url is not None and is_data(part))
        return next((b64decode(url.partition(",")[2]) for url in urls), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationInfo:
    """A conversation's fields, as they were when it was read."""

    id: str
    tenant: str
    owner: str
    key: str | None = None
    workspace: str | None = None
    agent: str | None = None
    model: str | None = None
    title: str | None = None
    preview: str | None = None
    participants: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    turn_count: int = 0
    token_count: int = 0
    summarized_through: int = 0  # summaries cover the turns at positions below it; 0: none yet
    next_seq: int = 0
    last_event: int = 0  # the number that a reader of all this subscribes after
    ttl: float | None = None
    expires_at: datetime | None = None
    created: datetime
    updated: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One row of the log. It names the turn and never holds its content."""

    n: int
    conversation: str
    kind: str
    actor: str
    at: datetime
    turn: str | None = None
    payload: Mapping[str, Any] = field(default_factory=dict)
    content_hash: str | None = None
    hash: str = ""


@dataclass(frozen=True, slots=True)
class Branch:
    """One place in the thread with more than one version; exactly one of them, or none, is active."""

    position: int
    turns: tuple[Turn, ...]

    @property
    def active(self) -> Turn | None:
        """The version that is in the active view."""
        return next((turn for turn in self.turns if turn.active), None)


@dataclass(frozen=True, slots=True)
class TurnMatch:
    """A turn that a search found. `terms` are the stems of the query that it contains."""

    turn: Turn
    terms: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallHit:
    """A turn, a fact or an item of a subject's memory that recall found, its score and the parts of the score.

    `quote` is from a file of the turn.

    `score` ranks the hits of one question. `relevance` is between 0 and 1 and can be compared between questions: of the
    best turn, it is the estimated probability that the conversations searched hold what the question asks about.
    """

    score: float
    turn: Turn | None = None
    fact: Fact | None = None
    item: MemoryItem | None = None
    quote: FileQuote | None = None
    parts: Mapping[str, float] = field(default_factory=dict)
    relevance: float = 0.0


@dataclass(frozen=True, slots=True)
class ConversationMatch:
    """A conversation that a search found, with its best turns. `in_title` is true when the title matched."""

    conversation: ConversationInfo
    matches: tuple[TurnMatch, ...]
    in_title: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """A page of conversations, newest first. `cursor` leads to the next page; None on the last one."""

    items: tuple[ConversationInfo, ...]
    cursor: str | None = None
    empty: Empty | None = None  # why there are no items


@dataclass(frozen=True, slots=True)
class Verified:
    """The counts of what `verify` checked. `tip` is the hash of the last event.

    `archived` events are not in the database and were not given: the log was checked from the next one on. `derived`
    counts summaries, notes, facts, texts of files and requests that are what the log says; `unproven` those from a
    version whose log did not know them, which a job brings into the log.
    """

    conversation: str
    events: int
    turns: int
    attachments: int
    tip: str
    archived: int = 0
    derived: int = 0
    unproven: int = 0


@dataclass(frozen=True, slots=True)
class Stats:
    """Counts within the tenant of a scope, and figures of the storage."""

    conversations: int
    turns: int
    tokens: int
    events: int
    attachments: int
    attachment_bytes: int
    storage: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """Counts of what a sweep removed, and the ids of the conversations."""

    conversations: tuple[str, ...]
    turns: int
    streams: int
    files: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ErasureReceipt:
    """The result of `Store.erase_user`: ids of what was erased, and no content. A salted digest names the person.

    `erased` has the kinds `conversations`, `turns` and `files` (as `conversation/id`), `notes`, `details` (title,
    metadata or participants) and `logs` (ids of the conversations in which they were changed), and `keys`.
    Nothing of the person from before `finished` is left. `scrubbed` is false while another process's reader keeps old
    bytes in the WAL; the next sweep removes them. `signature` is there if an audit key was given.
    """

    tenant: str
    salt: str
    digest: str
    started: datetime
    finished: datetime
    erased: Mapping[str, tuple[str, ...]]
    scrubbed: bool = True
    signature: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One call of a model, on record: the request, the explanation of its context, and the response.

    `body` is what was sent, with secrets redacted; None once something in it was deleted. `response` is None if the
    process ended before the call did. `turn` is the turn that the answer was stored as.
    """

    id: str
    conversation: str
    at: datetime
    model: str
    adapter: str
    turn: str | None = None
    purpose: str = "generate"
    body: Mapping[str, Any] | None = None
    explanation: Mapping[str, Any] | None = None
    response: Mapping[str, Any] | None = None
    quoted: tuple[tuple[str, str], ...] = ()  # (conversation, turn): of other conversations, in the body

    @property
    def previous_response_id(self) -> str | None:
        """The id of the response that was continued, from the body."""
        value = (self.body or {}).get("previous_response_id")
        return value if isinstance(value, str) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageLine:
    """Tokens as providers reported them: of one day (UTC), one owner and one model."""

    day: str
    user: str
    model: str
    calls: int
    prompt: int
    completion: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tip:
    """The last event of a conversation's log."""

    conversation: str
    n: int
    hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSeal:
    """A tip, signed with a key that is not in the database."""

    tip: Tip
    at: datetime
    seal: str


# ---- memory --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Text that stands for a span of the active view: positions from `from_seq` up to, not including, `through_seq`.

    Level 0 is over turns, level 1 over summaries of level 0, and so on. `model` says who wrote it, `turns` how many
    turns it stands for.
    """

    id: str
    level: int
    from_seq: int
    through_seq: int
    text: str
    model: str
    token_count: int
    turns: int
    created: datetime


@dataclass(frozen=True, slots=True)
class Note:
    """One line of working memory.

    `turn` is where it was said, and `actor` who said it; `by` is who noted it: rules, a model or a person.
    """

    text: str
    turn: str | None = None
    by: str = "rules"
    actor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingMemory:
    """Notes on what matters in a conversation now. People and agents can read and edit them.

    `instructions` are standing instructions and preferences, taken only from participants' own user turns.
    `through_seq` is the position of the last turn that was read, inclusive; -1 when none was. `extractor_failure` is
    the name of the extractor and the type of its error when it failed at its latest call: notes and facts come from the
    rules alone then. `extractor_postponed` are the positions, from and up to, of turns that it has not read because of
    the daily limit of model calls; it reads them on another day. `extractor_dropped` counts the notes and facts that it
    proposed and that were dropped, because no turn says them. `summary_by` is the person who wrote the summary, if
    it was not a model. `empty` says why there are no notes and no summary; it is not stored.
    """

    summary: str = ""
    goals: tuple[Note, ...] = ()
    requirements: tuple[Note, ...] = ()
    constraints: tuple[Note, ...] = ()
    decisions: tuple[Note, ...] = ()
    assumptions: tuple[Note, ...] = ()
    open_questions: tuple[Note, ...] = ()
    glossary: tuple[Note, ...] = ()
    stakeholders: tuple[Note, ...] = ()
    instructions: tuple[Note, ...] = ()
    through_seq: int = -1
    extractor_failure: str | None = None
    extractor_postponed: tuple[int, int] | None = None
    extractor_dropped: int = 0
    summary_by: str | None = None
    empty: Empty | None = field(default=None, compare=False)


MEMORY_LISTS = (
    "goals", "requirements", "constraints", "decisions", "assumptions", "open_questions", "glossary", "stakeholders",
    "instructions",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """A statement (subject, predicate, object) with its source. A newer fact invalidates the old one and names it."""

    id: str
    subject: str
    predicate: str
    object: str
    source_turn: str | None
    confidence: float
    valid_from: datetime
    invalidated_at: datetime | None = None
    invalidated_by: str | None = None
    by: str = "rules"
    created: datetime | None = None
    valid_to: datetime | None = None  # when it stopped to hold, if that is known
    learnt: datetime | None = None  # when it was said


# ---- subjects ------------------------------------------------------------------------------------------------------

ItemOrigin = Literal["said", "reported", "assistant", "tool", "file", "mcp", "manual"]
"""Where an item of a subject's memory comes from: the person's own turn, another participant's, an answer, the result
of a tool, a file, text that came through MCP, or a call of the application."""
ItemStatus = Literal["approved", "proposed"]
ITEM_ORIGINS: tuple[ItemOrigin, ...] = ("said", "reported", "assistant", "tool", "file", "mcp", "manual")
PERSON: Final = "person"  # the kind of a subject that is a person


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemSource:
    """A turn that says what an item says."""

    conversation: str
    turn: str
    said: datetime
    title: str | None = None  # of the conversation, where the caller may see it


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryItem:
    """Something that is remembered of a subject: a person, a project, a team.

    Two times: `valid_from` and `valid_to` say when it held, `learnt_at` and `ended_at` from when until when it was
    believed. `ended_by` is the item that took its place. A proposed item is in no prompt until it is approved.
    """

    id: str
    kind: str  # fact, preference, instruction, goal, or a field that the application named
    subject: str
    predicate: str
    object: str
    confidence: float = 1.0
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    learnt_at: datetime
    ended_at: datetime | None = None
    ended_by: str | None = None
    origin: ItemOrigin = "manual"
    status: ItemStatus = "approved"
    said_by: str | None = None  # who said it, if it was not the subject
    by: str = "rules"  # who noted it: rules, a model, or a person
    created: datetime | None = None
    sources: tuple[ItemSource, ...] = ()

    @property
    def text(self) -> str:
        """The item as one sentence."""
        words = " ".join(part for part in (self.subject, self.predicate, self.object) if part)
        stated = words if self.predicate else self.object
        return f"{self.said_by} said that {stated}" if self.said_by else stated


# ---- scopes --------------------------------------------------------------------------------------------------------

Right = Literal["read", "write", "generate", "system", "act_for", "admin"]
READ: Final = "read"
WRITE: Final = "write"
GENERATE: Final = "generate"
SYSTEM: Final = "system"
ACT_FOR: Final = "act_for"
ADMIN: Final = "admin"
RIGHTS: tuple[Right, ...] = (READ, WRITE, GENERATE, SYSTEM, ACT_FOR, ADMIN)
USER_RIGHTS: frozenset[Right] = frozenset({READ, WRITE, GENERATE})
# Without a user a scope is part of the application, which writes what it wants under any name.
USERLESS_RIGHTS: frozenset[Right] = frozenset({READ, WRITE, GENERATE, SYSTEM, ACT_FOR})


@dataclass(frozen=True, slots=True, init=False)
class Scope:
    """The identity and the rights with which a store is used.

    A scope with a user sees the conversations that this user owns or takes part in; a scope without a user is the
    application itself.

    - `rights`: `read`, `write`, `generate` (ask a model), `system` (append turns with the role `system`, and give
      instructions to a model), `act_for` (append user turns under the names of others), `admin` (act for other owners;
      includes `act_for`). A user has `read`, `write` and `generate` unless others are given; see `with_rights`.
    - `visibility`: `own`, or everything in one `workspace`, or everything of the `tenant`.
    - `workspace`: the workspace that `visibility="workspace"` shows.
    - `key`: the id of the API key that the caller used, for its budget; it gives no rights.
    """

    tenant: str
    user: str | None
    rights: frozenset[Right]
    visibility: Visibility
    workspace: str | None
    key: str | None

    def __init__(
        self,
        tenant: str = "default",
        user: str | None = None,
        rights: frozenset[Right] | None = None,
        visibility: Visibility = "own",
        workspace: str | None = None,
        key: str | None = None,
        *,
        sight: Visibility | None = None,
    ) -> None:
        """Make a scope. `sight` is the old name of `visibility`."""
        if sight is not None:
            warn_renamed("Scope(sight=…)", "visibility")
            visibility = sight
        if rights is None:
            rights = USERLESS_RIGHTS if user is None else USER_RIGHTS
        values = {
            "tenant": tenant, "user": user, "rights": rights, "visibility": visibility, "workspace": workspace,
            "key": key,
        }  # fmt: skip
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def sight(self) -> Visibility:
        """Deprecated: use `visibility`."""
        warn_renamed("Scope.sight", "visibility")
        return self.visibility

    def with_rights(self, *rights: Right) -> Scope:
        """The same scope with further rights: `Scope("acme", "ada").with_rights("system")`."""
        return Scope(self.tenant, self.user, self.rights.union(rights), self.visibility, self.workspace, self.key)

    @classmethod
    def of(cls, tenant: str, user: str | None) -> Scope:
        """The scope of a person, or of the application when there is no user."""
        if user is None:
            return cls(tenant, None, frozenset(RIGHTS), "tenant")
        return cls(tenant, user)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """An API key of the server, without the key itself. `id` is the start of its hash."""

    id: str
    name: str
    scope: Scope
    created: datetime
    expires_at: datetime | None = None
    revoked_at: datetime | None = None

    def works(self, now: datetime) -> bool:
        """Whether the key is neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


# ---- budgets -------------------------------------------------------------------------------------------------------

BudgetKind = Literal["tenant", "user", "key"]
BudgetMeasure = Literal["requests", "tokens", "dollars", "bytes", "conversations"]
BudgetPeriod = Literal["day", "month", "total"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetLine:
    """One limit of a budget, and how much of it is used. `dollars` are dollars, `bytes` bytes.

    `name` is the user's name or the id of the key; that of the tenant is empty. `resets_at` is when the period ends;
    None for storage and conversations, which only deletion frees.
    """

    kind: BudgetKind
    name: str
    measure: BudgetMeasure
    period: BudgetPeriod
    limit: float
    used: float
    resets_at: datetime | None = None

    @property
    def left(self) -> float:
        """The rest of the limit."""
        return max(0, self.limit - self.used)


# ---- old names -----------------------------------------------------------------------------------------------------

RENAMED = {"Found": "ConversationMatch", "Match": "TurnMatch", "Hit": "RecallHit", "Sight": "Visibility"}


def warn_renamed(old: str, new: str) -> None:
    """Warn about the use of an old public name, at the caller's line. Old names are kept for one release."""
    warnings.warn(f"{old} is deprecated: use {new}", DeprecationWarning, stacklevel=caller_level())


def caller_level() -> int:
    """The `stacklevel`, for the function that calls this one, of the nearest frame outside of this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in ("palaver", "contextlib"):
        level, frame = level + 1, frame.f_back
    return level


if not TYPE_CHECKING:  # a type checker must not believe that any name is here

    def __getattr__(name: str) -> object:
        if name not in RENAMED:
            raise AttributeError(f"module 'palaver.model' has no attribute {name!r}")
        warn_renamed(f"palaver.model.{name}", RENAMED[name])
        return globals()[RENAMED[name]]
