"""A conversation's verbs: check, call the engine, hand back values."""

from __future__ import annotations

import asyncio
import mimetypes
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote_to_bytes

from palaver.audit import Verifier
from palaver.blobs import blob_path
from palaver.drafts import (
    MAX_BATCH,
    MAX_FILE,
    Draft,
    clean_count,
    clean_json,
    clean_limit,
    clean_mapping,
    clean_moment,
    clean_name,
    clean_role,
    clean_text,
    clean_usage,
    encode_calls,
    optional_name,
)
from palaver.errors import (
    InvalidInput,
    ScrubPending,
    StreamMoved,
    TooLarge,
    VerificationFailed,
)
from palaver.identity import file_hash
from palaver.model import (
    READ,
    SYSTEM,
    WRITE,
    Attachment,
    Branch,
    ConversationInfo,
    Event,
    Match,
    Turn,
    Verified,
)
from palaver.ports import Append, Audit, Chunk, History, Record, Removed, Seal, Search
from palaver.recall.terms import terms
from palaver.streaming import TurnWriter

if TYPE_CHECKING:
    from palaver.store import Store

MAX_READ = 100_000  # turns or events in one call
FOLLOW_PAGE = 500
COMMIT_TRIES = 3


class _Everything:
    """The default of `forget()`: not the same as None, which somebody may pass by mistake."""

    def __repr__(self) -> str:
        return "the whole conversation"


EVERYTHING: Final = _Everything()


