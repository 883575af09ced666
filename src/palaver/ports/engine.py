"""The database ports: one protocol per subject, and `Engine`, which is all of them.

Each method is one transaction, sees only what `scope` may see, and never calls a model. A function that needs only some
of them asks for the small protocol.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Protocol, runtime_checkable

from palaver.core.filters import Interval
from palaver.model import (
    ApiKey,
    Attachment,
    Branch,
    ConversationInfo,
    ConversationMatch,
    Event,
    Fact,
    FileQuote,
    FileText,
    LogSeal,
    MemoryItem,
    Request,
    Scope,
    Stats,
    Summary,
    Tip,
    Turn,
    TurnMatch,
    UsageLine,
)
from palaver.ports.answer_places import PlaceRequest
from palaver.ports.blobs import Blobs
from palaver.ports.budgets import BudgetStore
from palaver.ports.damage import Damage
from palaver.ports.jobs import JOB_KINDS, Health, Job
from palaver.ports.memory import (
    CallCount,
    ContextSnapshot,
    FactsDraft,
    MemoryDraft,
    ReadBudget,
    SummaryDraft,
    Unsummarised,
)
from palaver.ports.models import CounterBound
from palaver.ports.queries import (
    ALL_RECORDS,
    Adoption,
    AppendBatch,
    ArchivedRows,
    ConversationChanges,
    ConversationNames,
    ConversationSpec,
    Deletion,
    ErasedName,
    ErasedTurns,
    Erasure,
    EventQuery,
    HistoryQuery,
    Listing,
    Record,
    RecordRange,
    SearchQuery,
    StreamChunk,
    StreamEnd,
)
from palaver.ports.recall import Embedded, FactToEmbed, Postings, ProfileRows, RecallScope, ToEmbed, VectorRows
from palaver.ports.subjects import ItemQuery, ItemsDraft, ItemWords

ANNOUNCED = ("stop",)  # kinds of events that a caller may log without changing anything else
KEY_ID = 12  # leading hexadecimal digits of a key's hash that form its public id


class Signal(Protocol):
    """Wakes one subscriber when there may be something new."""

    async def wait(self) -> None:
        """Return when something may have changed since the last return. Raises StoreClosed once the store is closed."""
        ...


class ConversationStore(Protocol):
    """Conversations: create, find, list, search, change."""

    async def open_conversation(self, scope: Scope, spec: ConversationSpec) -> ConversationInfo:
        """Return the owner's conversation with this key, or create it. Without a key, always create one."""
        ...

    async def conversation(self, scope: Scope, id: str) -> ConversationInfo: ...
    async def find_conversation(self, scope: Scope, owner: str, key: str) -> ConversationInfo: ...
    async def conversations(self, scope: Scope, listing: Listing) -> list[ConversationInfo]: ...
    async def search(self, scope: Scope, search: SearchQuery) -> list[ConversationMatch]:
        """Find conversations whose title or turns contain every stem."""
        ...

    async def matches(self, scope: Scope, search: SearchQuery) -> list[TurnMatch]:
        """Find the turns of one conversation that contain any of the stems."""
        ...

    async def update(self, scope: Scope, id: str, changes: ConversationChanges) -> ConversationInfo: ...


class TurnStore(Protocol):
    """The turns of a conversation and its branches."""

    async def append(self, scope: Scope, conversation: str, batch: AppendBatch) -> list[Turn]: ...
    async def history(self, scope: Scope, conversation: str, query: HistoryQuery) -> list[Turn]: ...
    async def turn(self, scope: Scope, conversation: str, id: str) -> Turn: ...
    async def branches(self, scope: Scope, conversation: str, turn: str | None) -> list[Branch]: ...
    async def switch(self, scope: Scope, conversation: str, turn: str) -> None:
        """Make the branch that holds this turn the active one."""
        ...


