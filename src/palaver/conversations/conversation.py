"""A conversation's verbs: check, call the engine, hand back values."""

from __future__ import annotations

import asyncio
from base64 import b64decode, b64encode
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Collection,
    Coroutine,
    Generator,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Unpack, overload
from urllib.parse import unquote_to_bytes
from uuid import uuid4

from msgspec import structs

from palaver.audit.verifier import Verifier
from palaver.context.builder import recall_scope_for
from palaver.context.inputs import Bound, Context
from palaver.context.options import OPTIONS, ContextOptions, Options, RecallRange, parse_options
from palaver.context.pack import covering_summaries
from palaver.conversations.contexts import Contexts
from palaver.conversations.options import ConversationOptions
from palaver.conversations.streams import LOST, TurnWriter
from palaver.core.identity import file_hash, micros
from palaver.core.turn_draft import (
    TurnDraft,
    check_file_count,
    check_size,
    clean_usage,
    decode_attachments,
    decode_content,
    encode_attachments,
    encode_calls,
    encode_sources,
    referenced_attachments,
)
from palaver.core.turn_options import (
    SEAL_FIELDS,
    TURN_FIELDS,
    Moment,
    SealOptions,
    StreamOptions,
    TurnInput,
    TurnOptions,
)
from palaver.core.validation import (
    MAX_BATCH,
    MAX_FILE,
    clean_count,
    clean_limit,
    clean_mapping,
    clean_moment,
    clean_name,
    clean_role,
    clean_text,
    optional_name,
)
from palaver.errors import (
    AttachmentNotFound,
    InvalidInput,
    RowUnreadable,
    ScrubPending,
    StreamMoved,
    TooLarge,
    VerificationFailed,
)
from palaver.files import kinds
from palaver.files.sandbox import check_archive
from palaver.files.storage import STAGED, blob_folder, blob_path
from palaver.generation.events import Answered, GenerateEvent
from palaver.generation.options import GenerateOptions, parse_generate_options
from palaver.generation.run import Generation
from palaver.generation.services import GenerationServices
from palaver.memory import working_memory
from palaver.model import (
    READ,
    SYSTEM,
    WRITE,
    Attachment,
    Branch,
    ContentInput,
    ConversationInfo,
    Event,
    Fact,
    FileText,
    RecallHit,
    Request,
    Role,
    Summary,
    Turn,
    TurnMatch,
    Upload,
    Verified,
    WorkingMemory,
)
from palaver.ports.memory import MemoryDraft, ReadBudget
from palaver.ports.queries import (
    UNVERIFIED_KINDS,
    AppendBatch,
    Deletion,
    EventQuery,
    HistoryQuery,
    Record,
    SearchQuery,
    StreamChunk,
    StreamEnd,
)
from palaver.ports.recall import RecallScope
from palaver.recall.terms import MAX_QUERY, terms
from palaver.redaction.apply import redacted_calls, redacted_content, redacted_json, redacted_results
from palaver.telemetry import Telemetry

if TYPE_CHECKING:
    from palaver.conversations.store import Store
    from palaver.redaction.redactor import StreamRedactor

MAX_READ = 100_000  # turns or events in one call
END = 2**62
FOLLOW_PAGE = 500
COMMIT_TRIES = 3
NEAR = 0.1  # how much a fact that shares no word with the question must stand out by its meaning
UPLOAD_SECONDS, MAX_UPLOAD_SECONDS = 900, 86_400
MAX_EXTRACT = 200_000  # tokens of turns that one extraction reads


class _Everything:
    """The default of `forget()`: not the same as None, which somebody may pass by mistake."""

    def __repr__(self) -> str:
        return "the whole conversation"


EVERYTHING: Final = _Everything()


