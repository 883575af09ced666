"""A conversation: one short method for each thing that can be done with it. Other modules here do the work."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Unpack, overload

from palaver.context.inputs import Context
from palaver.context.options import ContextOptions, RecallRange, SharedContextOptions
from palaver.conversations.arguments import event_query
from palaver.conversations.attachments import UPLOAD_SECONDS
from palaver.conversations.components import Components
from palaver.conversations.deletion import EVERYTHING, WholeConversation
from palaver.conversations.details import update_details
from palaver.conversations.handle import Handle
from palaver.conversations.method_hints import OF_CONVERSATION, missing_attribute
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
    """A conversation: a thread of turns. Get it from `store.conversation(key)` or `store.get(id)`."""

    def __init__(self, components: Components, scope: Scope, info: ConversationInfo) -> None:
        self._handle = Handle(components.engine, scope, info)
        self._services = ConversationServices(components, self._handle)
        self._telemetry = components.generation.telemetry
        self._unflushed, self._stream_flush = components.unflushed, components.stream_flush

    def __repr__(self) -> str:
        return f"<Conversation {self.id}>"

    if not TYPE_CHECKING:  # type checkers know that these names do not exist

        def __getattr__(self, name: str) -> object:
            raise missing_attribute(self, name, OF_CONVERSATION)

    @property
    def id(self) -> str:
        """The id of the conversation, which never changes."""
        return self._handle.id

    @property
    def key(self) -> str | None:
        """The name that the application chose for this conversation; None if it has none."""
        return self.info.key

    @property
    def info(self) -> ConversationInfo:
        """The conversation's details as they were last read. `refresh` reads them again."""
        return self._handle.info

    async def refresh(self) -> ConversationInfo:
        """Read the conversation's details again, and return them."""
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
        """Store one turn and return it. The turn is on disk when this method returns.

        - `role`: `user`, `assistant`, `system` or `tool`.
        - `content`: text, or a list of parts. Stored files that a part refers to are attached to the turn.
        - `expected_seq`: the sequence number that the turn must get. If another turn was stored first,
          `AppendConflict` is raised.
        - `replaces`: the turn that this one replaces in the active branch. A user message gets copies of the files of
          the message that it replaces, unless `attachments` is given.
        - `discard_after`: with `replaces`, also remove the turns after the replaced turn from the active branch.
        """
        return await self._services.appender.append(
            role, content, expected_seq=expected_seq, replaces=replaces, discard_after=discard_after, **fields
        )

    async def append_many(self, turns: Iterable[TurnInput], *, expected_seq: int | None = None) -> list[Turn]:
        """Store several turns in one transaction: all of them or none.

        - `turns`: at most 1,000 mappings, each with `role`, `content` and the options of `append`; see `TurnInput`.
        - `expected_seq`: the sequence number that the first turn must get; see `append`.
        """
        return await self._services.appender.append_many(turns, expected_seq)

    # ---- streams

    def stream(
        self,
        role: Role = "assistant",
        *,
        flush: float | Literal["end"] | None = None,
        **fields: Unpack[StreamOptions],
    ) -> TurnWriter:
        """Return a writer for a turn whose text is stored while it is written; see `TurnWriter`. Not awaited.

        - `flush`: the longest time in seconds until written text is on disk; by default that of the store (0.25). With
          `"end"`, the turn is stored only at the end, as one row.
        - `fields`: the options of `append`; see `StreamOptions`.
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
        """Open a pending turn, to write it in pieces with `append_chunk`. The arguments are those of `append`.

        Write to the turn or call `append_renew` before its lease ends (30 seconds by default); otherwise it is aborted.
        `stream` does all of this for you.
        """
        return await self._services.streams.open(
            role, expected_seq=expected_seq, replaces=replaces, discard_after=discard_after, **fields
        )

    async def append_chunk(self, turn: Turn | str, n: int, text: str) -> int:
        """Store piece number `n` (0, 1, 2, …) of a pending turn, and return the next number.

        A number that is stored already is ignored, so a call can be repeated.
        """
        return await self._services.streams.append_chunk(turn, n, text)

    async def append_commit(self, turn: Turn | str, **final: Unpack[SealOptions]) -> Turn:
        """Seal a pending turn as complete.

        - `final`: the fields that become known only at the end; see `SealOptions`.
        """
        return await self._services.streams.append_commit(turn, final)

    async def append_abort(self, turn: Turn | str) -> Turn:
        """Seal a pending turn as aborted. It leaves the active branch, and its text is kept."""
        return await self._services.streams.append_abort(turn)

    async def append_renew(self, turn: Turn | str) -> None:
        """Renew the lease of a pending turn without a new piece of text."""
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
        """Return the latest turns of the active branch, the oldest first.

        - `limit`: the maximum number of turns to return, at most 100,000.
        - `before`: only turns before this one; a turn or its id.
        - `after`: only turns after this one. Without `before`, the first of them are returned, not the latest.
        - `since`, `until`: only turns from this moment on, and before this one.
        - `include_superseded`: also turns that are not in the active branch, in the order in which they were stored.
        - `participants`, `roles`: only turns of these actors, or with these roles. An empty list matches nothing.
        - `where`: conditions on metadata, actor, role and time; see `Where`. An example:
          `where={"metadata": {"topic": "billing", "priority": {"gte": 3}}}`.
        - `include_summaries`: also the widest summaries. Summaries of turns before the first returned turn come first;
          each other summary comes before the first turn that it covers. Cannot be combined with `include_superseded`.
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
        """Return one turn in its current state, even if it is superseded, pending or aborted."""
        return await self._services.thread.turn(turn)

    async def search(self, text: str, limit: int = 10, *, where: Where | None = None) -> Results[TurnMatch]:
        """Return the turns of the active branch that contain words of `text`; those with the most of them come first.

        - `limit`: the maximum number of turns to return.
        - `where`: conditions on metadata, actor, role and time; see `Where`.
        """
        return await self._services.thread.search(text, limit, where)

    async def branches(self, turn: Turn | str | None = None) -> list[Branch]:
        """Return the place of this turn with its versions; without a turn, all places that have an inactive version."""
        return await self._services.thread.branches(turn)

    async def switch(self, turn: Turn | str) -> None:
        """Change the active branch to the branch with `turn` and the turns that followed it when it was last active."""
        await self._services.thread.switch(turn)
        await self._services.memory.learn_again()

    # ---- details

    @describe_options(ConversationOptions)
    async def update(
        self, *, expected_updated: Moment | None = None, **fields: Unpack[ConversationOptions]
    ) -> ConversationInfo:
        """Change the given fields of the conversation, and return its details.

        - `expected_updated`: `info.updated` as you read it. If the conversation has changed since, `UpdateConflict` is
          raised.
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
        """Permanently delete a turn; without an argument, the whole conversation.

        When this method returns, the text is in no row, index or file. If `ScrubPending` is raised, the text is
        deleted, but old bytes remain in the WAL until another process finishes reading.
        """
        await self._services.forgetter.forget(turn)

    async def reset(self) -> None:
        """Permanently delete every turn, and keep the conversation. Sequence numbers continue."""
        await self._services.forgetter.reset()

    # ---- attachments

    async def attach(
        self, data: bytes | Path | str, *, filename: str | None = None, media_type: str | None = None
    ) -> Attachment:
        """Store a file and return it as an attachment.

        Pass the result to `append(attachments=[…])`, or put its id into a part of the content. A sweep deletes a file
        that is not attached to a turn within a day.

        - `data`: the bytes, a `pathlib.Path`, or a `data:` URL as text.
        - `filename`: by default the name of the path; otherwise `file` with the ending of its type.
        - `media_type`: by default the type that the URL or the bytes have.
        """
        return await self._services.uploads.attach(data, filename, media_type)

    async def open_upload(
        self, filename: str, *, media_type: str | None = None, seconds: int = UPLOAD_SECONDS
    ) -> Upload:
        """Prepare an upload of a file by another program, such as from a browser to a bucket. See `Upload`.

        - `seconds`: how long the upload may take.
        """
        return await self._services.uploads.open_upload(filename, media_type, seconds)

    async def put_upload(self, upload: Upload, data: bytes) -> None:
        """Store the bytes of an upload through this process, if the storage has no upload URLs."""
        await self._services.uploads.put_upload(upload, data)

    async def complete_upload(self, upload: Upload) -> Attachment:
        """Check the uploaded file and store it as an attachment. The call can be repeated.

        The checked bytes are copied to another place, so that the upload URL cannot change them.
        """
        return await self._services.uploads.complete_upload(upload)

    async def attachments(self, limit: int = 50, *, before: Attachment | str | None = None) -> Results[Attachment]:
        """Return the files of this conversation, the newest first, including those that are not attached to a turn yet.

        - `limit`: the maximum number of files to return.
        - `before`: only files older than this one.
        """
        return await self._services.attachments.newest(limit, before)

    async def attachment(self, attachment: Attachment | str) -> Attachment:
        """Return the details of a stored file."""
        return await self._services.attachments.get(attachment)

    async def read_attachment(self, attachment: Attachment | str) -> bytes:
        """Return the bytes of a stored file, after a check of their hash."""
        return await self._services.attachments.read(attachment)

    async def read_attachment_range(self, attachment: Attachment | str, start: int, end: int) -> bytes:
        """Return the bytes from `start` up to, not including, `end` of a stored file. The hash is not checked."""
        return await self._services.attachments.read_range(attachment, start, end)

    async def attachment_text(self, attachment: Attachment | str) -> FileText:
        """Return the text of a PDF, an office document or a text file.

        The worker extracts the text after the file is attached to a turn. If that has not happened yet, this method
        extracts it.
        """
        return await self._services.attachments.text(attachment)

    async def data_url(self, attachment: Attachment | str) -> str:
        """Return a stored file as a `data:` URL."""
        return await self._services.attachments.data_url(attachment)

    # ---- answers

    @describe_options(GenerateOptions, SharedContextOptions)
    async def generate(self, message: ContentInput | None = None, **options: Unpack[GenerateOptions]) -> Turn:
        """Store the message, build the context, call the model, run its tools, and store and return the answer.

        Without a message, the model answers the conversation as it is. Options:
        """
        async with aclosing(self.generate_stream(message, **options)) as events:
            async for event in events:
                if isinstance(event, Answered):
                    return event.turn
        raise AssertionError("every answer ends with Answered")

    def generate_stream(
        self, message: ContentInput | None = None, **options: Unpack[GenerateOptions]
    ) -> AsyncGenerator[GenerateEvent]:
        """Do the same as `generate`, and yield its events while it runs.

        The events are `MessageStored`, `TextDelta`, `ReasoningDelta`, `ToolsPlanned`, `ToolDone` and `Answered`. With
        `all_events`, they also include `Prompted`, `TurnOpened` and finished blocks of reasoning.

        If you leave the loop early or call `stop()`, the text so far is kept, with the finish reason "stopped".
        """
        return self._services.answers.stream(self, message, options)

    async def stop(self) -> int:
        """Stop the answers that this process is generating in this conversation, and return their number."""
        return await self._services.answers.stop()

    async def ask_to_stop(self, turn: Turn | str | None = None) -> int:
        """Log a request to stop, and return the number of its event. Only servers react to it.

        A server that is answering in this conversation then stops all its answers here. For answers of this process,
        use `stop`.

        - `turn`: the turn of the answer, to record it in the event. It does not limit which answers stop.
        """
        return await self._services.answers.ask_to_stop(turn)

    async def requests(
        self, limit: int = 20, *, turn: Turn | str | None = None, before: Request | str | None = None
    ) -> list[Request]:
        """Return the recorded calls to models, with the request and the response: the latest ones, the oldest first.

        Only the owner and admins may call this: a prompt may quote text that a participant cannot see elsewhere.

        - `limit`: the maximum number of calls to return.
        - `turn`: only calls for the answer that was stored as this turn.
        - `before`: only calls before this one.
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
        """Build a prompt that fits the budget. `Context.explain` returns the reason for each part of it.

        - `token_budget`: the maximum number of tokens of the context; by default 8,000, unless the policy or a setting
          has another budget.
        - `question`: the stored message to answer. The context ends with it, and contains no later turn. By default,
          the newest message.
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
        """Find the turns and facts that are most relevant to `query`. Await it for a list, or use `async for`.

        - `k`: the maximum number of results.
        - `scope`: search this `conversation`, all conversations of its `owner`, or the whole `tenant`.
        - `threshold`: only results with at least this relevance, between 0 and 1; by default there is no limit.
        - `since`, `until`: only turns from this moment on, and before this one.
        - `include_facts`: whether to return facts as well.
        - `where`: conditions on the turns: metadata, actor, role and time; see `Where`. With a condition other than the
          time, no facts are returned.
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
        """Return all summaries, each with the span of turns that it covers."""
        return await self._services.memory.summaries()

    async def compact(self, *, keep_tokens: int | None = None, policy: CompactionSettings | None = None) -> int:
        """Summarise the turns that are due now, and return how many summaries of turns were written. Turns are kept.

        - `keep_tokens`: summarise more turns than are due, until at most this many tokens of turns have no summary.
        - `policy`: when and how to summarise in this call; by default, `compaction` of the conversation's settings.
        """
        return await self._services.memory.compact(keep_tokens, policy)

    async def summarize(self, *, through: Turn | str | None = None) -> list[Summary]:
        """Summarise the older half of the turns that have no summary, even if it is not due. Returns all summaries.

        - `through`: instead, summarise every turn up to and including this one. A tool round is never split: one that
          ends after this turn is not summarised.
        """
        return await self._services.memory.summarize(through)

    async def working_memory(self) -> WorkingMemory:
        """Return the notes of this conversation (its working memory): goals, decisions, instructions and so on."""
        return await self._services.memory.notes()

    async def remember(self, list_name: str, text: str, *, by: str | None = None) -> WorkingMemory:
        """Add a note, and return all notes.

        - `list_name`: the list to add it to: `goals`, `decisions` or another list of `WorkingMemory`.
        - `by`: the author of the note; by default the user.
        """
        return await self._services.memory.add_note(list_name, text, by)

    async def correct(self, list_name: str, index: int, text: str, *, by: str | None = None) -> WorkingMemory:
        """Replace the text of a note, and return all notes.

        - `list_name`, `index`: the list of `WorkingMemory` and the place of the note in it, counted from 0.
        - `by`: the author of the new text; by default the user.
        """
        return await self._services.memory.correct_note(list_name, index, text, by)

    async def drop_note(self, list_name: str, index: int) -> WorkingMemory:
        """Remove the note at this index (counted from 0) of a list of `WorkingMemory`, and return all notes."""
        return await self._services.memory.drop_note(list_name, index)

    async def facts(self, *, include_invalidated: bool = False, as_of: Moment | None = None) -> Results[Fact]:
        """Return the known facts, each with its source turn and the time from which it is valid.

        - `include_invalidated`: also facts that a later fact replaced.
        - `as_of`: the facts that were current at this moment.
        """
        return await self._services.memory.facts(include_invalidated, as_of)

    async def extract_facts(self, *, through: Turn | str | None = None) -> list[Fact]:
        """Extract facts from the turns that have no summary yet, and return the new facts.

        If the extractor fails, only the rules extract facts, and `working_memory().extractor_failure` has the reason.

        - `through`: the last turn to read; by default the last turn of the conversation.
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
        """Replace a fact with a corrected one, whose object is `text`. Extraction never changes a corrected fact.

        - `by`: the author of the correction; by default the user.
        - `valid_from`, `valid_to`: the time in which the fact is true; by default from the start of the old fact,
          without an end.
        """
        return await self._services.memory.correct_fact(fact, text, by, valid_from, valid_to)

    async def forget_fact(self, fact: Fact | str) -> bool:
        """Permanently delete a fact. Returns False if it does not exist."""
        return await self._services.forgetter.forget_fact(fact)

    # ---- the log

    def subscribe(self, after: int = 0) -> AsyncGenerator[Event]:
        """Yield every event with a number above `after`: first from the log, then live, without gaps or repetitions.

        The iteration ends after the event that deletes the conversation. It raises `StoreClosed` when the store is
        closed. A slow reader does not delay writers or other readers.
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
        """Return the events of the log in order: who did what, and when.

        - `after`: only events with a number above this one.
        - `limit`: the maximum number of events to return, at most 100,000.
        - `kinds`, `actors`: only events of these kinds (see `Event`), or by these actors.
        - `turn`: only events about this turn.
        - `since`, `until`: only events from this moment on, and before this one.
        """
        self._handle.require(READ)
        query = event_query(after, limit, kinds, actors, turn, since, until)
        return await self._handle.engine.events(self._handle.scope, self.id, query)

    async def verify(self, *, archive: Iterable[str] = ()) -> Verified:
        """Recompute every hash and replay the log. Raises `VerificationFailed` with the first row that disagrees.

        - `archive`: the lines of the files that `palaver archive` wrote. Without them, the check starts at the first
          event that is not archived, and `Verified.archived` counts the events before it.
        """
        return await self._services.log.verify(archive)

    def records(self) -> AsyncIterator[Sequence[Record]]:
        """Yield every stored row of the conversation, page by page, from one snapshot. Exports use this."""
        return self._services.log.records()