class StreamStore(Protocol):
    """Turns that are written piece by piece. A lease is how many microseconds the writer may stay silent."""

    async def stream_open(self, scope: Scope, conversation: str, batch: AppendBatch, lease: int) -> Turn: ...
    async def stream_chunk(self, scope: Scope, conversation: str, turn: str, chunk: StreamChunk, lease: int) -> int:
        """Append a piece of text and renew the lease. Returns the number that the next piece must have."""
        ...

    async def stream_renew(self, scope: Scope, conversation: str, turn: str, lease: int) -> None: ...
    async def stream_commit(self, scope: Scope, conversation: str, turn: str, end: StreamEnd) -> Turn: ...
    async def stream_abort(self, scope: Scope, conversation: str, turn: str, tail: StreamChunk | None) -> Turn: ...
    async def abort_expired_streams(self) -> int:
        """Abort the streams of every tenant whose lease has ended. Returns how many there were."""
        ...

    async def next_lease_end(self) -> datetime | None: ...


class AnswerPlaceStore(Protocol):
    """The order of answers in conversations whose questions are queued or refused while another one is answered."""

    async def take_answer_place(self, scope: Scope, conversation: str, wanted: PlaceRequest, lease: int) -> int:
        """Take a place, or renew it. Returns how many answers come first; with 0 the answer may be made now.

        A place that is not renewed for `lease` microseconds is free again.
        """
        ...

    async def leave_answer_place(self, scope: Scope, conversation: str, place: str) -> None: ...


class DeletionStore(Protocol):
    """Permanent deletion: the rows, everything derived from them, and the old bytes on disk."""

    async def forget_turn(self, scope: Scope, conversation: str, turn: str) -> Deletion: ...
    async def reset(self, scope: Scope, conversation: str) -> Deletion:
        """Forget every turn and keep the conversation. A large one is hidden first, then deleted in slices.

        Only its owner and admins may. Called again after an interruption, it finishes the work. So does
        `forget_conversation`.
        """
        ...

    async def forget_conversation(self, scope: Scope, conversation: str) -> Deletion: ...
    async def retire(self, scope: Scope, conversation: str, position: int, keep_salt: bool) -> Deletion:
        """Drop the words of summarised turns before `position`; their summaries stay. Works in batches."""
        ...

    async def forget_older(self, scope: Scope, before: int) -> Deletion:
        """Forget turns that were stored before a time. Works in batches; `scrub` removes the old bytes."""
        ...

    async def expire(self, scope: Scope) -> Deletion:
        """Delete conversations whose time to live has ended. Works in batches; `scrub` removes the old bytes.

        It also continues deletions that were interrupted.
        """
        ...

    async def finish_deletions(self, scope: Scope) -> None:
        """Continue deletions of conversations that were interrupted."""
        ...

    async def scrub(self) -> bool:
        """Try again to remove old bytes from the database's own log. True when none are left."""
        ...

    def scrub_problem(self) -> str | None:
        """Return why old bytes are left, if the database failed; None if a reader keeps them."""
        ...

    async def blobs_to_delete(self, limit: int) -> list[str]:
        """Return paths of files whose rows are deleted and whose bytes are not."""
        ...

    async def blobs_deleted(self, paths: Sequence[str]) -> None: ...


class ErasureStore(Protocol):
    """Erasing a person, for admins: who was erased, and the names and turns of one conversation after the other."""

    async def erasures(self, scope: Scope) -> list[Erasure]: ...
    async def put_erasure(self, scope: Scope, erased: Erasure) -> None:
        """Store an erasure in place of the one with the same digest. One without a user is finished: its items go."""
        ...

    async def note_erased(self, scope: Scope, digest: str, kind: str, items: Sequence[str]) -> None:
        """Note what an erasure deletes, for its receipt. Repeating it changes nothing."""
        ...

    async def erased_items(self, scope: Scope, digest: str) -> list[tuple[str, str]]:
        """Return kind and id of everything that an erasure under way has deleted."""
        ...

    async def conversation_names(self, scope: Scope, after: str, limit: int) -> list[ConversationNames]:
        """Return whom conversations name and from when on, by conversation id. Includes deleted conversations."""
        ...

    async def erase_conversation(self, scope: Scope, conversation: str) -> None:
        """Delete a conversation. Old bytes on disk may be left until `scrub`."""
        ...

    async def erase_turns(self, scope: Scope, conversation: str, name: ErasedName) -> ErasedTurns:
        """Forget turns that the user said or that have a file of the user, and files that no turn has. Works in
        batches."""
        ...

    async def erase_names(self, scope: Scope, conversation: str, name: ErasedName) -> int:
        """Replace the user's name in the log and in what is left of forgotten turns, in several short transactions.
        Returns how many rows were changed."""
        ...

    async def erase_keys(self, scope: Scope, name: ErasedName) -> tuple[list[str], int]:
        """Delete the user's API keys and replace the name in their log. Works in batches: returns the ids of deleted
        keys, and how many events were changed."""
        ...


