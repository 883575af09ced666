"""Immutable values of the public API. They do not depend on a database."""

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
    """The reason why a result is empty. `detail` is a sentence for people; it has no content.

    The values of `reason`:

    - "nothing asked": the query has no word to search for.
    - "nothing stored": the caller can see no data there.
    - "nothing relevant": there is data, but none that matches or reaches the threshold.
    - "not ready": turns have no vectors yet, the embedder does not respond, or the index is being repaired.
    - "other scope": there is data elsewhere: in other conversations, or with other filters.
    - "switched off": an option or the kind of the conversation excludes it.
    - "all shown": in a context, everything that was found is shown anyway.
    - "no room": in a context, nothing that was found fits into the budget.
    """

    reason: EmptyReason
    detail: str


class Results(list[T]):
    """A list. If it is empty, `empty` has the reason; otherwise `empty` is None."""

    empty: Empty | None = None

    @classmethod
    def of(cls, items: Iterable[T], empty: Empty | None = None) -> Results[T]:
        made = cls(items)
        made.empty = None if made else empty
        return made


# ---- content -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Text:
    """A part of the content of a turn: text. `extra` has further fields, as they were given."""

    text: str
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Image:
    """A part of the content of a turn: an image, by its URL (`https:` or `data:`) or by the id of an attachment."""

    url: str | None = None
    attachment: str | None = None
    media_type: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class File:
    """A part of the content of a turn: a file, by its URL or by the id of an attachment."""

    url: str | None = None
    attachment: str | None = None
    filename: str | None = None
    media_type: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reasoning:
    """A part of the content of a turn: reasoning of a model. `signature` is kept as the provider sent it."""

    text: str
    signature: str | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


def data_part(data: bytes | str) -> File:
    """Return a content part with data of a program, which is never indexed, embedded or shown to a model.

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
    """A tool call of a model. `arguments` is a JSON object, or the model's text if that is not valid JSON."""

    id: str
    name: str
    arguments: Any = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of the tool call with the same `id`. `content` is text or any JSON value."""

    id: str
    content: Any = ""
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class TokenUsage:
    """Token counts as the provider reported them; None where it reported none."""

    prompt: int | None = None
    completion: int | None = None


@dataclass(frozen=True, slots=True)
class Attachment:
    """A stored file. `bytes` is its size, `path` its place in the file storage, `turn` the turn that it belongs to."""

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
    """The text of a file. If it has none, `problem` has the reason."""

    attachment: str
    text: str
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class FileQuote:
    """The passage of a file that is most relevant to a query."""

    attachment: str
    filename: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A prepared upload of a file, valid until `expires_at`.

    The client sends the bytes to `url` with one PUT request. If `url` is None, the storage has no upload URLs: use
    `Conversation.put_upload`. Afterwards, `Conversation.complete_upload` checks the bytes and returns an attachment.
    """

    id: str
    path: str
    filename: str
    media_type: str | None
    expires_at: datetime
    url: str | None = None


# ---- the thread ----------------------------------------------------------------------------------------------------


class Turn(msgspec.Struct, frozen=True):
    """One stored entry of a conversation.

    - `seq`: its number in the order of storing, without gaps. It never changes.
    - `position`: its place in the active branch or in its branch.
    - `status`: `pending` while it is streamed, then `complete`, or `aborted`; `forgotten` after its deletion.
    - `token_count`: the tokens of its content, as Palaver counts them. `tokens` are those that the provider reported.
    - `active`: whether it is in the active branch. `superseded_by` is the turn that took its place there.
    - `slot`, `parent`: turns that replace each other share a slot. `parent` is the slot of the turn before.

    The other fields are described at `TurnOptions`.
    """

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
        """The text of the turn: its content, or the text parts of its content joined by newlines."""
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
    """The fields of a conversation at the time when it was read.

    - `preview`: the beginning of its first turn, for lists.
    - `turn_count`, `token_count`: the turns and tokens of the active branch.
    - `summarized_through`: summaries cover the turns at positions below this number; 0: there are none.
    - `next_seq`: the sequence number that the next turn gets.
    - `last_event`: the number of the latest event. Pass it to `Conversation.subscribe` to get all later ones.
    - `ttl`, `expires_at`: the time to live in seconds, and the time at which the conversation expires.

    The other fields are described at `ConversationOptions`.
    """

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
    """One row of the log. It has the id of the turn, never its content.

    `n` is its number in the log of the conversation. `hash` depends on this row and on all rows before it.
    """

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
    """A place in the conversation with more than one version of a turn. At most one version is active."""

    position: int
    turns: tuple[Turn, ...]

    @property
    def active(self) -> Turn | None:
        """The version that is in the active branch, if any."""
        return next((turn for turn in self.turns if turn.active), None)