class Conversation:
    """A thread of turns. Get one from `store.conversation(key)` or `store.get(id)`."""

    def __init__(self, store: Store, info: ConversationInfo) -> None:
        self._store, self.info = store, info
        self._engine, self._scope, self._meter = store.engine, store.scope, store.parts.meter

    def __repr__(self) -> str:
        return f"<Conversation {self.id}>"

    @property
    def id(self) -> str:
        return self.info.id

    @property
    def _telemetry(self) -> Telemetry:
        return self._store.parts.generation.telemetry

    @property
    def key(self) -> str | None:
        return self.info.key

    async def refresh(self) -> ConversationInfo:
        """Read again what is known of this conversation."""
        self._store.require(READ)
        self.info = await self._engine.conversation(self._scope, self.id)
        return self.info

    # ---- append

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

        `fields` are those of a turn: actor, created, metadata, tool_calls, tool_results, attachments, sources, tokens,
        model, adapter, finish_reason, idempotency_key. `replaces` puts it in the place of another turn; with
        `discard_after` also instead of everything that followed. Files that the content names are attachments, too.
        """
        self._store.require(WRITE)
        draft = self._draft(role, content, **fields)
        if draft.is_parts:
            draft = await self._with_named_files(draft)
        batch = _batch((draft,), expected_seq, replaces, discard_after)
        return (await self._stored(batch))[0]

    async def append_many(self, turns: Iterable[TurnInput], *, expected_seq: int | None = None) -> list[Turn]:
        """Store several turns in one transaction: all of them or none."""
        items = list(turns) if isinstance(turns, Iterable) else [turns]
        if len(items) > MAX_BATCH:
            raise TooLarge("turns", size=len(items), limit=MAX_BATCH, unit="turns")
        if not all(isinstance(item, Mapping) for item in items):
            raise InvalidInput("turns", "must be a list of objects, each with a role and a content")
        self._store.require(WRITE)
        drafts = [self._draft(**item) for item in items]
        drafts = [await self._with_named_files(draft) if draft.is_parts else draft for draft in drafts]
        batch = _batch(tuple(drafts), expected_seq)
        return await self._stored(batch) if items else []

    async def _stored(self, batch: AppendBatch) -> list[Turn]:
        turns = await self._engine.append(self._scope, self.id, batch)
        self._meter.stored(len(turns))
        return turns

    def _draft(self, role: str = "", content: Any = "", actor: str | None = None, **fields: Any) -> TurnDraft:
        if fields:
            _known(fields, TURN_FIELDS, "a field of a turn")
        role = clean_role(role)
        if role == "system":
            self._store.require(SYSTEM)
        if self.redacts:
            content, fields = self._redacted(content, fields)
        return self._store.desk.draft(
            self._store.ids(), role, content, actor=self._actor(role) if actor is None else actor, **fields
        )

    async def _with_named_files(self, draft: TurnDraft) -> TurnDraft:
        """A file that the content names belongs to the turn like those in `attachments`."""
        given = decode_attachments(draft.attachments, "")
        known = {one.id for one in given}
        named = [id for id in referenced_attachments(decode_content(draft.content, draft.is_parts)) if id not in known]
        if not named:
            return draft
        check_file_count(len(given) + len(named), draft.role)
        ids = [clean_name("content.attachment", id) for id in named]
        found = [await self._engine.attachment(self._scope, self.id, id) for id in ids]
        return structs.replace(draft, attachments=encode_attachments([*given, *found], draft.role))

    @property
    def redacts(self) -> bool:
        """Whether this conversation wants nothing stored that the redactor finds."""
        return bool(self.info.settings.get("redact"))

    def new_stream_redactor(self) -> StreamRedactor:
        from palaver.redaction.redactor import StreamRedactor

        return StreamRedactor(self._store.parts.worker.redactor)

    def _redacted(self, content: Any, fields: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        """What is said, called, answered and quoted, without secrets. Metadata is the application's own."""
        redact = self._store.parts.worker.redactor.redact
        changed = {
            name: change(fields[name], redact)
            for name, change in (
                ("tool_calls", redacted_calls),
                ("tool_results", redacted_results),
                ("sources", redacted_json),
            )
            if fields.get(name)
        }
        return redacted_content(content, redact), {**fields, **changed}

    def _actor(self, role: str) -> str:
        """Who speaks when the caller does not say."""
        if role == "user":
            return self._scope.user or self.info.owner or "user"
        if role == "assistant":
            return self.info.agent or "assistant"
        return role

    # ---- streams

    def stream(
        self,
        role: Role = "assistant",
        *,
        flush: float | Literal["end"] | None = None,
        **fields: Unpack[StreamOptions],
    ) -> TurnWriter:
        """A turn that is durable while it is written; see `TurnWriter`.

        What was written is on disk at most `flush` seconds later (a quarter of a second unless the store says
        otherwise). With `flush="end"` nothing is stored before the end, and then as one row.
        """
        return TurnWriter(self, role, flush=self._store.stream_flush if flush is None else flush, options=fields)

    @property
    def _lease(self) -> float:
        return self._store.stream_lease

    @property
    def _lease_micros(self) -> int:
        return round(self._store.stream_lease * 1_000_000)

    async def append_open(
        self,
        role: Role = "assistant",
        *,
        expected_seq: int | None = None,
        replaces: Turn | str | None = None,
        discard_after: bool = False,
        **fields: Unpack[TurnOptions],
    ) -> Turn:
        """Open a pending turn. Somebody must write to it, or renew it, before its lease ends."""
        if clean_role(role) == "tool":
            raise InvalidInput("role", "a tool turn is stored whole, with its results")
        if "content" in fields:
            raise InvalidInput("content", "comes in pieces, by append_chunk")
        self._store.require(WRITE)
        batch = _batch((self._draft(role, "", **fields),), expected_seq, replaces, discard_after)
        return await self._engine.stream_open(self._scope, self.id, batch, self._lease_micros)

    async def append_chunk(self, turn: Turn | str, n: int, text: str) -> int:
        """Store piece number `n` (0, 1, 2, …) and return the number of the next. Repeating a number changes nothing."""
        self._store.require(WRITE)
        number = clean_count("n", n)
        if number is None:
            raise InvalidInput("n", "must be the number of the piece")
        text = clean_text("text", text)
        id = _turn_id("turn", turn)
        if self.redacts:
            return await self._take_chunk(id, number, text)
        return await self._send_chunk(id, StreamChunk(n=number, text=text))

    async def _take_chunk(self, turn: str, number: int, text: str) -> int:
        """A piece of a stream that is redacted: what may be stored already is, the rest waits for what follows."""
        if turn not in self._store.parts.held_back:
            await self.append_renew(turn)  # one that is sealed says so
        held = self._store.held_back(turn)
        async with held.lock:
            return await self._send_chunk(turn, held.take(number, text))

    async def _send_chunk(self, turn: str, chunk: StreamChunk) -> int:
        return await self._engine.stream_chunk(self._scope, self.id, turn, chunk, self._lease_micros)

    async def append_commit(self, turn: Turn | str, **final: Unpack[SealOptions]) -> Turn:
        """Seal a pending turn as complete. `final` is what `TurnWriter.finish` takes: tokens, model and so on."""
        id = _turn_id("turn", turn)
        self._store.require(WRITE)
        _known(final, SEAL_FIELDS, "known at the end of a stream")
        stored = await self.turn(id)
        if self.redacts and stored.status == "pending":
            if stored.text and id not in self._store.parts.held_back:
                raise InvalidInput("turn", LOST)
            await self._send_held_back(id)
        for _ in range(COMMIT_TRIES):
            stored = await self.turn(id)
            try:
                sealed = await self._commit_stream(stored, stored.text, None, final)
            except StreamMoved:
                continue  # another chunk came in between
            self._store.parts.held_back.pop(id, None)
            return sealed
        raise StreamMoved(id)

    async def append_abort(self, turn: Turn | str) -> Turn:
        """Seal a pending turn as aborted: out of the active view, its text kept for the record."""
        self._store.require(WRITE)
        id = _turn_id("turn", turn)
        if (await self.turn(id)).status == "pending":
            await self._send_held_back(id)
        sealed = await self._engine.stream_abort(self._scope, self.id, id, None)
        self._store.parts.held_back.pop(id, None)
        return sealed

    async def _send_held_back(self, turn: str) -> None:
        """What the redactor still held back of a remote writer's stream goes in as a last piece."""
        held = self._store.parts.held_back.get(turn)
        if held is not None:
            async with held.lock:
                await self._send_chunk(turn, held.finish())

    async def append_renew(self, turn: Turn | str) -> None:
        """A sign of life from the writer of a pending turn."""
        self._store.require(WRITE)
        await self._engine.stream_renew(self._scope, self.id, _turn_id("turn", turn), self._lease_micros)

    async def _renew_stream(self, turn: Turn) -> None:
        await self.append_renew(turn)

    async def _commit_stream(self, turn: Turn, text: str, tail: StreamChunk | None, final: Mapping[str, Any]) -> Turn:
        self._store.require(WRITE)
        seal = self._seal(turn, text, tail, **final)
        sealed = await self._engine.stream_commit(self._scope, self.id, turn.id, seal)
        self._meter.stored(1)
        return sealed

    async def _abort_stream(self, turn: Turn, tail: StreamChunk) -> Turn:
        return await self._engine.stream_abort(self._scope, self.id, turn.id, tail)

    def _seal(
        self,
        turn: Turn,
        text: str,
        tail: StreamChunk | None,
        *,
        tokens: Any = None,
        model: str | None = None,
        adapter: str | None = None,
        finish_reason: str | None = None,
        tool_calls: Any = None,
        sources: Any = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> StreamEnd:
        if self.redacts:
            _, fields = self._redacted("", {"tool_calls": tool_calls, "sources": sources})
            tool_calls, sources = fields["tool_calls"], fields["sources"]
        calls = encode_calls(tool_calls)
        if calls and turn.role != "assistant":
            raise InvalidInput("tool_calls", f"belong to an assistant turn, not to a {turn.role} turn")
        check_size(text, calls)
        usage = clean_usage(tokens)
        return StreamEnd(
            content=text,
            token_count=self._store.desk.measure(text, calls),
            tail=tail,
            tool_calls=calls,
            sources=encode_sources(sources),
            prompt_tokens=usage.prompt,
            completion_tokens=usage.completion,
            model=optional_name("model", model),
            adapter=optional_name("adapter", adapter),
            finish_reason=optional_name("finish_reason", finish_reason),
            metadata=clean_mapping("metadata", metadata),
        )

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
        include_summaries: bool = False,
    ) -> Sequence[Turn | Summary]:
        """The latest turns of the active view, oldest first; after a cursor, the ones that follow it; between two, the
        latest.

        Cursors are turns or their ids. `since` is inclusive, `until` is not. An empty list of participants or roles
        means nobody. With `include_superseded`, everything that was ever said, in order of arrival. With
        `include_summaries`, each summary stands before the first turn of the span that it covers; the widest ones only.
        """
        self._store.require(READ)
        if include_summaries and include_superseded:
            raise InvalidInput("include_summaries", "summaries are of the active view, without what was superseded")
        query = HistoryQuery(
            limit=clean_limit("limit", limit, MAX_READ),
            before=None if before is None else _turn_id("before", before),
            after=None if after is None else _turn_id("after", after),
            since=None if since is None else clean_moment("since", since),
            until=None if until is None else clean_moment("until", until),
            include_superseded=bool(include_superseded),
            participants=None if participants is None else _names("participants", participants),
            roles=None if roles is None else tuple(clean_role(role) for role in _names("roles", roles)),
        )
        turns = await self._engine.history(self._scope, self.id, query)
        return await self._with_summaries(turns, query) if include_summaries and turns else turns

    async def _with_summaries(self, turns: list[Turn], query: HistoryQuery) -> list[Turn | Summary]:
        """A summary belongs to the page with the first turn at or behind its start."""
        earlier = replace(query, limit=1, before=turns[0].id, after=None)
        before = await self._engine.history(self._scope, self.id, earlier)
        start = before[0].position if before else -1
        waiting = [one for one in covering_summaries(await self.summaries(), END) if one.from_seq > start]
        found: list[Turn | Summary] = []
        for turn in turns:
            found += [one for one in waiting if one.from_seq <= turn.position]
            waiting = [one for one in waiting if one.from_seq > turn.position]
            found.append(turn)
        return found

    async def turn(self, turn: Turn | str) -> Turn:
        """One turn, as it is now: in the view or superseded, complete, pending or aborted."""
        self._store.require(READ)
        return await self._engine.turn(self._scope, self.id, _turn_id("turn", turn))

    async def search(self, text: str, limit: int = 10) -> list[TurnMatch]:
        """Turns of the active view that hold words of `text`; those that hold the most of them first."""
        self._store.require(READ)
        stems = tuple(dict.fromkeys(terms(clean_text("text", text))))[:64]
        query = SearchQuery(stems=stems, limit=clean_limit("limit", limit, 1_000), conversation=self.id)
        return await self._engine.matches(self._scope, query) if stems else []

    async def branches(self, turn: Turn | str | None = None) -> list[Branch]:
        """The versions at one turn's place; without a turn, of every place where one is out of the view."""
        self._store.require(READ)
        id = None if turn is None else _turn_id("turn", turn)
        return await self._engine.branches(self._scope, self.id, id)

    async def switch(self, turn: Turn | str) -> None:
        """Make the active view lead through `turn`, and through what followed it when it was last seen."""
        self._store.require(WRITE)
        await self._engine.switch(self._scope, self.id, _turn_id("turn", turn))
        self._store.parts.generation.provider_threads.drop(self._scope.tenant, self.id)

    # ---- what is known of the conversation

    async def update(
        self, *, expected_updated: Moment | None = None, **fields: Unpack[ConversationOptions]
    ) -> ConversationInfo:
        """Change title, workspace, agent, model, participants, metadata, settings or ttl.

        With `expected_updated` (of the info that was read), only when nothing has changed since: `UpdateConflict`.
        """
        self._store.require(WRITE)
        await self._require_owner()
        changes = self._store.changes(fields, self.info)
        if expected_updated is not None:
            changes = replace(changes, expected_updated=clean_moment("expected_updated", expected_updated))
        self.info = await self._engine.update(self._scope, self.id, changes)
        return self.info

    async def _require_owner(self) -> None:
        """What concerns the whole conversation is for its owner; one who cannot see it hears only that."""
        self.info = await self._engine.conversation(self._scope, self.id)
        self._store.require_owner(self.info)

    async def rename(self, title: str | None) -> ConversationInfo:
        return await self.update(title=title)

    # ---- forgetting

    async def forget(self, turn: Turn | str | _Everything = EVERYTHING) -> None:
        """Delete a turn for good; without an argument, the whole conversation.

        When this returns, the text is in no row, index or file. `ScrubPending` means that it is deleted, but that
        another process's reader keeps old bytes in the WAL for a moment longer.
        """
        self._store.require(WRITE)
        self._store.parts.generation.provider_threads.drop(self._scope.tenant, self.id)
        everything = isinstance(turn, _Everything)
        with self._telemetry.memory("delete_memory_store" if everything else "delete_memory", self.id):
            if isinstance(turn, _Everything):
                await self._require_owner()
                removed = await self._engine.forget_conversation(self._scope, self.id)
            else:
                removed = await self._engine.forget_turn(self._scope, self.id, _turn_id("turn", turn))
            await self._store.finish_removal(removed)

    async def reset(self) -> None:
        """Forget every turn and keep the conversation. Sequence numbers go on where they were."""
        self._store.require(WRITE)
        await self._require_owner()
        self._store.parts.generation.provider_threads.drop(self._scope.tenant, self.id)
        await self._store.finish_removal(await self._engine.reset(self._scope, self.id))

    # ---- attachments

    async def attach(
        self, data: bytes | Path | str, *, filename: str | None = None, media_type: str | None = None
    ) -> Attachment:
        """Store a file: bytes, a path, or a `data:` URL.

        Give the result to `append(attachments=[…])`, or name its id in the content. What no turn takes is swept.
        """
        self._store.require(WRITE)
        if isinstance(data, str):
            media_type, data = _from_data_url(data, media_type)
        elif isinstance(data, Path):
            filename = filename or data.name
            data = await asyncio.to_thread(data.read_bytes)
        if not isinstance(data, bytes | bytearray | memoryview):
            raise InvalidInput("data", f"must be bytes, a path or a data: URL, not {type(data).__name__}")
        return await self._attach(self._store.ids(), bytes(data), filename, media_type)

    async def _attach(self, id: str, data: bytes, filename: str | None, media_type: str | None) -> Attachment:
        if len(data) > MAX_FILE:
            raise TooLarge("data", size=len(data), limit=MAX_FILE, unit="bytes")
        filename = None if filename is None else kinds.check_name(clean_name("filename", filename))
        media_type = await asyncio.to_thread(kinds.checked, data, filename, optional_name("media_type", media_type))
        await check_archive(media_type, data)
        filename = filename or "file" + kinds.ending_of(media_type)
        attachment = Attachment(
            id=id,
            filename=filename,
            media_type=media_type,
            bytes=len(data),
            sha256=await asyncio.to_thread(file_hash, data),
            path=blob_path(self._uploader, self.id, filename),
            owner=self._uploader,
        )
        async with self._store.writing_blobs({attachment.path: data}) as undo:
            stored = await self._engine.attach(self._scope, self.id, attachment)
            if stored.path != attachment.path:
                await undo()
            return stored

    @property
    def _uploader(self) -> str:
        return self._scope.user or self.info.owner

    async def open_upload(
        self, filename: str, *, media_type: str | None = None, seconds: int = UPLOAD_SECONDS
    ) -> Upload:
        """A place for a file that somebody else puts there, such as a browser into the bucket. See `Upload`."""
        self._store.require(WRITE)
        await self.refresh()
        filename = kinds.check_name(clean_name("filename", filename))
        seconds = max(1, clean_limit("seconds", seconds, MAX_UPLOAD_SECONDS))
        path = f"{blob_folder(self._uploader, self.id)}/{STAGED}/{uuid4()}"
        return Upload(
            id=self._store.ids(),
            path=path,
            filename=filename,
            media_type=optional_name("media_type", media_type),
            expires_at=self._store.parts.clock.now() + timedelta(seconds=seconds),
            url=await self._store.blobs.upload_url(path, seconds),
        )

    async def put_upload(self, upload: Upload, data: bytes) -> None:
        """The bytes of an upload, for blobs that take them only from us."""
        await self._check_upload(upload)
        if len(data) > MAX_FILE:
            raise TooLarge("data", size=len(data), limit=MAX_FILE, unit="bytes")
        await self._store.blobs.put(upload.path, data)

    async def complete_upload(self, upload: Upload) -> Attachment:
        """Look at what was put there: count it, see what it is, and store it as an attachment. Safe to repeat.

        The bytes that were looked at are stored elsewhere: whoever still has the URL cannot change them any more.
        """
        await self._check_upload(upload)
        try:
            return await self.attachment(upload.id)  # a retry
        except AttachmentNotFound:
            pass
        try:
            size = await self._store.blobs.size(upload.path)
            if size > MAX_FILE:
                raise TooLarge("data", size=size, limit=MAX_FILE, unit="bytes")
            data = await self._store.blobs.get(upload.path)
        except AttachmentNotFound:
            return await self.attachment(upload.id)  # another try of this call was faster, or nothing was put there
        except TooLarge:
            await self._store.blobs.delete(upload.path)
            raise
        try:
            stored = await self._attach(upload.id, data, upload.filename, upload.media_type)
        except InvalidInput:
            await self._store.blobs.delete(upload.path)
            raise
        await self._store.blobs.delete(upload.path)
        return stored

    async def _check_upload(self, upload: Upload) -> None:
        """It is this caller's own, in this conversation: nobody completes a path of somebody else's."""
        self._store.require(WRITE)
        await self.refresh()
        if not upload.path.startswith(f"{blob_folder(self._uploader, self.id)}/{STAGED}/") or ".." in upload.path:
            raise AttachmentNotFound(upload.id)

    async def attachments(self, limit: int = 50, *, before: Attachment | str | None = None) -> list[Attachment]:
        """The newest files of this conversation, those that no turn has taken yet included."""
        self._store.require(READ)
        id = before.id if isinstance(before, Attachment) else optional_name("before", before)
        return await self._engine.attachments(self._scope, self.id, id, clean_limit("limit", limit, MAX_READ))

    async def attachment(self, attachment: Attachment | str) -> Attachment:
        """What is known of a stored file."""
        self._store.require(READ)
        id = attachment.id if isinstance(attachment, Attachment) else clean_name("attachment", attachment)
        return await self._engine.attachment(self._scope, self.id, id)

    async def read_attachment(self, attachment: Attachment | str) -> bytes:
        """The bytes of a stored file; they are checked against their hash."""
        return await self._store.files.read(self._scope, self.id, await self.attachment(attachment))

    async def read_attachment_range(self, attachment: Attachment | str, start: int, end: int) -> bytes:
        """Bytes `start` up to `end` of a stored file. What is only a part is not checked against the hash."""
        known = await self.attachment(attachment)
        start = clean_limit("start", start, 2**53)
        end = min(clean_limit("end", end, 2**53), known.bytes)
        if start >= end:
            return b""
        return await self._store.files.read_range(self._scope, self.id, known, start, end)

    async def attachment_text(self, attachment: Attachment | str) -> FileText:
        """What a PDF, an office document or a text file says. The worker reads files once a turn has taken them; one
        that it has not come to yet is read now."""
        known = await self.attachment(attachment)
        found = await self._engine.file_text(self._scope, self.id, known.id)
        if found is None:
            clean = self._store.parts.worker.clean_words(self.info)
            found = await self._store.files.words(self._scope, self.id, known, clean)
        return found

    async def data_url(self, attachment: Attachment | str) -> str:
        """A stored file as a `data:` URL."""
        known = await self.attachment(attachment)
        data = await self.read_attachment(known)
        return f"data:{known.media_type};base64,{b64encode(data).decode()}"

    # ---- answers

    async def generate(self, message: ContentInput | None = None, **options: Unpack[GenerateOptions]) -> Turn:
        """Answer: store the message, build the context, ask the model, store the reply, run its tools.

        Options: model, agent, actor, tools, client_tools, tool_choice, instructions, history, attachments, metadata,
        idempotency_key, question, token_budget, continuity, settings, stream, all_events, answer_metadata, reasoning,
        replaces; and those of `build_context`, but for viewer, query and filter_participants. Without a message it
        answers the thread as it stands. See docs/generate.md.
        """
        async with aclosing(self.generate_stream(message, **options)) as events:
            async for event in events:
                if isinstance(event, Answered):
                    return event.turn
        raise AssertionError("every answer ends with Answered")

    def generate_stream(
        self, message: ContentInput | None = None, **options: Unpack[GenerateOptions]
    ) -> AsyncGenerator[GenerateEvent]:
        """`generate`, told as it happens: MessageStored, TextDelta, ReasoningDelta, ToolsPlanned, ToolDone, Answered;
        with `all_events` also Prompted and TurnOpened.

        Leaving the loop early, or `stop()` from elsewhere, keeps what came, with the finish reason "stopped".
        """
        self._store.require(READ)
        self._store.require(WRITE)
        return Generation(self, self._generation_services(), parse_generate_options(message, options)).events()

    def _generation_services(self) -> GenerationServices:
        parts = self._store.parts
        return GenerationServices(
            shared=parts.generation,
            engine=self._engine,
            scope=self._scope,
            clock=parts.clock,
            ids=parts.ids,
            meter=self._meter,
            contexts=self._contexts,
            search=self._store.search,
            redact_content=self._redact_text,
            redact_record=parts.worker.cached_redactor,
        )

    def _redact_text(self, text: str) -> str:
        return self._store.parts.worker.redactor.redact(text).text if self.redacts else text

    async def stop(self) -> int:
        """Stop the answers that are being made here, in this process. Answers how many there were."""
        self._store.require(WRITE)
        await self.refresh()
        running = tuple(self._store.parts.generation.running.get((self._scope.tenant, self.id), ()))
        for one in running:
            one.stop()
        return len(running)

    async def ask_to_stop(self, turn: Turn | str | None = None) -> int:
        """Leave a word in the log for the process that makes an answer here: a server stops it. The event's number."""
        self._store.require(WRITE)
        id = None if turn is None else _turn_id("turn", turn)
        return await self._engine.announce(self._scope, self.id, "stop", id)

    async def requests(
        self, limit: int = 20, *, turn: Turn | str | None = None, before: Request | str | None = None
    ) -> list[Request]:
        """What was really sent to models, and what came back: the latest ones, oldest first.

        For the owner, or an admin: a prompt may quote what a participant cannot see elsewhere.
        """
        self._store.require(READ)
        await self._require_owner()
        id = before.id if isinstance(before, Request) else optional_name("before", before)
        of = None if turn is None else _turn_id("turn", turn)
        limit = clean_limit("limit", limit, MAX_READ)
        return await self._engine.requests(self._scope, self.id, of, id, limit)

    # ---- memory

    async def build_context(
        self,
        token_budget: int | None = None,
        *,
        question: Turn | str | None = None,
        **options: Unpack[ContextOptions],
    ) -> Context:
        """What the model will see: bounded by the budget, with a reason for every line.

        `question` is the stored message to answer: the context ends with it, and nothing that came later is in it.
        Without it, the newest message is answered.

        Options: char_budget, query, message, instructions, viewer, recent_turns, semantic_recall, recall_scope,
        include_facts, include_working_memory, filter_participants, note_omissions, shorten, image_tokens, file_tokens,
        policy, model, preview. See docs/context.md.
        """
        self._store.require(READ)
        _known(options, OPTIONS, "an option of build_context")
        bound = None
        if question is not None:
            turn = await self.turn(question)
            bound = Bound(turn=turn, steps=await self._contexts.steps_of(turn))
        return await self._contexts.build(
            await self._reduce_budget_for_model(parse_options(token_budget=token_budget, **options)), bound
        )

    @property
    def _contexts(self) -> Contexts:
        return Contexts(self._engine, self._scope, self.id, self._store.parts.prompter, self._meter, self._telemetry)

    async def _reduce_budget_for_model(self, options: Options) -> Options:
        """A smaller budget for a model whose provider counts more than we do."""
        if options.model is None or options.token_budget is None:
            return options
        ratio = await self._store.parts.generation.token_ratios.ratio(self._scope, options.model)
        return replace(options, token_budget=max(1, int(options.token_budget / ratio)))

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
    ) -> Recall:
        """The turns and facts that fit `query` best. `await` it for a list, or go through it with `async for`."""
        self._store.require(READ)
        arguments = (
            clean_text("query", query),
            clean_limit("k", k, 1_000),
            recall_scope_for(scope, self.info),
            _clean_threshold(threshold),
            None if since is None else clean_moment("since", since),
            None if until is None else clean_moment("until", until),
            include_facts,
        )
        return Recall(lambda: self._recall(*arguments))

    async def _recall(
        self,
        text: str,
        k: int,
        where: RecallScope,
        threshold: float | None,
        since: int | None,
        until: int | None,
        include_facts: bool,
    ) -> list[RecallHit]:
        if not text.strip() or not k:
            return []
        with self._telemetry.memory("search_memory", self.id) as span:
            hits = await self._found(text, k, where, threshold, since, until, include_facts)
            span.set(gen_ai__memory__record__count=len(hits))
            return hits

    async def _found(
        self,
        text: str,
        k: int,
        where: RecallScope,
        threshold: float | None,
        since: int | None,
        until: int | None,
        include_facts: bool,
    ) -> list[RecallHit]:
        recaller = self._store.parts.prompter.recaller
        ranking = await recaller.rank(self._scope, where, text[:MAX_QUERY], k, since=since, until=until)
        totals = ranking.scores.total
        best = [int(i) for i in ranking.order[:k] if threshold is None or totals[i] >= threshold]
        turns = await recaller.turns(self._scope, ranking, best)
        tids = {i: int(ranking.profile.tid[i]) for i in turns}
        quotes = await recaller.quotes(self._scope, {tids[i]: turn for i, turn in turns.items()}, text)
        hits = [
            RecallHit(score=float(totals[i]), turn=turns[i], quote=quotes.get(tids[i]), parts=ranking.scores.parts(i))
            for i in best
            if i in turns
        ]
        if include_facts:
            facts = await recaller.facts(self._scope, where, text[:MAX_QUERY], ranking)
            hits += _fitting_facts([one for one in facts if _is_between(one[0], since, until)], threshold)
        hits.sort(key=lambda hit: -hit.score)
        return hits[:k]

    async def summaries(self) -> list[Summary]:
        """Every summary, with the span that it stands for."""
        self._store.require(READ)
        return await self._engine.summaries(self._scope, self.id, None)

    async def compact(self, *, keep_tokens: int | None = None) -> int:
        """Summarise what is due now, and answer how many summaries of turns were written. Turns stay."""
        self._store.require(WRITE)
        keep = clean_count("keep_tokens", keep_tokens)
        return await self._store.parts.worker.compact(self._scope, self.id, keep)

    async def summarize(self) -> list[Summary]:
        """Summarise the older half of what no summary covers yet, due or not, and return all summaries."""
        self._store.require(WRITE)
        await self._store.parts.worker.compact(self._scope, self.id, force=True)
        return await self.summaries()

    async def working_memory(self) -> WorkingMemory:
        """What matters in this conversation now."""
        self._store.require(READ)
        return (await self._stored_memory())[0]

    async def _stored_memory(self) -> tuple[WorkingMemory, str | None]:
        stored = (await self._engine.reading(self._scope, self.id, ReadBudget())).working_memory
        return (working_memory.from_json(stored) if stored else WorkingMemory()), stored

    async def remember(self, list_name: str, text: str, *, by: str | None = None) -> WorkingMemory:
        """Add a note to a list of working memory: goals, decisions, instructions and so on."""
        by = clean_name("by", by or self._actor("user"))
        return await self._edit_memory(working_memory.remember, list_name, clean_text("text", text), by)

    async def correct(self, list_name: str, index: int, text: str, *, by: str | None = None) -> WorkingMemory:
        """Put another text in the place of a note."""
        by = clean_name("by", by or self._actor("user"))
        return await self._edit_memory(working_memory.correct, list_name, index, clean_text("text", text), by)

    async def drop_note(self, list_name: str, index: int) -> WorkingMemory:
        """Remove a note."""
        return await self._edit_memory(working_memory.drop, list_name, index)

    async def _edit_memory(self, edit: Callable[..., WorkingMemory], *arguments: Any) -> WorkingMemory:
        self._store.require(WRITE)
        with self._telemetry.memory("upsert_memory", self.id):
            return await self._edited(edit, *arguments)

    async def _edited(self, edit: Callable[..., WorkingMemory], *arguments: Any) -> WorkingMemory:
        while True:  # until nobody else wrote in between
            before, stored = await self._stored_memory()
            memory = edit(before, *arguments)
            draft = MemoryDraft(memory=working_memory.to_json(memory), through_seq=memory.through_seq, before=stored)
            if await self._engine.put_working_memory(self._scope, self.id, draft):
                return memory

    async def facts(self, *, include_invalidated: bool = False) -> list[Fact]:
        """What is known, with where it was said and since when."""
        self._store.require(READ)
        return await self._engine.facts(self._scope, self.id, include_invalidated)

    async def extract_facts(self) -> list[Fact]:
        """Extract facts from the turns that no summary covers yet, and return the new ones.

        When the extractor fails, the rules alone are used, and `working_memory().extractor_failure` says why.
        """
        self._store.require(WRITE)
        return await self._store.parts.worker.extract_facts(self._scope, self.id, MAX_EXTRACT)

    async def forget_fact(self, fact: Fact | str) -> bool:
        """Delete a fact for good. False when there is none."""
        self._store.require(WRITE)
        id = fact.id if isinstance(fact, Fact) else clean_name("fact", fact)
        found = await self._engine.drop_fact(self._scope, self.id, id)
        await self._store.finish_removal(Deletion(scrubbed=await self._engine.scrub()))
        return found

    # ---- the log

    async def subscribe(self, after: int = 0) -> AsyncIterator[Event]:
        """Every event with a number above `after`, from the log and then live, without a gap and without a double.

        Ends after the event that deletes the conversation; raises `StoreClosed` when the store is closed meanwhile. A
        slow reader reads later; nobody waits for it.
        """
        self._store.require(READ)
        seen = clean_limit("after", after, 2**53)
        await self.refresh()
        async with self._engine.watch(self.id) as signal:
            while True:
                page = await self._engine.events(self._scope, self.id, EventQuery(after=seen, limit=FOLLOW_PAGE))
                for event in page:
                    yield event
                    seen = event.n
                    if event.kind in ("forget", "expire") and event.turn is None:
                        return
                if not page:
                    await signal.wait()

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
        """Who did what, when: the log, in order, narrowed."""
        return await self._store.audit(
            self.id, after=after, limit=limit, kinds=kinds, actors=actors, turn=turn, since=since, until=until
        )

    async def verify(self) -> Verified:
        """Recompute every hash and replay the log. Raises `VerificationFailed` naming the first bad row."""
        self._store.require(READ)
        verifier = Verifier()
        files: list[str] = []
        try:
            async for page in self._engine.records(self._scope, self.id):
                await asyncio.to_thread(verifier.feed, [one for one in page if one.kind not in UNVERIFIED_KINDS])
                files.extend(record.row["id"] for record in page if record.kind == "attachment")
        except RowUnreadable as problem:
            raise VerificationFailed(self.id, problem.row, "it holds bytes that are no text") from None
        verified = verifier.finish()
        for id in files:
            await self.read_attachment(id)
        return verified

    def records(self) -> AsyncIterator[Sequence[Record]]:
        """Every stored row, page by page, from one snapshot: what an export is made of."""
        self._store.require(READ)
        return self._engine.records(self._scope, self.id)