class FileStore(Protocol):
    """Attachments, and the text that the worker extracts from them."""

    async def attach(self, scope: Scope, conversation: str, attachment: Attachment) -> Attachment:
        """Store the row of a file. Repeating a call changes nothing and returns what was stored first."""
        ...

    async def attachment(self, scope: Scope, conversation: str, id: str) -> Attachment: ...
    async def attachments(self, scope: Scope, conversation: str, before: str | None, limit: int) -> list[Attachment]:
        """List the files of a conversation, newest first."""
        ...

    async def drop_loose_files(self, scope: Scope, before: int) -> int:
        """Delete files that were stored before a time and never attached to a turn. Works in batches."""
        ...

    async def orphans(self, scope: Scope, paths: Sequence[str]) -> list[str]:
        """Return the paths that lie in a conversation's folder but belong to no row."""
        ...

    async def file_in_database(self, scope: Scope, path: str) -> bytes | None:
        """Return the bytes of a file that is stored in the database itself; None when it is elsewhere."""
        ...

    async def unread_files(self, scope: Scope, conversation: str, limit: int) -> list[Attachment]:
        """List attached files whose text has not been extracted yet."""
        ...

    async def put_file_text(self, scope: Scope, conversation: str, text: FileText) -> bool:
        """Store and index the text of a file. False when the file is gone or was read already."""
        ...

    async def file_text(self, scope: Scope, conversation: str, id: str) -> FileText | None:
        """Return the extracted text of a file; None while it is not extracted."""
        ...


class LogStore(Protocol):
    """The hash-chained log of a conversation: events, seals, and whole conversations row by row."""

    async def events(self, scope: Scope, conversation: str, query: EventQuery) -> list[Event]: ...
    def watch(self, conversation: str) -> AbstractAsyncContextManager[Signal]: ...
    async def announce(self, scope: Scope, conversation: str, kind: str, turn: str | None) -> int:
        """Log an event of one of the kinds in ANNOUNCED, for readers that follow the log. Returns its number."""
        ...

    async def archive_log(self, scope: Scope, tip: Tip, requests_before: int) -> ArchivedRows:
        """Delete the events of a log through `tip`, and its requests before a time in microseconds.

        The caller has stored them elsewhere. An event with the hash of `tip` is logged, from which `verify` continues.
        """
        ...

    async def prove_rows(self, scope: Scope, conversation: str, limit: int) -> bool:
        """Log the hashes of up to `limit` derived rows from before proofs (core/derived_rows.py).

        True when there are more. The event after the last of them says that the log now knows every row.
        """
        ...

    async def mismatched_rows(self, scope: Scope, conversation: str) -> list[str]:
        """Return the keys of derived rows that are not what the log says: those that no context uses."""
        ...

    def records(
        self, scope: Scope, conversation: str, derived: bool = False, part: RecordRange = ALL_RECORDS
    ) -> AsyncIterator[Sequence[Record]]:
        """Read what an export has of a conversation, page by page, from one snapshot.

        With `derived`, also the other rows that `verify` checks: summaries, the text of files, and requests. `part`
        limits the events and turns.
        """
        ...

    async def restore(self, scope: Scope, records: Sequence[Record]) -> ConversationInfo | None:
        """Store an exported conversation unchanged. None when the same one is stored already.

        The records may include derived rows (see `records`); the bodies of requests are not stored.
        """
        ...

    async def adopt(self, scope: Scope, adoption: Adoption) -> bool:
        """Store a copy from another store in place of a conversation. False when its log is not the expected one."""
        ...

    async def tips(self, scope: Scope, after: str, limit: int) -> list[Tip]:
        """List the last events of all logs by conversation id, deleted conversations included."""
        ...

    async def unsealed(self, tenant: str, limit: int) -> list[Tip]:
        """List the last events that no seal covers yet."""
        ...

    async def put_seals(self, tenant: str, seals: Sequence[LogSeal]) -> None: ...
    async def seals(self, scope: Scope, conversation: str) -> list[LogSeal]: ...
    async def tenants(self) -> list[str]: ...