@dataclass(frozen=True, slots=True)
class TurnMatch:
    """A turn that a search found. `terms` are the word stems of the query that the turn contains."""

    turn: Turn
    terms: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallHit:
    """A result of recall: a turn, a fact, or an item of a subject's memory.

    - `score`: orders the results of one query. `parts` has the contribution of each signal to it.
    - `relevance`: a number between 0 and 1 that can be compared between queries. For the best turn, it is the estimated
      probability that the searched conversations contain what the query asks for.
    - `quote`: the best passage of a file of the turn, if there is one.
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
    """A conversation that a search found, with its best turns. `in_title` is true if the title matched."""

    conversation: ConversationInfo
    matches: tuple[TurnMatch, ...]
    in_title: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """A page of conversations, the most recently changed first.

    `cursor` is the argument for the next page; None on the last page. `empty` has the reason if there are no `items`.
    """

    items: tuple[ConversationInfo, ...]
    cursor: str | None = None
    empty: Empty | None = None  # why there are no items


@dataclass(frozen=True, slots=True)
class Verified:
    """The result of `verify`: how many events, turns and attachments were checked.

    - `tip`: the hash of the last event.
    - `archived`: the events that are in an archive which was not given. The check starts at the event after them.
    - `derived`: the summaries, notes, facts, texts of files and requests that match the log.
    - `unproven`: those that an older version stored without an event. A background job adds them to the log.
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
    """Counts of the data that a scope may see. `storage` has sizes and settings of the database."""

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
    """The result of `Store.erase_user`: the ids of the erased data, without content.

    - `salt`, `digest`: identify the person, without the name.
    - `started`, `finished`: no data of the person from before `finished` is left.
    - `erased`: ids by kind. `conversations` (what was remembered about the person counts as one), `keys`; `turns` and
      `files` as `conversation/id`; `notes`, `details` (title, metadata or participants) and `logs` as the ids of the
      conversations in which they were changed.
    - `scrubbed`: false while a reader in another process keeps old bytes in the WAL. The next sweep removes them.
    - `signature`: the signature, if an audit key was given.
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
    """One recorded call to a model: the request, the explanation of its context, and the response.

    - `body`: the request as it was sent, with secrets redacted. None after a turn that it contained was deleted.
    - `explanation`: `Context.explain()` of an answer, as JSON values; None for other calls.
    - `response`: None if the process ended before the call did.
    - `turn`: the id of the turn in which the answer was stored.
    - `purpose`: `generate` for an answer; otherwise the kind of background work.
    - `quoted`: the turns of other conversations in the body, each as (conversation, turn).
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
    """A summary of a span of the active branch: the positions from `from_seq` up to, not including, `through_seq`.

    - `level`: 0 for a summary of turns, 1 for a summary of summaries of level 0, and so on.
    - `model`: the name of the model or of the rules that wrote it.
    - `turns`: the number of turns that it covers.
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
    """One note of the working memory.

    `turn` is the turn in which it was said, and `actor` the speaker. `by` is the author of the note: rules, a model or
    a person.
    """

    text: str
    turn: str | None = None
    by: str = "rules"
    actor: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingMemory:
    """The notes of a conversation. People and agents can read and edit them.

    - `instructions`: standing instructions and preferences, taken only from the participants' own user turns.
    - `through_seq`: the position of the last turn that was read, inclusive; -1: none.
    - `extractor_failure`: the name of the extractor and the type of its error, if its latest call failed. In that case,
      notes and facts come from the rules alone.
    - `extractor_postponed`: the positions (from, up to) of turns that the extractor has not read yet because of the
      daily limit of model calls. It reads them on another day.
    - `extractor_dropped`: how many notes and facts of the extractor were dropped because no turn supports them.
    - `summary_by`: the person who wrote the summary, if it was not a model.
    - `empty`: the reason why there are no notes and no summary. It is not stored.
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
    """A statement (subject, predicate, object) with its source turn.

    - `valid_from`, `valid_to`: the time in which the statement is true; `valid_to` is None if the end is not known.
    - `learnt`: the time at which it was said.
    - `invalidated_at`, `invalidated_by`: when a newer fact replaced it, and the id of that fact.
    - `by`: the author of the fact: rules, a model or a person.
    """

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
    """A turn that supports an item of a subject's memory. `said` is the time of the turn."""

    conversation: str
    turn: str
    said: datetime
    title: str | None = None  # of the conversation, where the caller may see it


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryItem:
    """One item of the memory of a subject, such as a person, a project or a team.

    - `kind`: `fact`, `preference`, `instruction`, `goal`, or a field that the application defines.
    - `valid_from`, `valid_to`: the time in which the statement is true.
    - `learnt_at`, `ended_at`: the time in which the item is part of the memory.
    - `ended_by`: the id of the item that replaced it.
    - `status`: `approved`, or `proposed`: not used in prompts until it is approved.
    - `origin`: where it was said: `said` (in the person's own turn), `reported` (by another participant), `assistant`,
      `tool`, `file`, `mcp`, or `manual` (a call of the application).
    - `said_by`: the speaker, if it was not the subject. `by`: the author of the item: rules, a model or a person.
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

    A scope with a user sees the conversations that this user owns or takes part in. A scope without a user belongs to
    the application.

    - `rights`: a set of the rights below. By default, a user has `read`, `write` and `generate`; without a user, the
      scope also has `system` and `act_for`. `with_rights` adds rights.
    - `visibility`: the conversations that the scope sees: its `own` (the default), all of one `workspace`, or all of
      the `tenant`.
    - `workspace`: the workspace for `visibility="workspace"`.
    - `key`: the id of the API key of the caller, for its budget. It gives no rights.

    The rights are:

    - `read`, `write`: read, or store and change data.
    - `generate`: call a model.
    - `system`: append turns with the role `system`, and give instructions to a model.
    - `act_for`: append user turns under the names of others.
    - `admin`: act for other owners. It includes `act_for`.
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
        """Return the same scope with further rights: `Scope("acme", "ada").with_rights("system")`."""
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
    """One limit of a budget, and how much of it is used.

    - `kind`, `name`: the owner of the budget: a user's name or the id of a key; empty for the tenant.
    - `measure`: the unit of `limit` and `used`: `requests`, `tokens`, `dollars`, `bytes` or `conversations`.
    - `period`: `day`, `month` or `total`.
    - `resets_at`: the end of the period; None for storage and conversations, where only deletion frees space.
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
        """The unused rest of the limit."""
        return max(0, self.limit - self.used)


# ---- old names -----------------------------------------------------------------------------------------------------

RENAMED = {"Found": "ConversationMatch", "Match": "TurnMatch", "Hit": "RecallHit", "Sight": "Visibility"}


def warn_renamed(old: str, new: str) -> None:
    """Warn about the use of an old public name, at the caller's line. Old names are kept for one release."""
    warnings.warn(f"{old} is deprecated: use {new}", DeprecationWarning, stacklevel=caller_level())


def caller_level() -> int:
    """The `stacklevel`, for the function that calls this one, of the nearest frame outside this package."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in ("palaver", "contextlib"):
        level, frame = level + 1, frame.f_back
    return level


if not TYPE_CHECKING:  # a type checker must not assume that every name exists

    def __getattr__(name: str) -> object:
        if name not in RENAMED:
            raise AttributeError(f"module 'palaver.model' has no attribute {name!r}")
        warn_renamed(f"palaver.model.{name}", RENAMED[name])
        return globals()[RENAMED[name]]