class Recall:
    """A recall under way: `hits = await talk.recall(…)`, or `async for hit in talk.recall(…)`."""

    def __init__(self, look: Callable[[], Coroutine[Any, Any, list[RecallHit]]]) -> None:
        self._look = look

    def __await__(self) -> Generator[Any, None, list[RecallHit]]:
        return self._look().__await__()

    async def __aiter__(self) -> AsyncIterator[RecallHit]:
        for hit in await self._look():
            yield hit


def _known(given: Mapping[str, Any], names: Collection[str], what: str) -> None:
    """A slip of the pen is no silent loss."""
    for name in given:
        if name not in names:
            raise InvalidInput(name, f"is not {what}; those are {', '.join(names)}")


def audit_query(
    after: int,
    limit: int,
    kinds: Iterable[str] | None,
    actors: Iterable[str] | None,
    turn: Turn | str | None,
    since: Moment | None,
    until: Moment | None,
) -> EventQuery:
    return EventQuery(
        after=clean_limit("after", after, 2**53),
        limit=clean_limit("limit", limit, MAX_READ),
        kinds=None if kinds is None else _names("kinds", kinds),
        actors=None if actors is None else _names("actors", actors),
        turn=None if turn is None else _turn_id("turn", turn),
        since=None if since is None else clean_moment("since", since),
        until=None if until is None else clean_moment("until", until),
    )