class MemoryStore(Protocol):
    """Summaries, working memory and facts. A write based on turns that have changed since is refused."""

    async def context_snapshot(self, scope: Scope, conversation: str, limits: ReadBudget) -> ContextSnapshot:
        """Read all that a context is made from, in one snapshot."""
        ...

    async def unsummarised(self, scope: Scope, conversation: str, tokens: int) -> Unsummarised:
        """Read the turns after the last summary, up to `tokens` and never past a pending turn."""
        ...

    async def span(self, scope: Scope, conversation: str, from_seq: int, through_seq: int) -> list[Turn]: ...
    async def speakers(
        self, scope: Scope, conversation: str, spans: Sequence[tuple[int, int]], retired: bool
    ) -> list[frozenset[str]]:
        """Return the actors of the turns in each span [from, through) of positions. Tool results are not counted.

        With `retired`, turns count whose words retention has removed: a summary may still contain them.
        """
        ...

    async def summaries(self, scope: Scope, conversation: str, level: int | None) -> list[Summary]: ...
    async def uncovered(self, scope: Scope, conversation: str, level: int) -> list[Summary]:
        """List the summaries of a level that no summary of the next level covers."""
        ...

    async def put_summary(self, scope: Scope, conversation: str, draft: SummaryDraft) -> bool:
        """Store a summary. False when the turns that it covers have changed since they were read."""
        ...

    async def drop_summary(self, scope: Scope, conversation: str, summary: Summary) -> None: ...
    async def put_working_memory(self, scope: Scope, conversation: str, draft: MemoryDraft) -> bool:
        """Replace the working memory. False when it, or the turns that were read, changed since."""
        ...

    async def facts(self, scope: Scope, conversation: str, include_invalidated: bool) -> list[Fact]: ...
    async def put_facts(self, scope: Scope, conversation: str, draft: FactsDraft) -> list[Fact] | None:
        """Store facts and return the new ones. None when the turns that were read changed since."""
        ...

    async def drop_fact(self, scope: Scope, conversation: str, id: str) -> bool: ...


class SubjectStore(Protocol):
    """Memory of subjects. `conversation` is the one that holds the log of a subject's memory."""

    async def items(self, scope: Scope, conversation: str, query: ItemQuery) -> list[MemoryItem]: ...
    async def item_words(self, scope: Scope, conversation: str) -> list[ItemWords]:
        """Return the words of all approved items that have not ended, without a check against the log."""
        ...

    async def put_items(self, scope: Scope, conversation: str, draft: ItemsDraft) -> list[str] | None:
        """Change the memory, and return the ids of new items. None when it has changed since it was read."""
        ...

    async def drop_items(self, scope: Scope, conversation: str, ids: Sequence[str]) -> list[str]:
        """Delete items, and return the ids of those that existed."""
        ...

    async def items_of_author(self, scope: Scope, conversation: str, author: str) -> list[str]:
        """Find the items that a person wrote, or said about the subject."""
        ...


class RecallStore(Protocol):
    """The data that recall ranks by: turn arrays, postings, vectors, facts. Turns are named by their row numbers."""

    async def profile(self, scope: Scope, where: RecallScope, known: tuple[int, ...] | None, after: int) -> ProfileRows:
        """Read the rows of the turn arrays: those after `after`, or all when `known` is not the current stamp."""
        ...

    async def postings(
        self, scope: Scope, where: RecallScope, stems: Sequence[str], limit: int
    ) -> dict[str, Postings]: ...
    async def turns_where(self, scope: Scope, where: RecallScope, metadata: Sequence[Interval]) -> Sequence[int]:
        """Return the numbers of the turns whose metadata meets all conditions."""
        ...

    def index_problem(self) -> str | None:
        """Say what the text index lacked when it was last read; None when it was whole."""
        ...

    async def vectors(
        self,
        scope: Scope,
        where: RecallScope,
        model: str,
        known: dict[int, tuple[int, ...]],
        most: int | None = None,
    ) -> list[VectorRows]:
        """Return the vectors that are not known yet, by conversation; about `most`, if the engine can stop there."""
        ...

    async def turns_by_number(self, scope: Scope, tids: Sequence[int]) -> dict[int, Turn]: ...
    async def facts_where(self, scope: Scope, where: RecallScope) -> list[Fact]: ...
    async def fact_vectors(self, scope: Scope, where: RecallScope, model: str) -> dict[str, bytes]: ...
    async def file_quotes(self, scope: Scope, tids: Sequence[int], stems: Sequence[str]) -> dict[int, FileQuote]:
        """Return, for each turn, the passage of its files that contains the most stems."""
        ...


