"""What Palaver asks of the outside: small protocols, and the values that travel through them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import msgspec

from palaver.drafts import Draft
from palaver.model import (
    ApiKey,
    Attachment,
    Branch,
    ConversationInfo,
    Event,
    Fact,
    FileQuote,
    FileText,
    Found,
    Match,
    Request,
    Scope,
    Stats,
    Summary,
    Tip,
    ToolCall,
    Turn,
    UsageLine,
)
from palaver.model import Seal as LogSeal

ANNOUNCED = ("stop",)  # kinds of events that somebody may put into the log without changing anything
KEY_ID = 12  # hexadecimal digits of a key's hash that stand for it

# ---- what travels --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationSpec:
    """What a conversation is created with. JSON fields are canonical text."""

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
class Changes:
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
    if_untitled: bool = False  # change nothing where somebody has given a title
    expected_updated: int | None = None  # refuse when it has been changed since


class Append(msgspec.Struct, frozen=True, kw_only=True):
    """Turns to store together, or not at all."""

    drafts: tuple[Draft, ...]
    expected_seq: int | None = None
    replaces: str | None = None
    discard_after: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Piece number `n` of a stream. A number that was written before changes nothing."""

    n: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Seal:
    """How a stream ends well: its whole text, as the writer knows it, and what goes with it."""

    content: str
    token_count: int
    tail: Chunk | None = None
    tool_calls: str | None = None
    sources: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    model: str | None = None
    adapter: str | None = None
    finish_reason: str | None = None
    metadata: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Which turns to read. Every field only narrows the choice; the latest `limit` of them, oldest first."""

    limit: int = 50
    before: str | None = None
    after: str | None = None
    since: int | None = None
    until: int | None = None
    include_superseded: bool = False
    participants: tuple[str, ...] | None = None
    roles: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Which conversations to list, newest first. `before` is the (updated, id) of the last one seen."""

    limit: int = 50
    owner: str | None = None
    workspace: str | None = None
    agent: str | None = None
    before: tuple[int, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """Stems to look for in titles and turns. `prefix` is the last word as it was typed, which may be cut short: a
    word that begins with it counts like the last stem."""

    stems: tuple[str, ...]
    prefix: str | None = None
    limit: int = 20
    conversation: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Audit:
    """Which events to read, in the order of their numbers."""

    after: int = 0
    limit: int = 1_000
    kinds: tuple[str, ...] | None = None
    actors: tuple[str, ...] | None = None
    turn: str | None = None
    since: int | None = None
    until: int | None = None


RecordKind = Literal["conversation", "event", "turn", "attachment", "working_memory", "fact"]
# What people noted and what was learnt. It travels along, and the log does not vouch for it.
REMEMBERED: frozenset[RecordKind] = frozenset({"working_memory", "fact"})


@dataclass(frozen=True, slots=True)
class Record:
    """A stored row, as it is: what `verify` reads, and what export and import carry."""

    kind: RecordKind
    row: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Removed:
    """What a deletion took with it. `scrubbed` is false while old
    bytes are still in the WAL because another process reads it."""

    conversations: tuple[str, ...] = ()
    turns: tuple[str, ...] = ()
    scrubbed: bool = True


# ---- memory --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """How much to read for a context: tokens, or characters, from the end of the thread, as `viewer` sees it.

    `summarised` is how much of it may be turns that a summary covers; an engine may read more.
    """

    budget: int = 0
    summarised: int | None = None
    in_characters: bool = False
    viewer: str | None = None
    facts: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Which conversations a recall looks at, inside what the scope may see. Nothing set: the tenant."""

    conversation: str | None = None
    owner: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRows:
    """The shapes of turns. `fresh` rows replace what was known; others are new, or have a mark of late."""

    stamp: tuple[int, ...]
    fresh: bool
    rows: list[tuple[Any, ...]]
    through: int  # up to this number nothing is missing; after it, the next reading repeats some rows
    passages: int
    terms: int
    total: int | None = None  # how many there are; where one may be missing that came late


class Postings(NamedTuple):
    """Where a stem stands: for each passage that holds it, the number of its turn and its size in stems."""

    tids: Any  # two arrays, or lists, of numbers
    sizes: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorRows:
    """Vectors of one conversation (number, turn, half floats). `fresh` rows replace what was known."""

    conversation: int
    fresh: bool
    rows: list[tuple[int, int, bytes]]
    stamp: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Nearest:
    """What to look for among many vectors: the `k` turns nearest to `asked`, and how near the turns `among` are."""

    model: str
    asked: Sequence[float]
    k: int
    among: Sequence[int] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    id: int
    kind: str
    tenant: str
    conversation: str | None
    argument: int | None
    attempts: int
    asked: int = 0  # when work of this kind was last asked for: later than here means that there is more


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """One look at a database: its schema, the one that this version knows, and the memory work of all tenants.

    `lag` is for how many seconds the oldest of what could be done now has waited.
    """

    schema: int
    schema_known: int
    waiting: int
    put_aside: int
    lag: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ToEmbed:
    """A passage that a model has not seen: part `part` of a turn's text. Not every one is worth a vector.

    `own_words` is true for what a participant said here as a user; only there can a standing instruction be. `place` is
    for the engine, and goes back to it with what was made of the passages.
    """

    pid: int
    tid: int
    turn: str | None
    part: int
    text: str
    worth_a_vector: bool
    own_words: bool
    place: tuple[str, int] = ("", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Embedded:
    """What the worker made of passages: vectors (passage, turn, part, half floats) and marks (passage, turn, 2 or 1).

    `passages` are all of them with the ids of their turns: numbers are given out again after a deletion.
    """

    passages: tuple[tuple[int, str | None], ...]
    vectors: tuple[tuple[int, int, int, bytes], ...] = ()
    marks: tuple[tuple[int, int, int], ...] = ()
    place: tuple[str, int] = ("", 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class FactToEmbed:
    """A valid fact that has no vector of an embedder yet."""

    tenant: str
    conversation: str
    id: str
    text: str


# ---- models --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    """A tool as a model is told of it. `parameters` is the JSON schema of an object; with `strict` a provider that can
    keeps the arguments to it."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    strict: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """A turn that recall found, for a model that answers with quotations."""

    turn: str
    role: str
    actor: str
    text: str
    created: datetime
    score: float
    conversation: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequest:
    """What a model is asked, in nobody's own form.

    `messages` are those of a Context. `settings` go into the body as they are (temperature and so on). With
    `may_call` false the tools are still named, because the thread holds their calls, but none may be called any more;
    `must_call` demands some call, or one of the tool of that name.
    `previous_response_id` continues an answer that the service kept, `keep` asks it to keep this one. The first
    `stable` messages will stand at the start of the next request, too: worth a cache. `thoughts` are what the model
    thought before its tool calls, by the id of the first one, in the provider's own form.
    """

    messages: tuple[dict[str, Any], ...]
    tools: tuple[ToolSpec, ...] = ()
    may_call: bool = True
    must_call: bool | str = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    stream: bool = True
    previous_response_id: str | None = None
    keep: bool = False
    quotes: tuple[Quote, ...] = ()
    stable: int = 0
    thoughts: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Started:
    """The service has begun to answer: its id of the answer, and the model that it took."""

    id: str | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    text: str


@dataclass(frozen=True, slots=True)
class Thought:
    """A finished piece of reasoning, in the provider's own form: it wants it back with the results of its calls."""

    block: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class CallReady:
    """A tool call, complete."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class Cited:
    source: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens as the service counted them. `prompt` includes those that were `cached`."""

    prompt: int | None = None
    completion: int | None = None
    cached: int | None = None
    reasoning: int | None = None


@dataclass(frozen=True, slots=True)
class Finished:
    """Why it ended: stop, length, tool_calls or content_filter; another word is the provider's own. `sequence` is what
    it was told to stop at, where a provider says that."""

    reason: str
    sequence: str | None = None


ModelEvent = Started | TextDelta | ReasoningDelta | Thought | CallReady | Cited | Usage | Finished


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterBound:
    """What a model's tokenizer makes of a text, as a multiple of our own count: the most that was seen lately."""

    model: str
    ratio: float
    samples: int


# ---- the ports -----------------------------------------------------------------------------------------------------


class Clock(Protocol):
    def now(self) -> datetime: ...


class Ids(Protocol):
    def __call__(self) -> str: ...


class Counter(Protocol):
    """Counts tokens, offline and exactly; `name` says which table it uses."""

    @property
    def name(self) -> str: ...

    def __call__(self, text: str) -> int: ...


class Embedder(Protocol):
    """Turns texts into vectors of one length; `name` is stored with each vector.

    It may also have `supersedes`, the names of embedders before it: a store that holds their vectors is embedded again
    in the background, and then theirs are dropped.
    """

    name: str
    dimensions: int

    async def embed(self, texts: Sequence[str]) -> list[list[float]]: ...


class ChatModel(Protocol):
    """Answers, piece by piece.

    `name` is what the model is chosen by ("openai:gpt-5"), `adapter` the wire format, `provider` whose service it is.
    `window` is how many tokens it reads, where that is known. `remembers` says that it can continue an answer by its
    id; `project` tells accounts apart, because an id is worth nothing in another one.
    """

    name: str
    adapter: str
    provider: str
    window: int | None
    remembers: bool
    project: str

    def body(self, request: ModelRequest) -> dict[str, Any]:
        """The request in the provider's form: exactly what `stream` will send."""
        ...

    def stream(self, body: dict[str, Any]) -> AsyncIterator[ModelEvent]:
        """Send it, once, and hand on what comes back. Raises a ModelError; the last event is Finished."""
        ...


class Blobs(Protocol):
    """Keeps the bytes of attachments. A path is made of plain names and slashes."""

    async def put(self, path: str, data: bytes) -> None: ...

    async def get(self, path: str) -> bytes: ...

    async def get_range(self, path: str, start: int, end: int) -> bytes: ...

    async def size(self, path: str) -> int: ...

    async def delete(self, path: str) -> None:
        """Remove the file; one that is not there is removed already."""
        ...

    def listed(self) -> AsyncIterator[tuple[str, datetime]]:
        """Every file, and since when it is there."""
        ...

    async def upload_url(self, path: str, seconds: int) -> str | None:
        """Where anybody may put this one file, for so long. None: the bytes must come through us."""
        ...


class Signal(Protocol):
    """Tells a reader that there may be something new."""

    async def wait(self) -> None:
        """Return when something may have changed since the last return. Raises StoreClosed when nothing will again."""
        ...


class Engine(Protocol):
    """A database. Every method is one transaction, sees only what `scope` may see, and calls no model."""

    async def close(self) -> None: ...

    # conversations
    async def open_conversation(self, scope: Scope, spec: ConversationSpec) -> ConversationInfo: ...
    async def conversation(self, scope: Scope, id: str) -> ConversationInfo: ...
    async def find_conversation(self, scope: Scope, owner: str, key: str) -> ConversationInfo: ...
    async def conversations(self, scope: Scope, listing: Listing) -> list[ConversationInfo]: ...
    async def search(self, scope: Scope, search: Search) -> list[Found]: ...
    async def matches(self, scope: Scope, search: Search) -> list[Match]: ...
    async def update(self, scope: Scope, id: str, changes: Changes) -> ConversationInfo: ...

    # turns
    async def append(self, scope: Scope, conversation: str, batch: Append) -> list[Turn]: ...
    async def history(self, scope: Scope, conversation: str, query: History) -> list[Turn]: ...
    async def turn(self, scope: Scope, conversation: str, id: str) -> Turn: ...
    async def branches(self, scope: Scope, conversation: str, turn: str | None) -> list[Branch]: ...
    async def switch(self, scope: Scope, conversation: str, turn: str) -> None: ...

    # streams; a lease is how many microseconds the writer may be silent
    async def stream_open(self, scope: Scope, conversation: str, batch: Append, lease: int) -> Turn: ...
    async def stream_chunk(self, scope: Scope, conversation: str, turn: str, chunk: Chunk, lease: int) -> int: ...
    async def stream_renew(self, scope: Scope, conversation: str, turn: str, lease: int) -> None: ...
    async def stream_commit(self, scope: Scope, conversation: str, turn: str, seal: Seal) -> Turn: ...
    async def stream_abort(self, scope: Scope, conversation: str, turn: str, tail: Chunk | None) -> Turn: ...
    async def seal_expired(self) -> int: ...
    async def next_lease_end(self) -> datetime | None: ...

    # forgetting
    async def forget_turn(self, scope: Scope, conversation: str, turn: str) -> Removed: ...
    async def reset(self, scope: Scope, conversation: str) -> Removed: ...
    async def forget_conversation(self, scope: Scope, conversation: str) -> Removed: ...
    async def retire(self, scope: Scope, conversation: str, position: int, keep_salt: bool) -> Removed: ...
    async def forget_older(self, scope: Scope, before: int) -> Removed: ...
    async def expire(self, scope: Scope) -> Removed: ...
    async def scrub(self) -> bool: ...
    async def doomed_blobs(self, limit: int) -> list[str]: ...
    async def blobs_deleted(self, paths: Sequence[str]) -> None: ...

    # attachments
    async def attach(self, scope: Scope, conversation: str, attachment: Attachment) -> Attachment:
        """The same again changes nothing, and answers with what was stored first."""
        ...

    async def attachment(self, scope: Scope, conversation: str, id: str) -> Attachment: ...
    async def attachments(self, scope: Scope, conversation: str, before: str | None, limit: int) -> list[Attachment]:
        """The newest files first."""
        ...

    async def drop_loose_files(self, scope: Scope, before: int) -> int:
        """Delete files that were stored before a moment, and that no turn has taken; some at a time."""
        ...

    async def orphans(self, scope: Scope, paths: Sequence[str]) -> list[str]:
        """Those of the paths that lie in the folder of a conversation of ours, and that no row names."""
        ...

    async def kept_file(self, scope: Scope, path: str) -> bytes | None:
        """The bytes of a file that is in the database itself; None when it is elsewhere."""
        ...

    # the words of files: read by the worker, once a turn has taken them
    async def unread_files(self, scope: Scope, conversation: str, limit: int) -> list[Attachment]: ...
    async def put_file_text(self, scope: Scope, conversation: str, text: FileText) -> bool: ...
    async def file_text(self, scope: Scope, conversation: str, id: str) -> FileText | None:
        """What a file says; None when nobody has read it yet."""
        ...

    async def file_quotes(self, scope: Scope, tids: Sequence[int], stems: Sequence[str]) -> dict[int, FileQuote]:
        """For each of these turns, the piece of its files that holds most of the stems."""
        ...

    # the log
    async def events(self, scope: Scope, conversation: str, audit: Audit) -> list[Event]: ...
    def watch(self, conversation: str) -> AbstractAsyncContextManager[Signal]: ...

    # whole conversations, row by row
    def records(self, scope: Scope, conversation: str) -> AsyncIterator[Sequence[Record]]: ...
    async def restore(self, scope: Scope, records: Sequence[Record]) -> ConversationInfo | None: ...
    async def stats(self, scope: Scope) -> Stats: ...

    # memory
    async def reading(self, scope: Scope, conversation: str, limits: Limits) -> Reading: ...
    async def unsummarised(self, scope: Scope, conversation: str, tokens: int) -> Unsummarised: ...
    async def span(self, scope: Scope, conversation: str, from_seq: int, through_seq: int) -> list[Turn]: ...
    async def summaries(self, scope: Scope, conversation: str, level: int | None) -> list[Summary]: ...
    async def uncovered(self, scope: Scope, conversation: str, level: int) -> list[Summary]: ...
    async def put_summary(self, scope: Scope, conversation: str, draft: SummaryDraft) -> bool: ...
    async def drop_summary(self, scope: Scope, conversation: str, summary: Summary) -> None: ...
    async def put_working_memory(self, scope: Scope, conversation: str, draft: MemoryDraft) -> bool: ...
    async def facts(self, scope: Scope, conversation: str, include_invalidated: bool) -> list[Fact]: ...
    async def put_facts(self, scope: Scope, conversation: str, draft: FactsDraft) -> list[Fact] | None: ...
    async def facts_where(self, scope: Scope, where: Where) -> list[Fact]: ...
    async def fact_vectors(self, scope: Scope, where: Where, model: str) -> dict[str, bytes]: ...
    async def drop_fact(self, scope: Scope, conversation: str, id: str) -> bool: ...

    # recall
    async def profile(self, scope: Scope, where: Where, known: tuple[int, ...] | None, after: int) -> ProfileRows: ...
    async def postings(self, scope: Scope, where: Where, stems: Sequence[str], limit: int) -> dict[str, Postings]: ...
    async def vectors(
        self, scope: Scope, where: Where, model: str, known: dict[int, tuple[int, ...]]
    ) -> list[VectorRows]: ...
    async def some_vectors(self, scope: Scope, where: Where, model: str, count: int) -> list[bytes] | None:
        """A sample of the vectors; None when the engine would rather hand out all of them."""
        ...

    async def nearest(self, scope: Scope, where: Where, wanted: Nearest) -> list[tuple[int, float]]:
        """Turns and their inner products with what is asked; a turn with several vectors may be there several times."""
        ...

    async def turns_numbered(self, scope: Scope, tids: Sequence[int]) -> dict[int, Turn]: ...

    # what was sent to models. A request's body holds what people said: it goes when a turn that was there before it is
    # forgotten, here or where it was quoted from, when the words of turns are retired, and with the conversation
    async def put_request(self, scope: Scope, conversation: str, request: Request, bodies: int | None) -> None:
        """Store it; one with the same id gets the response. Only the newest `bodies` bodies stay, None: all."""
        ...

    async def requests(
        self, scope: Scope, conversation: str, turn: str | None, before: str | None, limit: int
    ) -> list[Request]:
        """The latest requests, oldest first: of one turn, or before another request."""
        ...

    async def counter_bound(self, scope: Scope, model: str) -> CounterBound | None: ...
    async def put_counter_bound(self, scope: Scope, bound: CounterBound) -> None: ...

    # keys of the server's callers: stored as their hash, looked up inside the tenant that the key names. Their log is
    # chained like that of a conversation, one per tenant: create, use, refuse, revoke
    async def put_key(self, scope: Scope, key: ApiKey, hash: bytes) -> None: ...
    async def api_key(self, tenant: str, hash: bytes) -> ApiKey | None: ...
    async def api_keys(self, scope: Scope) -> list[ApiKey]: ...
    async def revoke_key(self, scope: Scope, id: str) -> ApiKey | None: ...
    async def any_key(self) -> bool:
        """Whether any tenant has a key that works now."""
        ...

    async def log_key(self, scope: Scope, kind: str, key: str, payload: Mapping[str, Any] | None) -> None: ...
    async def key_events(self, scope: Scope, after: int, limit: int) -> list[Event]: ...

    # what a server adds to the log, and reads off it
    async def announce(self, scope: Scope, conversation: str, kind: str, turn: str | None) -> int:
        """An event of one of the kinds in ANNOUNCED, for whoever follows the log. Answers its number."""
        ...

    async def usage(self, scope: Scope, since: int | None, until: int | None, limit: int) -> list[UsageLine]:
        """Tokens that turns and memory work report, newest day first, of conversations that the scope may see."""
        ...

    async def tenants(self) -> list[str]: ...
    async def tips(self, scope: Scope, after: str, limit: int) -> list[Tip]:
        """The ends of the logs, by conversation id after `after`; deleted conversations included."""
        ...

    async def unsealed(self, tenant: str, limit: int) -> list[Tip]: ...
    async def put_seals(self, tenant: str, seals: Sequence[LogSeal]) -> None: ...
    async def seals(self, scope: Scope, conversation: str) -> list[LogSeal]: ...

    async def health(self) -> Health:
        """Of everything that this engine works for. A database that cannot be asked raises."""
        ...

    # the outbox
    def quiet_seconds(self) -> float:
        """For how long nobody has stored a turn through this engine."""
        ...

    async def add_job(self, scope: Scope, conversation: str, kind: str, argument: int | None) -> None: ...
    async def claim_job(self, lease: int, tenant: str | None = None) -> Job | None:
        """The job that has waited longest, in one tenant or in all that this engine works for.

        An engine whose jobs are not kept by tenant may take another's.
        """
        ...

    async def renew_job(self, job: Job, lease: int) -> None: ...
    async def finish_job(self, job: Job) -> None: ...
    async def release_job(self, job: Job) -> None: ...
    async def retry_job(self, job: Job, delay: int, error: str, dead: bool) -> None: ...
    async def next_job(self, tenant: str | None = None) -> datetime | None: ...
    async def index_all(self) -> None: ...
    async def to_embed(self, model: str, limit: int, job: Job | None = None) -> list[ToEmbed]: ...
    async def put_embedded(self, model: str, embedded: Embedded) -> None: ...
    async def facts_to_embed(self, model: str, limit: int, job: Job | None = None) -> list[FactToEmbed]: ...
    async def put_fact_vectors(self, model: str, vectors: Sequence[tuple[FactToEmbed, bytes]]) -> None: ...
    async def drop_other_vectors(self, model: str, tenant: str | None = None) -> None: ...
    async def embed_again(self, models: Sequence[str], tenant: str | None = None) -> None:
        """Enqueue a job `embed` wherever there are vectors of these embedders."""
        ...

    async def drop_vectors(self, models: Sequence[str], job: Job) -> None:
        """Drop the vectors of these embedders from what the job went through."""
        ...

    async def embedding_backlog(self, model: str, tenant: str | None = None) -> int: ...


# ---- engines whose callers sign in ---------------------------------------------------------------------------------

Token = str | Callable[[], str | Awaitable[str]]  # a function is asked before each request


@runtime_checkable
class SignIn(Protocol):
    """An engine that believes a token, and no scope: each caller has one of its own."""

    scope: Scope  # who the token says is asking
    blobs: Blobs
    writes: int  # a caller that has written something may have left memory work to do
    is_nobody: bool  # nobody is signed in here
    is_anybody: bool  # the application itself: any scope will do

    async def signed_in(self, token: Token) -> Any: ...

    def twin(self) -> Any: ...