def check_scrubbed(removed: Deletion) -> None:
    if not removed.scrubbed:
        raise ScrubPending


def _clean_threshold(value: object) -> float | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise InvalidInput("threshold", "must be a number")
    if value is not None and not abs(value) < 2**53:  # nor one that is none
        raise InvalidInput("threshold", "is too large")
    return value


def _fitting_facts(facts: Sequence[tuple[Fact, dict[str, float]]], threshold: float | None) -> list[RecallHit]:
    """Facts that hold a word of the question, or stand out by their meaning."""
    fitting = [(fact, parts) for fact, parts in facts if parts["lexical"] or parts["dense"] >= NEAR]
    hits = [RecallHit(score=sum(parts.values()), fact=fact, parts=parts) for fact, parts in fitting]
    return [hit for hit in hits if hit.score >= (threshold or 0.0)]


def _is_between(fact: Fact, since: int | None, until: int | None) -> bool:
    said = micros(fact.valid_from)
    return (since is None or said >= since) and (until is None or said < until)


def _turn_id(field: str, turn: object) -> str:
    """Cursors are turns or their ids, never numbers."""
    if isinstance(turn, Turn):
        return turn.id
    if isinstance(turn, str):
        return clean_name(field, turn)
    raise InvalidInput(field, f"must be a turn or its id, not {type(turn).__name__}")