class RequestStore(Protocol):
    """Requests to models, and what their token counts taught us.

    A request's body quotes the conversation. It is deleted when a turn that was stored before it is forgotten (here, or
    where it was quoted from), when turns lose their words, and with the conversation.
    """

    async def put_request(self, scope: Scope, conversation: str, request: Request, bodies: int | None) -> None:
        """Store a request, or add the response to one with the same id. Keep the newest `bodies` bodies; None: all."""
        ...

    async def requests(
        self, scope: Scope, conversation: str, turn: str | None, before: str | None, limit: int
    ) -> list[Request]:
        """Return the latest requests, oldest first: of one turn, or before another request."""
        ...

    async def count_calls(self, scope: Scope, conversation: str, since: int) -> CallCount:
        """Count the calls of models that background work has made since a time in microseconds."""
        ...

    async def counter_bound(self, scope: Scope, model: str) -> CounterBound | None: ...
    async def put_counter_bound(self, scope: Scope, bound: CounterBound) -> None: ...


class KeyStore(Protocol):
    """API keys of the server's callers, stored as hashes and looked up in the tenant that the key names.

    Each tenant has one log of its keys (create, use, refuse, revoke), chained like the log of a conversation.
    """

    async def put_key(self, scope: Scope, key: ApiKey, hash: bytes) -> None: ...
    async def api_key(self, tenant: str, hash: bytes) -> ApiKey | None: ...
    async def api_keys(self, scope: Scope) -> list[ApiKey]: ...
    async def revoke_key(self, scope: Scope, id: str) -> ApiKey | None: ...
    async def has_key(self) -> bool:
        """Return whether any tenant has a key that is valid now."""
        ...

    async def log_key(self, scope: Scope, kind: str, key: str, payload: Mapping[str, object] | None) -> None: ...
    async def key_events(self, scope: Scope, after: int, limit: int) -> list[Event]: ...


class LeaseStore(Protocol):
    """Work that one process of many does at a time."""

    async def take_lease(self, tenant: str, name: str, micros: int) -> bool:
        """Take some work, for `micros` microseconds. False while another process has it."""
        ...


class JobStore(Protocol):
    """The queue of background jobs. A lease is how many microseconds a worker may hold a job without renewing it."""

    def quiet_seconds(self) -> float:
        """Return how long ago a turn was last stored through this engine."""
        ...

    async def add_job(self, scope: Scope, conversation: str, kind: str, argument: int | None) -> None: ...
    async def claim_job(self, lease: int, tenant: str | None = None, kinds: Sequence[str] = JOB_KINDS) -> Job | None:
        """Take the job of these kinds that has waited longest, in one tenant or in all that this engine works for.

        An engine that does not separate jobs by tenant may return a job of another one.
        """
        ...

    async def renew_job(self, job: Job, lease: int) -> None: ...
    async def finish_job(self, job: Job) -> None: ...
    async def release_job(self, job: Job) -> None: ...
    async def retry_job(self, job: Job, delay: int, error: str, dead: bool) -> None:
        """Run a failed job again after `delay` microseconds; with `dead`, set it aside."""
        ...

    async def next_job(self, tenant: str | None = None, kinds: Sequence[str] = JOB_KINDS) -> datetime | None:
        """Return when the next job of these kinds is due; None when there is none."""
        ...