class Conversation:
    """A thread of turns. Get one from `store.conversation(key)` or `store.get(id)`."""

    def __init__(self, store: Store, info: ConversationInfo) -> None:
        self._store, self.info = store, info
        self._engine, self._scope = store.engine, store.scope

    def __repr__(self) -> str:
        return f"<Conversation {self.id}>"

    @property
    def id(self) -> str:
        return self.info.id

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
        role: str,
        content: Any = "",
        *,
        expected_seq: int | None = None,
        replaces: Turn | str | None = None,
        discard_after: bool = False,
        **fields: Any,
    ) -> Turn:
        """Store one turn. It is on disk when this returns.

        `fields` are those of a turn: actor, created, metadata, tool_calls, tool_results, attachments, sources, tokens,
        model, adapter, finish_reason, idempotency_key. `replaces` puts it in the place of another turn; with
        `discard_after` also instead of everything that followed.
        """
        batch = self._batch([{**fields, "role": role, "content": content}], expected_seq, replaces, discard_after)
        return (await self._engine.append(self._scope, self.id, batch))[0]

    async def append_many(self, turns: Iterable[Mapping[str, Any]], *, expected_seq: int | None = None) -> list[Turn]:
        """Store several turns in one transaction: all of them or none."""
        items = list(turns)
        if len(items) > MAX_BATCH:
            raise TooLarge("turns", size=len(items), limit=MAX_BATCH, unit="turns")
        batch = self._batch(items, expected_seq)
        return await self._engine.append(self._scope, self.id, batch) if items else []

    def _batch(
        self,
        items: Sequence[Mapping[str, Any]],
        expected_seq: int | None = None,
        replaces: Turn | str | None = None,
        discard_after: bool = False,
    ) -> Append:
        self._store.require(WRITE)
        if discard_after and replaces is None:
            raise InvalidInput("discard_after", "needs replaces= to say after which turn")
        drafts = tuple(self._draft(**item) for item in items)
        _distinct_keys(drafts)
        return Append(
            drafts=drafts,
            expected_seq=clean_count("expected_seq", expected_seq),
            replaces=None if replaces is None else _turn_id("replaces", replaces),
            discard_after=discard_after,
        )

    def _draft(self, role: str = "", content: Any = "", actor: str | None = None, **fields: Any) -> Draft:
        unknown = fields.keys() - TURN_FIELDS
        if unknown:
            raise InvalidInput(sorted(unknown)[0], f"is not a field of a turn; those are {', '.join(TURN_FIELDS)}")
        role = clean_role(role)
        if role == "system":
            self._store.require(SYSTEM)
        return self._store.desk.draft(
            self._store.ids(), role, content, actor=self._actor(role) if actor is None else actor, **fields
        )

    def _actor(self, role: str) -> str:
        """Who speaks when the caller does not say."""
        if role == "user":
            return self._scope.user or self.info.owner or "user"
        if role == "assistant":
            return self.info.agent or "assistant"
        return role

    # ---- streams

    def stream(self, role: str = "assistant", *, flush: float | str | None = None, **fields: Any) -> TurnWriter:
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
        role: str = "assistant",
        *,
        expected_seq: int | None = None,
        replaces: Turn | str | None = None,
        discard_after: bool = False,
        **fields: Any,
    ) -> Turn:
        """Open a pending turn. Somebody must write to it, or renew it, before its lease ends."""
        if clean_role(role) == "tool":
            raise InvalidInput("role", "a tool turn is stored whole, with its results")
        batch = self._batch([{**fields, "role": role, "content": ""}], expected_seq, replaces, discard_after)
        return await self._engine.stream_open(self._scope, self.id, batch, self._lease_micros)

    async def append_chunk(self, turn: Turn | str, n: int, text: str) -> int:
        """Store piece number `n` (0, 1, 2, …) and return the number of the next. Repeating a number changes nothing."""
        self._store.require(WRITE)
        number = clean_count("n", n)
        if number is None:
            raise InvalidInput("n", "must be the number of the piece")
        chunk = Chunk(n=number, text=clean_text("text", text))
        id = _turn_id("turn", turn)
        return await self._engine.stream_chunk(self._scope, self.id, id, chunk, self._lease_micros)

    async def append_commit(self, turn: Turn | str, **final: Any) -> Turn:
        """Seal a pending turn as complete. `final` is what `TurnWriter.finish` takes: tokens, model and so on."""
        id = _turn_id("turn", turn)
        for _ in range(COMMIT_TRIES):
            stored = await self.turn(id)
            try:
                return await self._commit_stream(stored, stored.text, None, final)
            except StreamMoved:
                continue  # another chunk came in between
        raise StreamMoved(id)

    async def append_abort(self, turn: Turn | str) -> Turn:
        """Seal a pending turn as aborted: out of the active view, its text kept for the record."""
        self._store.require(WRITE)
        return await self._engine.stream_abort(self._scope, self.id, _turn_id("turn", turn), None)

    async def append_renew(self, turn: Turn | str) -> None:
        """A sign of life from the writer of a pending turn."""
        self._store.require(WRITE)
        await self._engine.stream_renew(self._scope, self.id, _turn_id("turn", turn), self._lease_micros)

    async def _renew_stream(self, turn: Turn) -> None:
        await self.append_renew(turn)

    async def _commit_stream(self, turn: Turn, text: str, tail: Chunk | None, final: Mapping[str, Any]) -> Turn:
        self._store.require(WRITE)
        seal = self._seal(turn, text, tail, **final)
        return await self._engine.stream_commit(self._scope, self.id, turn.id, seal)

    async def _abort_stream(self, turn: Turn, tail: Chunk) -> Turn:
        return await self._engine.stream_abort(self._scope, self.id, turn.id, tail)

    def _seal(
        self,
        turn: Turn,
        text: str,
        tail: Chunk | None,
        *,
        tokens: Any = None,
        model: str | None = None,
        adapter: str | None = None,
        finish_reason: str | None = None,
        tool_calls: Any = None,
        sources: Any = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Seal:
        calls = encode_calls(tool_calls)
        if calls and turn.role != "assistant":
            raise InvalidInput("tool_calls", f"belong to an assistant turn, not to a {turn.role} turn")
        usage = clean_usage(tokens)
        return Seal(
            content=text,
            token_count=self._store.desk.measure(text, calls),
            tail=tail,
            tool_calls=calls,
            sources=clean_json("sources", list(sources)) if sources else None,
            prompt_tokens=usage.prompt,
            completion_tokens=usage.completion,
            model=optional_name("model", model),
            adapter=optional_name("adapter", adapter),
            finish_reason=optional_name("finish_reason", finish_reason),
            metadata=clean_mapping("metadata", metadata),
        )

    # ---- reading

    async def history(
        self,
        limit: int = 50,
        *,
        before: Turn | str | None = None,
        after: Turn | str | None = None,
        since: Any = None,
        until: Any = None,
        include_superseded: bool = False,
        participants: Iterable[str] | None = None,
        roles: Iterable[str] | None = None,
    ) -> list[Turn]:
        """The latest turns of the active view, oldest first; after a cursor, the ones that follow it.

        Cursors are turns or their ids. `since` is inclusive, `until` is not. An empty list of participants or roles
        means nobody. With `include_superseded`, everything that was ever said, in order of arrival.
        """
        self._store.require(READ)
        query = History(
            limit=clean_limit("limit", limit, MAX_READ),
            before=None if before is None else _turn_id("before", before),
            after=None if after is None else _turn_id("after", after),
            since=None if since is None else clean_moment("since", since),
            until=None if until is None else clean_moment("until", until),
            include_superseded=include_superseded,
            participants=None if participants is None else _names("participants", participants),
            roles=None if roles is None else tuple(clean_role(role) for role in _names("roles", roles)),
        )
        return await self._engine.history(self._scope, self.id, query)

    async def turn(self, turn: Turn | str) -> Turn:
        """One turn, as it is now, whatever its state."""
        self._store.require(READ)
        return await self._engine.turn(self._scope, self.id, _turn_id("turn", turn))

    async def search(self, text: str, limit: int = 10) -> list[Match]:
        """Turns of the active view that hold words of `text`; those that hold the most of them first."""
        self._store.require(READ)
        stems = tuple(dict.fromkeys(terms(clean_text("text", text))))[:64]
        query = Search(stems=stems, limit=clean_limit("limit", limit, 1_000), conversation=self.id)
        return await self._engine.matches(self._scope, query) if stems else []

    async def branches(self, turn: Turn | str | None = None) -> list[Branch]:
        """The places with more than one version: at one turn's place, or everywhere."""
        self._store.require(READ)
        id = None if turn is None else _turn_id("turn", turn)
        return await self._engine.branches(self._scope, self.id, id)

    async def switch(self, turn: Turn | str) -> None:
        """Make the active view lead through `turn`, and through what followed it when it was last seen."""
        self._store.require(WRITE)
        await self._engine.switch(self._scope, self.id, _turn_id("turn", turn))

    # ---- what is known of the conversation

    async def update(self, **fields: Any) -> ConversationInfo:
        """Change title, workspace, agent, model, participants, metadata, settings or ttl."""
        self._store.require(WRITE)
        self._store.require_owner(self.info)
        changes = self._store.changes(fields)
        self.info = await self._engine.update(self._scope, self.id, changes)
        return self.info

    async def rename(self, title: str | None) -> ConversationInfo:
        return await self.update(title=title)

    # ---- forgetting

    async def forget(self, turn: Turn | str | _Everything = EVERYTHING) -> None:
        """Delete a turn for good; without an argument, the whole conversation.

        When this returns, the text is in no row, index or file. `ScrubPending` means that it is deleted, but that
        another process's reader keeps old bytes in the WAL for a moment longer.
        """
        self._store.require(WRITE)
        if isinstance(turn, _Everything):
            self._store.require_owner(self.info)
            removed = await self._engine.forget_conversation(self._scope, self.id)
        else:
            removed = await self._engine.forget_turn(self._scope, self.id, _turn_id("turn", turn))
        await self._store.finish_removal(removed)

    async def reset(self) -> None:
        """Forget every turn and keep the conversation. Sequence numbers go on where they were."""
        self._store.require(WRITE)
        self._store.require_owner(self.info)
        await self._store.finish_removal(await self._engine.reset(self._scope, self.id))

    # ---- attachments

    async def attach(
        self, data: bytes | Path | str, *, filename: str | None = None, media_type: str | None = None
    ) -> Attachment:
        """Store a file: bytes, a path, or a `data:` URL. Give the result to `append(attachments=[…])`."""
        self._store.require(WRITE)
        if isinstance(data, str):
            media_type, data = _from_data_url(data, media_type)
        elif isinstance(data, Path):
            filename = filename or data.name
            data = await asyncio.to_thread(data.read_bytes)
        if len(data) > MAX_FILE:
            raise TooLarge("data", size=len(data), limit=MAX_FILE, unit="bytes")
        media_type = clean_name("media_type", media_type or _guess_type(filename))
        filename = clean_name("filename", filename or "file" + (mimetypes.guess_extension(media_type) or ""))
        user = self._scope.user or self.info.owner
        attachment = Attachment(
            id=self._store.ids(),
            filename=filename,
            media_type=media_type,
            bytes=len(data),
            sha256=file_hash(data),
            path=blob_path(user, self.id, filename),
            owner=user,
        )
        await self._store.blobs.put(attachment.path, data)
        return await self._engine.attach(self._scope, self.id, attachment)

    async def attachment(self, attachment: Attachment | str) -> Attachment:
        """What is known of a stored file."""
        self._store.require(READ)
        id = attachment.id if isinstance(attachment, Attachment) else clean_name("attachment", attachment)
        return await self._engine.attachment(self._scope, self.id, id)

    async def read_attachment(self, attachment: Attachment | str) -> bytes:
        """The bytes of a stored file; they are checked against their hash."""
        known = await self.attachment(attachment)
        data = await self._store.blobs.get(known.path)
        if file_hash(data) != known.sha256:
            raise VerificationFailed(self.id, f"attachment {known.id}", "its bytes are not what was stored")
        return data

    async def data_url(self, attachment: Attachment | str) -> str:
        """A stored file as a `data:` URL."""
        known = await self.attachment(attachment)
        data = await self.read_attachment(known)
        return f"data:{known.media_type};base64,{b64encode(data).decode()}"

    # ---- the log

    async def subscribe(self, after: int = 0) -> AsyncIterator[Event]:
        """Every event with a number above `after`, from the log and then live, without a gap and without a double.

        Ends after the event that deletes the conversation. A slow reader reads later; nobody waits for it.
        """
        self._store.require(READ)
        seen = clean_limit("after", after, 2**53)
        await self.refresh()
        async with self._engine.watch(self.id) as signal:
            while True:
                page = await self._engine.events(self._scope, self.id, Audit(after=seen, limit=FOLLOW_PAGE))
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
        since: Any = None,
        until: Any = None,
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
        async for page in self._engine.records(self._scope, self.id):
            await asyncio.to_thread(verifier.feed, page)
            files.extend(record.row["id"] for record in page if record.kind == "attachment")
        verified = verifier.finish()
        for id in files:
            await self.read_attachment(id)
        return verified

    def records(self) -> AsyncIterator[Sequence[Record]]:
        """Every stored row, page by page, from one snapshot: what an export is made of."""
        self._store.require(READ)
        return self._engine.records(self._scope, self.id)


TURN_FIELDS = (
    "actor", "created", "metadata", "tool_calls", "tool_results", "attachments", "sources", "tokens", "model",
    "adapter", "finish_reason", "idempotency_key",
)  # fmt: skip


def audit_query(
    after: int,
    limit: int,
    kinds: Iterable[str] | None,
    actors: Iterable[str] | None,
    turn: Turn | str | None,
    since: Any,
    until: Any,
) -> Audit:
    return Audit(
        after=clean_limit("after", after, 2**53),
        limit=clean_limit("limit", limit, MAX_READ),
        kinds=None if kinds is None else _names("kinds", kinds),
        actors=None if actors is None else _names("actors", actors),
        turn=None if turn is None else _turn_id("turn", turn),
        since=None if since is None else clean_moment("since", since),
        until=None if until is None else clean_moment("until", until),
    )


def check_scrubbed(removed: Removed) -> None:
    if not removed.scrubbed:
        raise ScrubPending


def _turn_id(field: str, turn: object) -> str:
    """Cursors are turns or their ids, never numbers."""
    if isinstance(turn, Turn):
        return turn.id
    if isinstance(turn, str):
        return clean_name(field, turn)
    raise InvalidInput(field, f"must be a turn or its id, not {type(turn).__name__}")


def _names(field: str, values: Iterable[str]) -> tuple[str, ...]:
    if isinstance(values, str):
        raise InvalidInput(field, "must be a list of names, not one text")
    return tuple(clean_name(field, value) for value in values)


def _distinct_keys(drafts: Sequence[Draft]) -> None:
    keys = [draft.idempotency_key for draft in drafts if draft.idempotency_key is not None]
    if len(set(keys)) < len(keys):
        raise InvalidInput("idempotency_key", "must be different for each turn of a batch")


def _guess_type(filename: str | None) -> str:
    return (mimetypes.guess_type(filename)[0] if filename else None) or "application/octet-stream"


def _from_data_url(url: str, media_type: str | None) -> tuple[str, bytes]:
    """`data:image/png;base64,…` → its type and its bytes."""
    header, comma, body = url.partition(",")
    if not header.startswith("data:") or not comma:
        raise InvalidInput("data", "text must be a data: URL; a file on disk is given as a pathlib.Path")
    kind, *options = header.removeprefix("data:").split(";")
    try:
        data = b64decode(body, validate=True) if "base64" in options else unquote_to_bytes(body)
    except ValueError:
        raise InvalidInput("data", "the data: URL is not valid base64") from None
    return media_type or kind or "text/plain", data
