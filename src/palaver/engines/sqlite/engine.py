"""The Engine port over one SQLite file. Every method is one transaction: a read on a reader, a write on the writer."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import replace
from datetime import datetime
from typing import Concatenate, ParamSpec, TypeVar

import apsw

from palaver.core.budgets import Amounts
from palaver.core.concurrency import run_uncancelled
from palaver.core.filters import Interval
from palaver.core.identity import micros, moment
from palaver.engines.file_passages import split_into_passages
from palaver.engines.sqlite import (
    answer_places,
    budgets,
    conversations,
    deletion,
    details,
    embeddings,
    erasure,
    export_rows,
    files,
    jobs,
    keys,
    large_deletions,
    leftovers,
    log,
    memory,
    recall,
    repair,
    replication,
    requests,
    stats,
    streams,
    subjects,
    table_repair,
    text_index,
    turns,
    unindexed,
)
from palaver.engines.sqlite.connection import SQLiteAddress, translate_errors
from palaver.engines.sqlite.readers import DedicatedReader, Readers
from palaver.engines.sqlite.transaction import Tx
from palaver.engines.sqlite.turn_indexer import TurnIndexer
from palaver.engines.sqlite.unindexed import IndexState
from palaver.engines.sqlite.watch import FileWatcher
from palaver.engines.sqlite.writer import DEFAULT_TUNING, Writer, WriterTuning
from palaver.errors import (
    DatabaseCorrupt,
    DatabaseFull,
    DatabaseReadOnly,
    EngineError,
    EngineUnavailable,
    RowUnreadable,
)
from palaver.model import (
    ApiKey,
    Attachment,
    Branch,
    BudgetKind,
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
from palaver.ports.budgets import Account, Charge, Overrun, StoredBudget
from palaver.ports.clock import Clock
from palaver.ports.damage import LOST, UNREADABLE, Damage, describe
from palaver.ports.engine import Signal
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

logger = logging.getLogger("palaver.sqlite")  # types and counts only

P = ParamSpec("P")
T = TypeVar("T")

# Up to these sizes, an operation is brief: a write takes less time than its commit, a read looks at few rows.
BRIEF_TURNS, BRIEF_CHARACTERS = 8, 32_768  # of an append
BRIEF_CONTEXT_TOKENS, BRIEF_HISTORY_TURNS = 16_000, 128  # of a read
REPORT_SECONDS = 10.0  # between two reports of damage that reads meet


@asynccontextmanager
async def open_sqlite(url: str, clock: Clock) -> AsyncIterator[SQLiteEngine]:
    """Open the engine of a file, and close it at the end of the block even if the caller is cancelled."""
    opening = asyncio.get_running_loop().run_in_executor(None, SQLiteEngine, SQLiteAddress.parse(url), clock)
    try:
        engine = await asyncio.shield(opening)
    except asyncio.CancelledError:  # the thread continues, and what it opens must not stay open
        opening.add_done_callback(_close_unused)
        raise
    try:
        yield engine
    finally:
        await run_uncancelled(engine.close())


def _close_unused(opening: asyncio.Future[SQLiteEngine]) -> None:
    if not opening.cancelled() and opening.exception() is None:
        opening.result().close_connections()


class SQLiteEngine:
    """The Engine port over one file. `tuning` is the writer's."""

    def __init__(self, address: SQLiteAddress, clock: Clock, tuning: WriterTuning = DEFAULT_TUNING) -> None:
        self.address, self.clock = address, clock
        self._last_append = 0.0
        self._reported = -REPORT_SECONDS  # when damage was last reported
        self._index_problem: str | None = None
        self._suspects_index = False  # passages were missing: they are counted until they are there again
        self.readers = Readers(address, clock)
        self.hub = FileWatcher(self.readers)
        self.indexer = TurnIndexer(self._request_chores)
        self.writer = Writer(
            address,
            clock,
            setup=text_index.rebuild_if_outdated,
            chores=self.indexer.chores,
            repair=self._repair_tables,
            committed=self.hub.wake,
            tuning=tuning,
        )
        self.eraser = large_deletions.Eraser(self.writer, self.readers)
        self.readers.open_brief()
        leftovers.remove(address.path)

    async def close(self) -> None:
        await self.hub.close()
        await asyncio.to_thread(self.close_connections)

    def close_connections(self) -> None:
        """Close without an event loop. Blocks."""
        self.readers.close()
        self.indexer.stop()
        self.writer.close()

    # ---- conversations

    async def open_conversation(self, scope: Scope, spec: ConversationSpec) -> ConversationInfo:
        return await self.writer.submit(conversations.get_or_create, scope, spec)

    async def conversation(self, scope: Scope, id: str) -> ConversationInfo:
        return await self.readers.run_brief(conversations.get, scope, id)

    async def find_conversation(self, scope: Scope, owner: str, key: str) -> ConversationInfo:
        return await self.readers.run_brief(conversations.find_by_key, scope, owner, key)

    async def conversations(self, scope: Scope, listing: Listing) -> list[ConversationInfo]:
        return await self.readers.run(conversations.conversations, scope, listing)

    async def search(self, scope: Scope, search: SearchQuery) -> list[ConversationMatch]:
        return await self._search(lambda tx, state: conversations.search(tx, scope, search, state))

    async def matches(self, scope: Scope, search: SearchQuery) -> list[TurnMatch]:
        return await self._search(lambda tx, state: conversations.matches(tx, scope, search, state))

    async def _search(self, work: Callable[[Tx, IndexState], T]) -> T:
        """Search with the text index. Turns that it lacks are searched word by word, and its repair is enqueued."""
        state = await self._index_state()
        if state.usable:
            try:
                self._index_problem = state.problem
                return await self.readers.run(work, state)
            except RowUnreadable:
                raise
            except DatabaseCorrupt:
                await self._report_damage(Damage(table=text_index.INDEX, problem=UNREADABLE))
        self._index_problem = unindexed.DAMAGED.problem
        return await self.readers.run(work, unindexed.DAMAGED)

    async def _index_state(self) -> IndexState:
        """Bring the text index up to date, if that is possible now, and say how far it can be used."""
        try:
            ends = await self.readers.run_brief(text_index.ends)
            if ends.passage != ends.entry:
                await self._report_damage(Damage(table=text_index.INDEX, problem=LOST))
                return unindexed.DAMAGED
            if not ends.is_rebuilding:
                await self.index_all()
                return unindexed.WHOLE
            return await self.readers.run_brief(text_index.state, "the text index is being filled again")
        except RowUnreadable:
            raise
        except DatabaseCorrupt:
            await self._report_damage(Damage(table=text_index.INDEX, problem=UNREADABLE))
            return unindexed.DAMAGED
        except (DatabaseFull, DatabaseReadOnly, EngineUnavailable) as problem:
            why = f"the text index could not be brought up to date ({type(problem).__name__})"
            return await self.readers.run_brief(text_index.state, why)

    def index_problem(self) -> str | None:
        return self._index_problem

    async def _report_damage(self, *damage: Damage) -> None:
        """Log damage that a read has met, and enqueue its repair, not more than once in a while."""
        now = time.monotonic()
        if now - self._reported < REPORT_SECONDS:
            return
        self._reported = now
        logger.warning("derived data is damaged (%s)", describe(damage))
        with suppress(EngineError):  # a full disk: it is found again later
            await self.enqueue_repair(damage)

    async def index_all(self) -> None:
        """Index every stored turn, so that a search sees everything that was stored before it."""
        indexed, last = await self.readers.run_brief(text_index.progress)
        while indexed < last:  # turns that are appended now are not waited for: there may be no end of them
            if not await self.writer.submit_chores() and not await self.indexer.wait():
                return
            indexed = (await self.readers.run_brief(text_index.progress)).indexed

    def _request_chores(self) -> None:
        self.writer.request_chores()

    async def update(self, scope: Scope, id: str, changes: ConversationChanges) -> ConversationInfo:
        info = await self.writer.submit(details.update, scope, id, changes)
        await self.writer.scrubber.finished()  # a reader may keep old words for a while: then they go without us
        return info

    # ---- turns

    async def append(self, scope: Scope, conversation: str, batch: AppendBatch) -> list[Turn]:
        self._last_append = time.monotonic()
        return await self._submit(batch, turns.append, scope, conversation, batch)

    def _submit(
        self, batch: AppendBatch, work: Callable[Concatenate[Tx, P], T], *arguments: P.args, **options: P.kwargs
    ) -> Awaitable[T]:
        submit = self.writer.submit_brief if _is_brief(batch) else self.writer.submit
        return submit(work, *arguments, **options)

    async def history(self, scope: Scope, conversation: str, query: HistoryQuery) -> list[Turn]:
        run = self.readers.run_brief if _is_brief_history(query) else self.readers.run
        return await run(turns.history, scope, conversation, query)

    async def turn(self, scope: Scope, conversation: str, id: str) -> Turn:
        return await self.readers.run_brief(turns.turn, scope, conversation, id)

    async def branches(self, scope: Scope, conversation: str, turn: str | None) -> list[Branch]:
        return await self.readers.run(turns.branches, scope, conversation, turn)

    async def switch(self, scope: Scope, conversation: str, turn: str) -> None:
        await self.writer.submit(turns.switch, scope, conversation, turn)

    # ---- streams

    async def stream_open(self, scope: Scope, conversation: str, batch: AppendBatch, lease: int) -> Turn:
        return await self._submit(batch, streams.open_stream, scope, conversation, batch, lease)

    async def stream_chunk(self, scope: Scope, conversation: str, turn: str, chunk: StreamChunk, lease: int) -> int:
        self._last_append = time.monotonic()
        return await self.writer.submit(streams.chunk, scope, conversation, turn, chunk, lease)

    async def stream_renew(self, scope: Scope, conversation: str, turn: str, lease: int) -> None:
        await self.writer.submit(streams.renew, scope, conversation, turn, lease)

    async def stream_commit(self, scope: Scope, conversation: str, turn: str, end: StreamEnd) -> Turn:
        return await self.writer.submit(streams.commit, scope, conversation, turn, end)

    async def stream_abort(self, scope: Scope, conversation: str, turn: str, tail: StreamChunk | None) -> Turn:
        return await self.writer.submit(streams.abort, scope, conversation, turn, tail)

    async def take_answer_place(self, scope: Scope, conversation: str, wanted: PlaceRequest, lease: int) -> int:
        return await self.writer.submit(lambda tx: answer_places.take(tx, scope, conversation, wanted, lease))

    async def leave_answer_place(self, scope: Scope, conversation: str, place: str) -> None:
        await self.writer.submit(lambda tx: answer_places.leave(tx, scope, conversation, place))

    async def abort_expired_streams(self) -> int:
        return await self.writer.submit(streams.abort_expired_streams)

    async def next_lease_end(self) -> datetime | None:
        end = await self.readers.run(streams.next_lease_end)
        return None if end is None else moment(end)

    # ---- forgetting

    async def forget_turn(self, scope: Scope, conversation: str, turn: str) -> Deletion:
        while await self.eraser.slice(large_deletions.drop_bodies, scope, conversation, turn):
            pass
        await self.eraser.unindex_turns(scope, [(conversation, turn)])
        removed = await self.writer.submit(deletion.forget_turn, scope, conversation, turn)
        return await self._scrubbed(removed)

    async def reset(self, scope: Scope, conversation: str) -> Deletion:
        await self._erase(await self.writer.submit(large_deletions.begin, scope, conversation, "reset"))
        return await self._scrubbed(Deletion())

    async def forget_conversation(self, scope: Scope, conversation: str) -> Deletion:
        await self._erase(await self.writer.submit(large_deletions.begin, scope, conversation, "forget"))
        return await self._scrubbed(Deletion(conversations=(conversation,)))

    async def retire(self, scope: Scope, conversation: str, position: int, keep_salt: bool) -> Deletion:
        turns = await self.readers.run(deletion.turns_to_retire, scope, conversation, position)
        await self.eraser.unindex_turns(scope, turns)
        return await self._scrubbed(await self.writer.submit(deletion.retire, scope, conversation, position, keep_salt))

    async def forget_older(self, scope: Scope, before: int) -> Deletion:
        forgotten, after = list[str](), -1
        while turns := await self.readers.run(deletion.older_turns, scope, before, after):
            forgotten += await self._forget_all(scope, [turn[1:] for turn in turns])
            after = turns[-1][0]
        while retired := await self.readers.run(deletion.older_retired_turns, scope, before):
            forgotten += await self._forget_all(scope, retired)
        return Deletion(turns=tuple(forgotten))

    async def _forget_all(self, scope: Scope, turns: Sequence[tuple[str, str]]) -> list[str]:
        forgotten: list[str] = []
        await self.eraser.unindex_turns(scope, turns)
        while turns:
            looked_at, ids = await self.eraser.slice(deletion.forget_some, scope, turns)
            turns, forgotten = turns[looked_at:], forgotten + ids
        return forgotten

    async def expire(self, scope: Scope) -> Deletion:
        while True:
            ids, large = await self.eraser.slice(large_deletions.begin_expired, scope)
            await self._erase(large)
            if large is not None and large.kind != "reset":
                ids.append(large.id)
            if ids or large is None:
                return Deletion(conversations=tuple(ids))

    async def finish_deletions(self, scope: Scope) -> None:
        for hidden in await self.readers.run(large_deletions.unfinished, scope):
            await self._erase(hidden)

    async def _erase(self, hidden: large_deletions.HiddenConversation | None) -> None:
        if hidden is not None:
            await self.eraser.erase(hidden)

    async def _scrubbed(self, removed: Deletion) -> Deletion:
        return replace(removed, scrubbed=await self.scrub())

    async def scrub(self) -> bool:
        """Remove old bytes from the WAL and the file. True when none are left."""
        if await self.readers.run_brief(deletion.is_marked_for_scrub):
            self.writer.scrubber.request()
        return await self.writer.scrubber.finished()

    def scrub_problem(self) -> str | None:
        return self.writer.scrubber.problem

    async def blobs_to_delete(self, limit: int) -> list[str]:
        return await self.readers.run(deletion.blobs_to_delete, limit)

    async def blobs_deleted(self, paths: Sequence[str]) -> None:
        await self.writer.submit(deletion.blobs_deleted, paths)

    # ---- attachments

    async def attach(self, scope: Scope, conversation: str, attachment: Attachment) -> Attachment:
        return await self.writer.submit(files.attach, scope, conversation, attachment)

    async def attachment(self, scope: Scope, conversation: str, id: str) -> Attachment:
        return await self.readers.run(files.attachment, scope, conversation, id)

    async def attachments(self, scope: Scope, conversation: str, before: str | None, limit: int) -> list[Attachment]:
        return await self.readers.run(files.attachments, scope, conversation, before, limit)

    async def drop_loose_files(self, scope: Scope, before: int) -> int:
        return await self.writer.submit(files.drop_loose_files, scope, before)

    async def orphans(self, scope: Scope, paths: Sequence[str]) -> list[str]:
        return await self.readers.run(files.orphans, scope, paths)

    async def unread_files(self, scope: Scope, conversation: str, limit: int) -> list[Attachment]:
        return await self.readers.run(files.unread_files, scope, conversation, limit)

    async def put_file_text(self, scope: Scope, conversation: str, text: FileText) -> bool:
        pieces = await asyncio.to_thread(split_into_passages, text.text)
        return await self.writer.submit(files.put_file_text, scope, conversation, text, pieces)

    async def file_text(self, scope: Scope, conversation: str, id: str) -> FileText | None:
        return await self.readers.run(files.file_text, scope, conversation, id)

    async def file_quotes(self, scope: Scope, tids: Sequence[int], stems: Sequence[str]) -> dict[int, FileQuote]:
        return await self._read_derived("file_passages", {}, files.file_quotes, scope, tids, stems)

    async def file_in_database(self, scope: Scope, path: str) -> bytes | None:
        return None

    # ---- erasing a person

    async def erasures(self, scope: Scope) -> list[Erasure]:
        return await self.readers.run(erasure.erasures, scope)

    async def put_erasure(self, scope: Scope, erased: Erasure) -> None:
        await self.writer.submit(erasure.put_erasure, scope, erased)

    async def note_erased(self, scope: Scope, digest: str, kind: str, items: Sequence[str]) -> None:
        await self.writer.submit(erasure.note_erased, scope, digest, kind, items)

    async def erased_items(self, scope: Scope, digest: str) -> list[tuple[str, str]]:
        return await self.readers.run(erasure.erased_items, scope, digest)

    async def conversation_names(self, scope: Scope, after: str, limit: int) -> list[ConversationNames]:
        return await self.readers.run(erasure.conversation_names, scope, after, limit)

    async def erase_conversation(self, scope: Scope, conversation: str) -> None:
        await self._erase(await self.writer.submit(large_deletions.begin, scope, conversation, "forget"))

    async def erase_turns(self, scope: Scope, conversation: str, name: ErasedName) -> ErasedTurns:
        found = await self.readers.run(erasure.find_turns, scope, conversation, name)
        await self.eraser.unindex_turns(scope, [(conversation, turn) for turn in found])
        erased = await self.eraser.slice(erasure.erase_turns, scope, conversation, name, found)
        if not erased.more:
            bodies = await self.readers.run(erasure.find_bodies, scope, conversation, name)
            await self.writer.submit(erasure.drop_bodies, bodies)
        return erased

    async def erase_names(self, scope: Scope, conversation: str, name: ErasedName) -> int:
        changed, after = 0, 0
        while events := await self.readers.run(erasure.find_events, scope, conversation, name, after):
            while events:
                done = await self.eraser.slice(erasure.erase_events, scope, conversation, name, events)
                changed, after, events = changed + done, events[done - 1], events[done:]
        while stubs := await self.readers.run(erasure.find_stubs, scope, conversation, name):
            changed += await self.eraser.slice(erasure.erase_stubs, scope, conversation, name, stubs)
        await self.writer.submit(erasure.rename_owner, scope, conversation, name)
        return changed

    async def erase_keys(self, scope: Scope, name: ErasedName) -> tuple[list[str], int]:
        return await self.writer.submit(erasure.erase_keys, scope, name)

    # ---- the log

    async def events(self, scope: Scope, conversation: str, query: EventQuery) -> list[Event]:
        return await self.readers.run(log.events, scope, conversation, query)

    def watch(self, conversation: str) -> AbstractAsyncContextManager[Signal]:
        return self.hub.watch(conversation)

    # ---- whole conversations

    async def records(
        self, scope: Scope, conversation: str, derived: bool = False, part: RecordRange = ALL_RECORDS
    ) -> AsyncIterator[Sequence[Record]]:
        """Read all pages from one snapshot, on a connection of its own."""
        await asyncio.to_thread(self.writer.check_file)
        with translate_errors(self.address.path):
            reader = DedicatedReader(await asyncio.to_thread(self.readers.connect))
        try:
            with translate_errors(self.address.path):
                await reader.run(lambda db: db.execute("BEGIN").fetchall())
                tx = Tx(reader.db, micros(self.clock.now()))
                pages = export_rows.pages(tx, scope, conversation, derived, part)
                while (page := await reader.run(lambda db: next(pages, None))) is not None:
                    yield page
        finally:
            await reader.close()

    async def restore(self, scope: Scope, records_: Sequence[Record]) -> ConversationInfo | None:
        return await self.writer.submit(export_rows.restore, scope, records_)

    async def adopt(self, scope: Scope, adoption: Adoption) -> bool:
        return await self.writer.submit(replication.adopt, scope, adoption)

    # ---- memory

    async def context_snapshot(self, scope: Scope, conversation: str, limits: ReadBudget) -> ContextSnapshot:
        run = self.readers.run_brief if limits.budget <= BRIEF_CONTEXT_TOKENS else self.readers.run
        return await run(memory.context_snapshot, scope, conversation, limits)

    async def unsummarised(self, scope: Scope, conversation: str, tokens: int) -> Unsummarised:
        return await self.readers.run(memory.unsummarised, scope, conversation, tokens)

    async def span(self, scope: Scope, conversation: str, from_seq: int, through_seq: int) -> list[Turn]:
        return await self.readers.run(memory.span, scope, conversation, from_seq, through_seq)

    async def summaries(self, scope: Scope, conversation: str, level: int | None) -> list[Summary]:
        return await self.readers.run(memory.summaries, scope, conversation, level)

    async def speakers(
        self, scope: Scope, conversation: str, spans: Sequence[tuple[int, int]], retired: bool
    ) -> list[frozenset[str]]:
        return await self.readers.run(lambda tx: memory.speakers(tx, scope, conversation, spans, retired))

    async def uncovered(self, scope: Scope, conversation: str, level: int) -> list[Summary]:
        return await self.readers.run(memory.uncovered, scope, conversation, level)

    async def put_summary(self, scope: Scope, conversation: str, draft: SummaryDraft) -> bool:
        return await self.writer.submit(memory.put_summary, scope, conversation, draft)

    async def drop_summary(self, scope: Scope, conversation: str, summary: Summary) -> None:
        await self.writer.submit(memory.drop_summary, scope, conversation, summary)

    async def put_working_memory(self, scope: Scope, conversation: str, draft: MemoryDraft) -> bool:
        return await self.writer.submit(memory.put_working_memory, scope, conversation, draft)

    async def facts(self, scope: Scope, conversation: str, include_invalidated: bool) -> list[Fact]:
        return await self.readers.run(memory.facts, scope, conversation, include_invalidated)

    async def put_facts(self, scope: Scope, conversation: str, draft: FactsDraft) -> list[Fact] | None:
        return await self.writer.submit(memory.put_facts, scope, conversation, draft)

    async def facts_where(self, scope: Scope, where: RecallScope) -> list[Fact]:
        return await self.readers.run(memory.facts_where, scope, where)

    async def fact_vectors(self, scope: Scope, where: RecallScope, model: str) -> dict[str, bytes]:
        return await self.readers.run(memory.fact_vectors, scope, where, model)

    async def drop_fact(self, scope: Scope, conversation: str, id: str) -> bool:
        return await self.writer.submit(memory.drop_fact, scope, conversation, id)

    # ---- subjects

    async def items(self, scope: Scope, conversation: str, query: ItemQuery) -> list[MemoryItem]:
        return await self.readers.run(subjects.items, scope, conversation, query)

    async def item_words(self, scope: Scope, conversation: str) -> list[ItemWords]:
        return await self.readers.run(subjects.item_words, scope, conversation)

    async def put_items(self, scope: Scope, conversation: str, draft: ItemsDraft) -> list[str] | None:
        return await self.writer.submit(subjects.put_items, scope, conversation, draft)

    async def drop_items(self, scope: Scope, conversation: str, ids: Sequence[str]) -> list[str]:
        return await self.writer.submit(subjects.drop_items, scope, conversation, ids)

    async def items_of_author(self, scope: Scope, conversation: str, author: str) -> list[str]:
        return await self.readers.run(subjects.items_of_author, scope, conversation, author)

    # ---- recall

    async def profile(self, scope: Scope, where: RecallScope, known: tuple[int, ...] | None, after: int) -> ProfileRows:
        await self._index_state()  # the rarity of a word is counted in the index
        rows = await self.readers.run(recall.profile, scope, where, known, after, self._suspects_index)
        if rows.missing is not None:
            self._suspects_index = rows.missing > 0
        if rows.missing:
            await self._report_damage(Damage(table="passages", problem=LOST, count=rows.missing))
        return rows

    async def postings(self, scope: Scope, where: RecallScope, stems: Sequence[str], limit: int) -> dict[str, Postings]:
        return await self._search(lambda tx, state: recall.postings(tx, scope, where, stems, limit, state))

    async def turns_where(self, scope: Scope, where: RecallScope, metadata: Sequence[Interval]) -> Sequence[int]:
        return await self.readers.run(recall.turns_where, scope, where, metadata)

    async def vectors(
        self,
        scope: Scope,
        where: RecallScope,
        model: str,
        known: dict[int, tuple[int, ...]],
        most: int | None = None,
    ) -> list[VectorRows]:
        found = await self._read_derived("embeddings", [], recall.vectors, scope, where, model, known, most)
        missing = sum(one.missing for one in found)
        if missing:
            await self._report_damage(Damage(table="embeddings", problem=LOST, count=missing))
        return found

    async def _read_derived(
        self, table: str, nothing: T, work: Callable[Concatenate[Tx, P], T], *arguments: P.args, **options: P.kwargs
    ) -> T:
        """Run a read that can do without its table: a damaged one gives nothing, and its repair is enqueued."""
        try:
            return await self.readers.run(work, *arguments, **options)
        except RowUnreadable:
            raise
        except DatabaseCorrupt:
            await self._report_damage(Damage(table=table, problem=UNREADABLE))
            return nothing

    async def turns_by_number(self, scope: Scope, tids: Sequence[int]) -> dict[int, Turn]:
        return await self.readers.run(recall.turns_by_number, scope, tids)

    # ---- requests

    async def put_request(self, scope: Scope, conversation: str, request: Request, bodies: int | None) -> None:
        await self.writer.submit(requests.put, scope, conversation, request, bodies)

    async def requests(
        self, scope: Scope, conversation: str, turn: str | None, before: str | None, limit: int
    ) -> list[Request]:
        return await self.readers.run(requests.requests, scope, conversation, turn, before, limit)

    async def count_calls(self, scope: Scope, conversation: str, since: int) -> CallCount:
        return await self.readers.run(requests.count_calls, scope, conversation, since)

    async def counter_bound(self, scope: Scope, model: str) -> CounterBound | None:
        return await self.readers.run_brief(requests.counter_bound, scope, model)

    async def put_counter_bound(self, scope: Scope, bound: CounterBound) -> None:
        await self.writer.submit(requests.put_counter_bound, scope, bound)

    # ---- the server's callers

    async def budgets(self, tenant: str) -> list[StoredBudget]:
        return await self.readers.run_brief(budgets.budgets, tenant)

    async def put_budget(self, scope: Scope, budget: StoredBudget) -> None:
        await self.writer.submit(budgets.put_budget, scope, budget)

    async def spend(self, tenant: str, charges: list[Charge]) -> Overrun | None:
        return await self.writer.submit(budgets.spend, tenant, charges)

    async def spent(self, tenant: str, accounts: list[Account]) -> dict[Account, Amounts]:
        return await self.readers.run_brief(budgets.spent, tenant, accounts)

    async def measure_storage(self, tenant: str, kind: BudgetKind, name: str) -> Amounts:
        found = await self.readers.run(budgets.measure_storage, tenant, kind, name)
        await self.writer.submit(budgets.set_storage, tenant, kind, name, found)
        return found

    async def take_lease(self, tenant: str, name: str, micros: int) -> bool:
        return await self.writer.submit(budgets.take_lease, tenant, name, micros)

    async def put_key(self, scope: Scope, key: ApiKey, hash: bytes) -> None:
        await self.writer.submit(keys.put_key, scope, key, hash)

    async def api_key(self, tenant: str, hash: bytes) -> ApiKey | None:
        return await self.readers.run_brief(keys.api_key, tenant, hash)

    async def api_keys(self, scope: Scope) -> list[ApiKey]:
        return await self.readers.run(keys.api_keys, scope)

    async def revoke_key(self, scope: Scope, id: str) -> ApiKey | None:
        return await self.writer.submit(keys.revoke_key, scope, id)

    async def has_key(self) -> bool:
        return await self.readers.run_brief(keys.has_key)

    async def log_key(self, scope: Scope, kind: str, key: str, payload: Mapping[str, object] | None) -> None:
        await self.writer.submit(keys.log_key, scope, kind, key, payload)

    async def key_events(self, scope: Scope, after: int, limit: int) -> list[Event]:
        return await self.readers.run(keys.key_events, scope, after, limit)

    async def announce(self, scope: Scope, conversation: str, kind: str, turn: str | None) -> int:
        return await self.writer.submit(log.announce, scope, conversation, kind, turn)

    async def archive_log(self, scope: Scope, tip: Tip, requests_before: int) -> ArchivedRows:
        return await self.writer.submit(log.archive_log, scope, tip, requests_before)

    async def prove_rows(self, scope: Scope, conversation: str, limit: int) -> bool:
        return await self.writer.submit(log.prove_rows, scope, conversation, limit)

    async def mismatched_rows(self, scope: Scope, conversation: str) -> list[str]:
        return await self.readers.run(log.mismatched_rows, scope, conversation)

    async def usage(self, scope: Scope, since: int | None, until: int | None, limit: int) -> list[UsageLine]:
        return await self.readers.run(stats.usage, scope, since, until, limit)

    async def tenants(self) -> list[str]:
        return await self.readers.run(log.tenants)

    async def tips(self, scope: Scope, after: str, limit: int) -> list[Tip]:
        return await self.readers.run(log.tips, scope, after, limit)

    async def unsealed(self, tenant: str, limit: int) -> list[Tip]:
        return await self.readers.run(log.unsealed, tenant, limit)

    async def put_seals(self, tenant: str, seals: Sequence[LogSeal]) -> None:
        await self.writer.submit(log.put_seals, tenant, seals)

    async def seals(self, scope: Scope, conversation: str) -> list[LogSeal]:
        return await self.readers.run(log.seals, scope, conversation)

    # ---- the outbox

    def quiet_seconds(self) -> float:
        return time.monotonic() - self._last_append

    async def add_job(self, scope: Scope, conversation: str, kind: str, argument: int | None) -> None:
        await self.writer.submit(jobs.add_job, scope, conversation, kind, argument)

    async def claim_job(self, lease: int, tenant: str | None = None, kinds: Sequence[str] = JOB_KINDS) -> Job | None:
        return await self.writer.submit(jobs.claim, lease, kinds)

    async def renew_job(self, job: Job, lease: int) -> None:
        await self.writer.submit(jobs.renew, job, lease)

    async def release_job(self, job: Job) -> None:
        await self.writer.submit(jobs.release, job)

    async def finish_job(self, job: Job) -> None:
        await self.writer.submit(jobs.finish, job)

    async def retry_job(self, job: Job, delay: int, error: str, dead: bool) -> None:
        await self.writer.submit(jobs.retry, job, delay, error, dead)

    async def next_job(self, tenant: str | None = None, kinds: Sequence[str] = JOB_KINDS) -> datetime | None:
        due = await self.readers.run_brief(jobs.next_due, kinds)
        return None if due is None else moment(due)

    async def health(self, kinds: Sequence[str] = JOB_KINDS) -> Health:
        return await self.readers.run(stats.health, kinds)

    async def to_embed(self, model: str, limit: int, job: Job | None = None, after: int = 0) -> list[ToEmbed]:
        return await self.readers.run(embeddings.to_embed, model, limit, after)

    async def put_embedded(self, model: str, embedded: Embedded) -> None:
        await self.writer.submit(embeddings.put_embedded, model, embedded)

    async def facts_to_embed(self, model: str, limit: int, job: Job | None = None) -> list[FactToEmbed]:
        return await self.readers.run(embeddings.facts_to_embed, model, limit)

    async def put_fact_vectors(self, model: str, vectors: Sequence[tuple[FactToEmbed, bytes]]) -> None:
        await self.writer.submit(embeddings.put_fact_vectors, model, vectors)

    async def drop_other_vectors(self, model: str, tenant: str | None = None) -> None:
        while await self.writer.submit(embeddings.drop_other_vectors, model):
            pass

    async def enqueue_embedding(self, models: Sequence[str], tenant: str | None = None) -> None:
        if await self.readers.run_brief(embeddings.has_vectors_of, models):
            await self.writer.submit(jobs.enqueue_embed_job)

    async def drop_vectors(self, models: Sequence[str], job: Job) -> None:
        if await self.readers.run_brief(embeddings.has_vectors_of, models):
            while await self.writer.submit(embeddings.drop_vectors, models):
                pass

    async def embedding_backlog(self, model: str, tenant: str | None = None) -> int:
        return await self.readers.run(embeddings.embedding_backlog, model)

    # ---- damage of derived data

    async def find_damage(self, tenant: str | None = None, *, thorough: bool = False) -> list[Damage]:
        if thorough:
            return await self.readers.run(repair.find_thoroughly)
        found = await self.readers.run(repair.find_everywhere)
        self._suspects_index |= any(one.table in text_index.TABLES for one in found)
        return found

    async def repair(self, scope: Scope, conversation: str) -> list[Damage]:
        return await self.writer.submit(repair.repair, scope, conversation)

    async def rebuild_index(self) -> int:
        await self.writer.submit(text_index.rebuild_damaged)
        await self.index_all()
        return len(await self.readers.run(repair.all_conversations))

    async def repair_database(self) -> list[Damage]:
        broken = await asyncio.to_thread(self._repair_tables)
        return [*broken, *await self.writer.submit(repair.repair_index)]

    def _repair_tables(self) -> list[Damage]:
        with translate_errors(self.address.path):
            return table_repair.repair_tables(self.address)

    async def rows_kept_aside(self, tenant: str | None = None) -> list[Damage]:
        return await self.readers.run(repair.set_aside)

    async def enqueue_repair(self, damage: Sequence[Damage]) -> None:
        if damage:
            await self.writer.submit(repair.enqueue, damage)

    # ---- counts

    async def stats(self, scope: Scope) -> Stats:
        found = await self.readers.run(stats.stats, scope)
        try:
            return replace(found, storage={**self.storage(), **found.storage})
        except OSError:
            raise EngineUnavailable(f"{self.address.path} cannot be read, or was deleted") from None

    def storage(self) -> dict[str, object]:
        path = self.address.path
        wal = path.with_name(path.name + "-wal")
        return {
            "engine": "sqlite",
            "sqlite": apsw.sqlite_lib_version(),
            "file": str(path),
            "bytes": path.stat().st_size,
            "wal_bytes": wal.stat().st_size if wal.exists() else 0,
            "synchronous": self.address.synchronous,
            "commits": self.writer.commits,
        }


def _is_brief(batch: AppendBatch) -> bool:
    """True if storing the batch takes less time than its commit."""
    if batch.replaces is not None or len(batch.drafts) > BRIEF_TURNS:
        return False
    texts = [text for one in batch.drafts for text in (one.content, one.tool_calls, one.tool_results, one.sources)]
    return sum(map(len, filter(None, texts))) <= BRIEF_CHARACTERS


def _is_brief_history(query: HistoryQuery) -> bool:
    """True if the query reads few rows, and returns all that it reads."""
    filters = (query.since, query.until, query.participants, query.roles, query.metadata or None)
    return query.limit <= BRIEF_HISTORY_TURNS and not query.include_superseded and all(one is None for one in filters)