def _names(field: str, values: Iterable[str]) -> tuple[str, ...]:
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InvalidInput(field, "must be a list of names")
    return tuple(clean_name(field, value) for value in values)


def _batch(
    drafts: tuple[TurnDraft, ...],
    expected_seq: int | None = None,
    replaces: Turn | str | None = None,
    discard_after: bool = False,
) -> AppendBatch:
    if discard_after and replaces is None:
        raise InvalidInput("discard_after", "needs replaces= to say after which turn")
    if len(drafts) > 1:
        _distinct_keys(drafts)
    return AppendBatch(
        drafts=drafts,
        expected_seq=clean_count("expected_seq", expected_seq),
        replaces=None if replaces is None else _turn_id("replaces", replaces),
        discard_after=discard_after,
    )


def _distinct_keys(drafts: Sequence[TurnDraft]) -> None:
    keys = [draft.idempotency_key for draft in drafts if draft.idempotency_key is not None]
    if len(set(keys)) < len(keys):
        raise InvalidInput("idempotency_key", "must be different for each turn of a batch")


def _from_data_url(url: str, media_type: str | None) -> tuple[str | None, bytes]:
    """`data:image/png;base64,…` → its type and its bytes."""
    header, comma, body = url.partition(",")
    if not header.startswith("data:") or not comma:
        raise InvalidInput("data", "text must be a data: URL; a file on disk is given as a pathlib.Path")
    kind, *options = header.removeprefix("data:").split(";")
    try:
        data = b64decode(body, validate=True) if "base64" in options else unquote_to_bytes(body)
    except ValueError:
        raise InvalidInput("data", "the data: URL is not valid base64") from None
    return media_type or kind or None, data
