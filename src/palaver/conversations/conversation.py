"""A conversation: one short method for each thing that can be done with it. Other modules here do the work."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Literal, Unpack, overload

from palaver.context.inputs import Context
from palaver.context.options import ContextOptions, RecallRange, SharedContextOptions
from palaver.conversations.arguments import event_query
from palaver.conversations.attachments import UPLOAD_SECONDS
from palaver.conversations.components import Components
from palaver.conversations.deletion import EVERYTHING, WholeConversation
from palaver.conversations.details import update_details
from palaver.conversations.handle import Handle
from palaver.conversations.options import ConversationOptions
from palaver.conversations.recall import Recall
from palaver.conversations.services import ConversationServices
from palaver.conversations.turn_writer import TurnWriter
from palaver.core.filters import Where
from palaver.core.option_docs import describe_options
from palaver.core.turn_options import Moment, SealOptions, StreamOptions, TurnInput, TurnOptions
from palaver.generation.events import Answered, GenerateEvent
from palaver.generation.options import GenerateOptions
from palaver.memory.settings import CompactionSettings
from palaver.model import (
    READ,
    Attachment,
    Branch,
    ContentInput,
    ConversationInfo,
    Event,
    Fact,
    FileText,
    Request,
    Results,
    Role,
    Scope,
    Summary,
    Turn,
    TurnMatch,
    Upload,
    Verified,
    WorkingMemory,
)
from palaver.ports.queries import Record
from palaver.telemetry import traced


@traced(lambda conversation: (conversation._telemetry, conversation.id))
class Conversation:
    """A thread of turns. Get one from `store.conversation(key)` or `store.get(id)`."""

    def __init__(self, components: Components, scope: Scope, info: ConversationInfo) -> None:
        self._handle = Handle(components.engine, scope, info)
        self._services = ConversationServices(components, self._handle)
        self._telemetry = components.generation.telemetry
        self._unflushed, self._stream_flush = components.unflushed, components.stream_flush

    def __repr__(self) -> str:
        return f"<Conversation {self.id}>"

    @property
    def id(self) -> str:
        """The id of the conversation, which never changes."""
        return self._handle.id

    @property
    def key(self) -> str | None:
        """The application's own name for this conversation."""
        return self.info.key

    @property
    def info(self) -> ConversationInfo:
        """The conversation's details, as they were last read. See `refresh`."""
        return self._handle.info

    async def refresh(self) -> ConversationInfo:
        """Read the conversation's details again."""
        self._handle.require(READ)
        return await self._handle.refresh()

    # ---- append

    @describe_options(TurnOptions)
    async def append(
        self,
        role: Role,
        content: ContentInput = "",
        *,
        expected_seq: int | None = None,
        replaces: Turn | str | None = None,
        discard_after: bool = False,
        **fields: Unpack[TurnOptions],
    ) -> Turn:
        """Store one turn. It is on disk when this returns.

        `content` is text or a list of parts; files that it refers to are attached. Options:

        - `role`: `user`, `assistant`, `system` or `tool`.
        - `expected_seq`: the sequence number that the turn must get; otherwise `AppendConflict`.
        - `replaces`: the turn that this one replaces in the active view. A message of a user keeps the files of the one
          that it replaces, as copies, unless `attachments` are given.
        - `discard_after`: with `replaces`, also leave out what followed the replaced turn.
        """
        return await self._services.appender.append(
            role, content, expected_seq=expected_seq, replaces=replaces, discard_after=discard_after, **fields
        )

    async def append_many(self, turns: Iterable[TurnInput], *, expected_seq: int | None = None) -> list[Turn]:
        """Store several turns in one transaction: all of them or none."""
        return await self._services.appender.append_many(turns, expected_seq)

    # ---- streams

    def stream(
        self,
        role: Role = "assistant",
        *,
        flush: float | Literal["end"] | None = None,
        **fields: Unpack[StreamOptions],
    ) -> TurnWriter:
        """Return a writer for a turn that is durable while it is written; see `TurnWriter`.

        Text is on disk at most `flush` seconds after it was written (a quarter of a second unless the store says
        otherwise). With `flush="end"`, nothing is stored before the end, and then as one row.
        """
        return TurnWriter(
            self._services.streams,
            self._services.appender,
            self._unflushed,
            role,
            flush=self._stream_flush if flush is None else flush,
            options=fields,
            redactor=self._services.redaction.open_stream(),
        )

    async def append_open(
        self,
        role: Role = "assistant",
        *,
        expected_seq: int | None = None,
        replaces: Turn | str | None = None,
        discard_after: bool = False,
        **fields: Unpack[TurnOptions],
    ) -> Turn:
        """Open a pending turn. It must be written to or renewed before its lease ends."""
        return await self._services.streams.open(
            role, expected_seq=expected_seq, replaces=replaces, discard_after=discard_after, **fields
        )

    async def append_chunk(self, turn: Turn | str, n: int, text: str) -> int:
        """Store piece number `n` (0, 1, 2, …) and return the number of the next. Repeating a number changes nothing."""
        return await self._services.streams.append_chunk(turn, n, text)

    async def append_commit(self, turn: Turn | str, **final: Unpack[SealOptions]) -> Turn:
        """Seal a pending turn as complete. `final` is what `TurnWriter.finish` takes: tokens, model and so on."""
        return await self._services.streams.append_commit(turn, final)

    async def append_abort(self, turn: Turn | str) -> Turn:
        """Seal a pending turn as aborted: out of the active view, its text kept for the record."""
        return await self._services.streams.append_abort(turn)

    async def append_renew(self, turn: Turn | str) -> None:
        """Renew the lease of a pending turn without writing to it."""
        await self._services.streams.renew(turn)

    # ---- reading

    @overload
    async def history(
        self,
        limit: int = 50,
        *,
        before: Turn | str | None = None,
        after: Turn | str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        include_superseded: bool = False,
        participants: Iterable[str] | None = None,
        roles: Iterable[Role] | None = None,
        where: Where | None = None,
        include_summaries: Literal[False] = False,
    ) -> list[Turn]: ...

    @overload
    async def history(
        self,
        limit: int = 50,
        *,
        before: Turn | str | None = None,
        after: Turn | str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        include_superseded: bool = False,
        participants: Iterable[str] | None = None,
        roles: Iterable[Role] | None = None,
        where: Where | None = None,
        include_summaries: bool,
    ) -> list[Turn | Summary]: ...

    async def history(
        self,
        limit: int = 50,
        *,
        before: Turn | str | None = None,
        after: Turn | str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        include_superseded: bool = False,
        participants: Iterable[str] | None = None,
        roles: Iterable[Role] | None = None,
        where: Where | None = None,
        include_summaries: bool = False,
    ) -> Sequence[Turn | Summary]:
        """Return the latest turns of the active view, oldest first; with `after`, the turns that follow it; with both
        cursors, the latest turns between them.

        Cursors are turns or their ids. `since` is inclusive, `until` is not. An empty list of participants or roles
        matches nothing. With `include_superseded`, return everything that was ever said, in order of arrival. With
        `include_summaries`, the summaries of what came before the first turn stand first, and each other one before the
        first turn of the span that it covers; only the widest summaries are included. `where` filters by metadata,
        actor, role and time: `where={"metadata": {"topic": "billing", "priority": {"gte": 3}}}`; see `Where`.
        """
        return await self._services.thread.history(
            limit,
            before=before,
            after=after,
            since=since,
            until=until,
            include_superseded=include_superseded,
            participants=participants,
            roles=roles,
            where=where,
            include_summaries=include_summaries,
        )

    async def turn(self, turn: Turn | str) -> Turn:
        """Return one turn, as it is now: in the view or superseded, complete, pending or aborted."""
        return await self._services.thread.turn(turn)

    async def search(self, text: str, limit: int = 10, *, where: Where | None = None) -> Results[TurnMatch]:
        """Return the turns of the active view that contain words of `text`; those that contain the most come first.

        `where` filters by metadata, actor, role and time; see `Where`.
        """
        return await self._services.thread.search(text, limit, where)

    async def branches(self, turn: Turn | str | None = None) -> list[Branch]:
        """Return the versions at one turn's place; without a turn, of every place where one is out of the view."""
        return await self._services.thread.branches(turn)

    async def switch(self, turn: Turn | str) -> None:
        """Make the active view lead through `turn`, and through what followed it when it was last active."""
        await self._services.thread.switch(turn)
        await self._services.memory.learn_again()

    # ---- details

    @describe_options(ConversationOptions)
    async def update(
        self, *, expected_updated: Moment | None = None, **fields: Unpack[ConversationOptions]
    ) -> ConversationInfo:
        """Change title, workspace, agent, model, participants, metadata, settings or ttl.

        With `expected_updated` (from the info that was read), raise `UpdateConflict` if anything changed since.
        """
        info = await update_details(self._handle, fields, expected_updated, self._services.redaction.redactor)
        if "person" in (fields.get("settings") or {}):
            await self._services.memory.learn_again()
        return info

    async def rename(self, title: str | None) -> ConversationInfo:
        """Change the title; None removes it."""
        return await self.update(title=title)

    # ---- deletion

    async def forget(self, turn: Turn | str | WholeConversation = EVERYTHING) -> None:
        """Delete a turn for good; without an argument, the whole conversation.

        When this returns, the text is in no row, index or file. `ScrubPending` means that it is deleted, but that
        another process's reader keeps old bytes in the WAL for a moment longer.
        """
        await self._services.forgetter.forget(turn)

    async def reset(self) -> None:
        """Forget every turn and keep the conversation. Sequence numbers continue where they were."""
        await self._services.forgetter.reset()

    # ---- attachments

    async def attach(
        self, data: bytes | Path | str, *, filename: str | None = None, media_type: str | None = None
    ) -> Attachment:
        """Store a file: bytes, a path, or a `data:` URL.

        Give the result to `append(attachments=[…])`, or name its id in the content. A file that is not attached to a
        turn within a day is swept.
        """
        return await self._services.uploads.attach(data, filename, media_type)

    async def open_upload(
        self, filename: str, *, media_type: str | None = None, seconds: int = UPLOAD_SECONDS
    ) -> Upload:
        """Prepare a place for a file that another program uploads, such as a browser into a bucket. See `Upload`."""
        return await self._services.uploads.open_upload(filename, media_type, seconds)

    async def put_upload(self, upload: Upload, data: bytes) -> None:
        """Store the bytes of an upload, for storage that has no upload URLs."""
        await self._services.uploads.put_upload(upload, data)

    async def complete_upload(self, upload: Upload) -> Attachment:
        """Check what was uploaded and store it as an attachment. Safe to repeat.

        The checked bytes are stored in another place, so that nobody can change them with the upload URL.
        """
        return await self._services.uploads.complete_upload(upload)

    async def attachments(self, limit: int = 50, *, before: Attachment | str | None = None) -> Results[Attachment]:
        """Return the newest files of this conversation, including those that no turn has taken yet."""
        return await self._services.attachments.newest(limit, before)

    async def attachment(self, attachment: Attachment | str) -> Attachment:
        """Return the details of a stored file."""
        return await self._services.attachments.get(attachment)

    async def read_attachment(self, attachment: Attachment | str) -> bytes:
        """Return the bytes of a stored file; they are checked against their hash."""
        return await self._services.attachments.read(attachment)

    async def read_attachment_range(self, attachment: Attachment | str, start: int, end: int) -> bytes:
        """Return bytes `start` up to `end` of a stored file. A part is not checked against the hash."""
        return await self._services.attachments.read_range(attachment, start, end)

    async def attachment_text(self, attachment: Attachment | str) -> FileText:
        """Return the text of a PDF, an office document or a text file.

        The worker extracts it once a turn has taken the file; if it has not done so yet, it is extracted now.
        """
        return await self._services.attachments.text(attachment)

    async def data_url(self, attachment: Attachment | str) -> str:
        """Return a stored file as a `data:` URL."""
        return await self._services.attachments.data_url(attachment)

    # ---- answers

    @describe_options(GenerateOptions, SharedContextOptions)
    async def generate(self, message: ContentInput | None = None, **options: Unpack[GenerateOptions]) -> Turn:
        """Answer: store the message, build the context, ask the model, store the reply, run its tools.

        Without a message it answers the thread as it is. Options:
        """
        async with aclosing(self.generate_stream(message, **options)) as events:
            async for event in events:
                if isinstance(event, Answered):
                    return event.turn
        raise AssertionError("every answer ends with Answered")

    def generate_stream(
        self, message: ContentInput | None = None, **options: Unpack[GenerateOptions]
    ) -> AsyncGenerator[GenerateEvent]:
        """Run `generate` and yield what happens: MessageStored, TextDelta, ReasoningDelta, ToolsPlanned, ToolDone,
        Answered; with `all_events` also Prompted and TurnOpened.

        Leaving the loop early, or `stop()` from elsewhere, keeps what came, with the finish reason "stopped".
        """
        return self._services.answers.stream(self, message, options)

    async def stop(self) -> int:
        """Stop the answers that this process is making here, and return how many there were."""
        return await self._services.answers.stop()

    async def ask_to_stop(self, turn: Turn | str | None = None) -> int:
        """Log a request to stop, for the process that makes an answer here, and return the event's number."""
        return await self._services.answers.ask_to_stop(turn)

    async def requests(
        self, limit: int = 20, *, turn: Turn | str | None = None, before: Request | str | None = None
    ) -> list[Request]:
        """Return what was really sent to models, and what came back: the latest requests, oldest first.

        For the owner, or an admin: a prompt may quote what a participant cannot see elsewhere.
        """
        return await self._services.answers.requests(limit, turn, before)

    # ---- memory

    @describe_options(ContextOptions, SharedContextOptions)
    async def build_context(
        self,
        token_budget: int | None = None,
        *,
        question: Turn | str | None = None,
        **options: Unpack[ContextOptions],
    ) -> Context:
        """Build what the model will see: bounded by the budget, with a reason for every line.

        `question` is the stored message to answer: the context ends with it, and contains nothing that came later.
        Without it, the newest message is answered.

        Options:
        """
        return await self._services.contexts.build_checked(token_budget, question, options)

    def recall(
        self,
        query: str,
        k: int = 10,
        *,
        scope: RecallRange = "conversation",
        threshold: float | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        include_facts: bool = True,
        where: Where | None = None,
    ) -> Recall:
        """Find the turns and facts that fit `query` best. `await` it for a list, or use it in `async for`.

        `where` filters the turns by metadata, actor, role and time, see `Where`; with conditions other than the time,
        no facts are returned.
        """
        return self._services.recall.recall(
            query,
            k,
            scope=scope,
            threshold=threshold,
            since=since,
            until=until,
            include_facts=include_facts,
            where=where,
        )

    async def summaries(self) -> Results[Summary]:
        """Return every summary, with the span that it covers."""
        return await self._services.memory.summaries()

    async def compact(self, *, keep_tokens: int | None = None, policy: CompactionSettings | None = None) -> int:
        """Summarise what is due now, and return how many summaries of turns were written. Turns stay.

        - `keep_tokens`: summarise more than is due, until this many tokens of turns have no summary.
        - `policy`: when and how to summarise, for this call; by default `compaction` of the conversation's settings.
        """
        return await self._services.memory.compact(keep_tokens, policy)

    async def summarize(self, *, through: Turn | str | None = None) -> list[Summary]:
        """Summarise the older half of what no summary covers yet, due or not, and return all summaries.

        With `through`, summarise every turn up to and including this one instead. Tool rounds are not split: one that
        ends after it stays as it is.
        """
        return await self._services.memory.summarize(through)

    async def working_memory(self) -> WorkingMemory:
        """Return the notes of this conversation: goals, decisions, instructions and so on."""
        return await self._services.memory.notes()

    async def remember(self, list_name: str, text: str, *, by: str | None = None) -> WorkingMemory:
        """Add a note to a list of working memory: goals, decisions, instructions and so on."""
        return await self._services.memory.add_note(list_name, text, by)

    async def correct(self, list_name: str, index: int, text: str, *, by: str | None = None) -> WorkingMemory:
        """Replace the text of a note."""
        return await self._services.memory.correct_note(list_name, index, text, by)

    async def drop_note(self, list_name: str, index: int) -> WorkingMemory:
        """Remove a note."""
        return await self._services.memory.drop_note(list_name, index)

    async def facts(self, *, include_invalidated: bool = False, as_of: Moment | None = None) -> Results[Fact]:
        """Return the known facts, with where each was said and since when it is valid.

        - `include_invalidated`: also those that a later fact replaced.
        - `as_of`: those that were believed at that time.
        """
        return await self._services.memory.facts(include_invalidated, as_of)

    async def extract_facts(self, *, through: Turn | str | None = None) -> list[Fact]:
        """Extract facts from the turns that no summary covers yet, and return the new ones.

        `through` is the last turn to read; by default the last of the thread.
        When the extractor fails, the rules alone are used, and `working_memory().extractor_failure` says why.
        """
        return await self._services.memory.extract_facts(through)

    async def correct_fact(
        self,
        fact: Fact | str,
        text: str,
        *,
        by: str | None = None,
        valid_from: Moment | None = None,
        valid_to: Moment | None = None,
    ) -> Fact:
        """Put a corrected fact, with `text` as its object, in the place of one. No extractor changes it later.

        - `by`: who corrects it; by default the user.
        - `valid_from`, `valid_to`: when it held; by default from when the other was said to hold.
        """
        return await self._services.memory.correct_fact(fact, text, by, valid_from, valid_to)

    async def forget_fact(self, fact: Fact | str) -> bool:
        """Delete a fact for good. Returns False when there is none."""
        return await self._services.forgetter.forget_fact(fact)

    # ---- the log

    def subscribe(self, after: int = 0) -> AsyncGenerator[Event]:
        """Yield every event with a number above `after`, from the log and then live, without gaps or repetitions.

        Ends after the event that deletes the conversation. Raises `StoreClosed` when the store is closed. A slow reader
        delays nobody.
        """
        return self._services.log.subscribe(after)

    async def audit(
        self,
        *,
        after: int = 0,
        limit: int = 1_000,
        kinds: Iterable[str] | None = None,
        actors: Iterable[str] | None = None,
        turn: Turn | str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
    ) -> list[Event]:
        """Return who did what, and when: the events of the log, in order, narrowed by the arguments."""
        self._handle.require(READ)
        query = event_query(after, limit, kinds, actors, turn, since, until)
        return await self._handle.engine.events(self._handle.scope, self.id, query)

    async def verify(self, *, archive: Iterable[str] = ()) -> Verified:
        """Recompute every hash and replay the log. Raises `VerificationFailed` naming the first bad row.

        `archive` are the lines of files that `palaver archive` wrote. Without them a log is checked from its first
        event that is not archived, and `Verified.archived` counts those before it.
        """
        return await self._services.log.verify(archive)

    def records(self) -> AsyncIterator[Sequence[Record]]:
        """Yield every stored row, page by page, from one snapshot: what an export is made of."""
        return self._services.log.records()