class EmbeddingStore(Protocol):
    """The text index and the vectors of passages and facts, as the worker keeps them up to date."""

    async def index_all(self) -> None:
        """Bring the text index up to date with every stored turn."""
        ...

    async def to_embed(self, model: str, limit: int, job: Job | None = None, after: int = 0) -> list[ToEmbed]:
        """Return the next passages without a vector; with `after`, of those with larger numbers."""
        ...

    async def put_embedded(self, model: str, embedded: Embedded) -> None: ...
    async def facts_to_embed(self, model: str, limit: int, job: Job | None = None) -> list[FactToEmbed]: ...
    async def put_fact_vectors(self, model: str, vectors: Sequence[tuple[FactToEmbed, bytes]]) -> None: ...
    async def drop_other_vectors(self, model: str, tenant: str | None = None) -> None:
        """Delete the vectors of every embedder but this one."""
        ...

    async def enqueue_embedding(self, models: Sequence[str], tenant: str | None = None) -> None:
        """Enqueue an `embed` job wherever there are vectors of these embedders."""
        ...

    async def drop_vectors(self, models: Sequence[str], job: Job) -> None:
        """Delete the vectors of these embedders from everything that the job went through."""
        ...

    async def embedding_backlog(self, model: str, tenant: str | None = None) -> int: ...


class RepairStore(Protocol):
    """Damage of derived data: the text index, vectors, summaries, working memory and facts."""

    async def find_damage(self, tenant: str | None = None, *, thorough: bool = False) -> list[Damage]:
        """Compare the derived rows with the counts that are kept of them, in one tenant or in all.

        With `thorough`, check every row and, where the engine can, every page.
        """
        ...

    async def repair(self, scope: Scope, conversation: str) -> list[Damage]:
        """Remove damaged rows of a conversation's memory, so that the worker writes them again. Returns what was found.

        Rows that a person wrote are kept aside.
        """
        ...

    async def rebuild_index(self) -> int:
        """Make the text index again from the turns. Returns how many conversations it covers."""
        ...

    async def repair_database(self) -> list[Damage]:
        """Repair what belongs to no single conversation: damaged tables, and the text index. Returns what was found."""
        ...

    async def rows_kept_aside(self, tenant: str | None = None) -> list[Damage]:
        """Return which damaged rows are kept for people to look at."""
        ...

    async def enqueue_repair(self, damage: Sequence[Damage]) -> None: ...


class StatsStore(Protocol):
    """Counts over everything that is stored, for operators."""

    async def stats(self, scope: Scope) -> Stats: ...
    async def usage(self, scope: Scope, since: int | None, until: int | None, limit: int) -> list[UsageLine]:
        """Return the tokens reported by turns and memory work in visible conversations, newest day first."""
        ...

    async def health(self, kinds: Sequence[str] = JOB_KINDS) -> Health:
        """Check everything that this engine works for. The lag is that of jobs of these kinds.

        Raises if the database cannot be reached.
        """
        ...


class Engine(
    ConversationStore,
    TurnStore,
    StreamStore,
    AnswerPlaceStore,
    DeletionStore,
    ErasureStore,
    FileStore,
    LogStore,
    MemoryStore,
    SubjectStore,
    RecallStore,
    RequestStore,
    KeyStore,
    BudgetStore,
    LeaseStore,
    JobStore,
    EmbeddingStore,
    RepairStore,
    StatsStore,
    Protocol,
):
    """A database that can hold everything."""

    async def close(self) -> None: ...


Token = str | Callable[[], str | Awaitable[str]]  # a function is called before each request


@runtime_checkable
class TokenEngine(Protocol):
    """An engine that derives the scope from a token instead of an argument. There is one such engine per caller."""

    scope: Scope  # derived from the token
    blobs: Blobs
    writes: int  # how many writes this caller has made; each may have left memory work to do
    is_anonymous: bool  # no token was given
    is_service: bool  # the application's own secret key: any scope is accepted

    async def signed_in(self, token: Token) -> SignedInEngine:
        """Return an engine of the same project for the caller with this token."""
        ...

    def for_worker(self) -> SignedInEngine:
        """Return an engine for the same caller with its own count of writes, for a worker."""
        ...


class SignedInEngine(Engine, TokenEngine, Protocol):
    """A whole engine for one token."""
