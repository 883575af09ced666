"""An open database, seen by one scope. It hands out conversations."""

from __future__ import annotations

import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Unpack

from palaver.context.builder import ContextBuilder
from palaver.conversations.conversation import MAX_READ, Conversation, audit_query, check_scrubbed
from palaver.conversations.live_buffer import Unflushed
from palaver.conversations.open_options import STREAM_FLUSH, STREAM_LEASE, clean_minutes
from palaver.conversations.options import CONVERSATION_FIELDS, ConversationOptions
from palaver.conversations.sessions import Callers, round_of
from palaver.conversations.streams import HeldBack
from palaver.core.identity import is_id, micros, new_salt
from palaver.core.pagination import decode_cursor, encode_cursor
from palaver.core.turn_draft import DraftBuilder
from palaver.core.turn_options import Moment
from palaver.core.validation import (
    MAX_PARTICIPANTS,
    MAX_TITLE,
    clean_limit,
    clean_mapping,
    clean_moment,
    clean_name,
    clean_text,
    clean_ttl,
    optional_name,
)
from palaver.errors import (
    ConversationNotFound,
    EngineError,
    InvalidInput,
    PalaverError,
    PermissionDenied,
    TooLarge,
)
from palaver.files.reader import Files
from palaver.files.storage import blob_path
from palaver.generation.events import GenerateEvent
from palaver.generation.options import GenerateOptions
from palaver.generation.settings import GenerationContext
from palaver.memory.settings import check_settings, misplaced
from palaver.memory.worker.loop import Worker
from palaver.model import (
    ADMIN,
    READ,
    WRITE,
    ContentInput,
    ConversationInfo,
    ConversationMatch,
    Event,
    Page,
    Request,
    Scope,
    Stats,
    Swept,
    Turn,
    UsageLine,
)
from palaver.models.token_ratio import TokenRatios
from palaver.ports.blobs import Blobs
from palaver.ports.clock import Clock, Ids
from palaver.ports.engine import Engine, Token, TokenEngine
from palaver.ports.queries import ConversationChanges, ConversationSpec, Deletion, Listing, Record, SearchQuery
from palaver.recall.service import RecallService
from palaver.recall.terms import last_word, title_terms
from palaver.telemetry import Meter

if TYPE_CHECKING:
    pass

BLOB_BATCH = 100
LOOSE = timedelta(days=1)  # so long may a file wait for the turn that takes it
MAX_HELD = 10_000  # streams that are being redacted; the oldest of them have lost their writer


@dataclass(frozen=True, slots=True)
class Parts:
    """What a store is made of. All scopes of one open database share them."""

    engine: Engine
    blobs: Blobs
    desk: DraftBuilder
    ids: Ids
    prompter: ContextBuilder
    worker: Worker
    clock: Clock
    generation: GenerationContext
    callers: Callers = field(default_factory=Callers)
    held_back: dict[str, HeldBack] = field(default_factory=dict)
    unflushed: Unflushed = field(default_factory=Unflushed)
    meter: Meter = field(default_factory=Meter)
    stream_lease: float = STREAM_LEASE
    stream_flush: float = STREAM_FLUSH
    blobs_chosen: bool = False  # by the application, for all callers


class Store:
    """An open database, seen by one scope. `palaver.open(url)` makes one."""

    def __init__(self, parts: Parts, scope: Scope) -> None:
        self.parts, self.scope = parts, scope
        self.engine, self.blobs, self.desk, self.ids = parts.engine, parts.blobs, parts.desk, parts.ids
        self.files = Files(parts.engine, parts.blobs)
        self.stream_lease, self.stream_flush = parts.stream_lease, parts.stream_flush

    def __repr__(self) -> str:
        return f"<Store tenant={self.scope.tenant!r} user={self.scope.user!r}>"

    def scoped(self, scope: Scope) -> Store:
        """The same database for another caller."""
        if isinstance(self.engine, TokenEngine) and not self.engine.is_service:
            raise InvalidInput("scope", "over Supabase callers are who their tokens say: use store.signed_in(token)")
        return Store(self.parts, clean_scope(scope))

    async def signed_in(self, token: Token) -> Store:
        """The same Supabase project for the user whose token this is. The token goes with each request of that user,
        and nowhere else. A function in its place is asked before each request, for sessions that are renewed."""
        if not isinstance(self.engine, TokenEngine):
            raise InvalidInput("token", "is for Supabase; here use store.scoped(Scope(...))")
        known = self.parts.callers.known(token)
        if known is None:
            engine = await self.engine.signed_in(token)
            known = round_of(_store_of(self.parts, engine), engine)
            self.parts.callers.add(token, known)
        return known.store

    def require(self, right: str) -> None:
        if right not in self.scope.rights:
            raise PermissionDenied(right)

    def require_owner(self, info: ConversationInfo) -> None:
        """What concerns the whole conversation is for its owner, or for an admin."""
        if self.scope.user != info.owner:
            self.require(ADMIN)

    # ---- conversations

    async def conversation(
        self, key: str | None = None, *, owner: str | None = None, **fields: Unpack[ConversationOptions]
    ) -> Conversation:
        """The conversation with the app's own name `key`, created when there is none; without a key, a new one.

        `fields` are used when it is created: workspace, agent, model, title, participants, metadata, settings, ttl.
        """
        self.require(WRITE)
        if owner is None and self.scope.user is not None:
            owner = self.scope.user
        elif owner is None:
            self.require(ADMIN)  # the application itself; a scope that is nobody owns nothing
            owner = ""
        elif owner != self.scope.user:
            self.require(ADMIN)
            owner = clean_name("owner", owner)
        changes = self.changes(fields)
        spec = ConversationSpec(
            id=self.ids(),
            owner=owner,
            key=optional_name("key", key),
            workspace=changes.workspace,
            agent=changes.agent,
            model=changes.model,
            title=changes.title,
            participants=changes.participants,
            metadata=changes.metadata,
            settings=changes.settings,
            ttl=changes.ttl,
            salt=changes.salt,
        )
        return Conversation(self, await self.engine.open_conversation(self.scope, spec))

    async def find(self, key: str, *, owner: str | None = None) -> Conversation:
        """The conversation with the app's own name `key`; unlike `conversation`, this never creates one."""
        self.require(READ)
        owner = (self.scope.user or "") if owner is None else _clean_owner(owner)
        return Conversation(self, await self.engine.find_conversation(self.scope, owner, clean_name("key", key)))

    async def get(self, id: str) -> Conversation:
        """The conversation with this id."""
        self.require(READ)
        return Conversation(self, await self.engine.conversation(self.scope, clean_name("id", id)))

    def changes(self, fields: Mapping[str, Any], stored: ConversationInfo | None = None) -> ConversationChanges:
        """Fields of a conversation, checked; `stored` is what they change."""
        unknown = fields.keys() - CONVERSATION_FIELDS
        if unknown:
            known = ", ".join(CONVERSATION_FIELDS)
            raise InvalidInput(
                sorted(unknown)[0], f"is not a field of a conversation that can be set; those are {known}"
            )
        title = optional_name("title", fields.get("title"), MAX_TITLE)
        return ConversationChanges(
            fields=frozenset(fields),
            title=title,
            workspace=optional_name("workspace", fields.get("workspace")),
            agent=optional_name("agent", fields.get("agent")),
            model=optional_name("model", fields.get("model")),
            participants=_clean_participants(fields.get("participants") or ()),
            metadata=_clean_metadata(fields.get("metadata")),
            settings=_clean_settings(fields.get("settings"), stored),
            ttl=clean_ttl(fields.get("ttl")),
            salt=new_salt(),
        )

    async def conversations(
        self,
        *,
        owner: str | None = None,
        workspace: str | None = None,
        agent: str | None = None,
        limit: int = 50,
        cursor: str | None = None,
    ) -> Page:
        """What this scope may see, most recently used first. `page.cursor` leads to the next page."""
        self.require(READ)
        limit = clean_limit("limit", limit, MAX_READ)
        listing = Listing(
            limit=limit + 1,
            owner=None if owner is None else _clean_owner(owner),
            workspace=optional_name("workspace", workspace),
            agent=optional_name("agent", agent),
            before=None if cursor is None else decode_cursor(cursor),
        )
        found = await self.engine.conversations(self.scope, listing)
        items = tuple(found[:limit])
        return Page(items, encode_cursor(items[-1]) if len(found) > limit and items else None)

    async def search(self, text: str, *, limit: int = 20) -> list[ConversationMatch]:
        """Conversations with these words in their title or text. The last word may be the beginning of one."""
        self.require(READ)
        text = clean_text("text", text)
        stems = list(dict.fromkeys(title_terms(text)))[:64]
        if not stems:
            return []
        query = SearchQuery(stems=tuple(stems), prefix=last_word(text), limit=clean_limit("limit", limit, 1_000))
        return await self.engine.search(self.scope, query)

    # ---- answers

    async def generate(
        self,
        conversation: Conversation | str,
        message: ContentInput | None = None,
        **options: Unpack[GenerateOptions],
    ) -> Turn:
        """`Conversation.generate`, in a conversation by its id or its key; a key that is new makes one."""
        return await (await self._named(conversation)).generate(message, **options)

    async def generate_stream(
        self,
        conversation: Conversation | str,
        message: ContentInput | None = None,
        **options: Unpack[GenerateOptions],
    ) -> AsyncGenerator[GenerateEvent]:
        """`Conversation.generate_stream`, in a conversation by its id or its key."""
        talk = await self._named(conversation)
        async with aclosing(talk.generate_stream(message, **options)) as events:
            async for event in events:
                yield event

    async def requests(
        self,
        conversation: Conversation | str,
        limit: int = 20,
        *,
        turn: Turn | str | None = None,
        before: Request | str | None = None,
    ) -> list[Request]:
        """What was really sent to models in a conversation. See `Conversation.requests`."""
        if isinstance(conversation, Conversation):
            return await conversation.requests(limit, turn=turn, before=before)
        try:
            talk = await self.get(conversation)
        except ConversationNotFound:
            talk = await self.find(conversation)
        return await talk.requests(limit, turn=turn, before=before)

    async def _named(self, conversation: Conversation | str) -> Conversation:
        if isinstance(conversation, Conversation):
            return conversation
        try:
            return await self.get(conversation)
        except ConversationNotFound:
            if is_id(conversation):
                raise
            return await self.conversation(conversation)

    # ---- the log

    async def audit(
        self,
        conversation: str,
        *,
        after: int = 0,
        limit: int = 1_000,
        kinds: Iterable[str] | None = None,
        actors: Iterable[str] | None = None,
        turn: Turn | str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
    ) -> list[Event]:
        """The log of a conversation, also after it was deleted: then the tombstone is its last event."""
        self.require(READ)
        query = audit_query(after, limit, kinds, actors, turn, since, until)
        return await self.engine.events(self.scope, clean_name("conversation", conversation), query)

    async def usage(
        self, *, since: Moment | None = None, until: Moment | None = None, limit: int = 10_000
    ) -> list[UsageLine]:
        """Tokens by day (UTC), owner and model, as providers reported them; newest day first."""
        self.require(READ)
        return await self.engine.usage(
            self.scope,
            None if since is None else clean_moment("since", since),
            None if until is None else clean_moment("until", until),
            clean_limit("limit", limit, MAX_READ),
        )

    # ---- keeping house

    async def expire(self) -> list[str]:
        """Delete the conversations whose time to live is over, and return their ids."""
        self.require(WRITE)
        gone = await self._in_steps(lambda: self.engine.expire(self.scope))
        check_scrubbed(gone)
        return list(gone.conversations)

    async def sweep(self, *, retention_minutes: float | None = None) -> Swept:
        """Delete what has outlived its time: expired conversations, streams without a writer, files that no turn has
        taken for a day and, when asked for, every turn that is older than `retention_minutes`. Safe to run in several
        places at once."""
        return await self._swept(retention_minutes, list_files=True)

    async def _swept(self, retention_minutes: float | None, *, list_files: bool) -> Swept:
        self.require(WRITE)
        sealed = await self.engine.abort_expired_streams()
        expired = await self._in_steps(lambda: self.engine.expire(self.scope))
        aged = Deletion()
        if retention_minutes is not None:
            before = clean_moment("retention_minutes", self.parts.clock.now() - clean_minutes(retention_minutes))
            aged = await self._in_steps(lambda: self.engine.forget_older(self.scope, before))
        files = await self._drop_loose_files()
        if list_files:
            files += await self._drop_unnamed_files()
        check_scrubbed(expired)
        check_scrubbed(aged)
        return Swept(conversations=expired.conversations, turns=len(aged.turns), streams=sealed, files=files)

    async def _drop_loose_files(self) -> int:
        """Delete the uploads that no turn has taken for a day."""
        dropped, long_ago = 0, micros(self.parts.clock.now() - LOOSE)
        while count := await self.engine.drop_loose_files(self.scope, long_ago):
            dropped += count
        await self.delete_doomed_blobs()
        return dropped

    async def _drop_unnamed_files(self) -> int:
        """Delete the bytes that no row names. This lists the whole folder or bucket."""
        dropped, long_ago = 0, self.parts.clock.now() - LOOSE
        batch: list[str] = []
        async for path, since in self.blobs.listed():
            if since < long_ago:
                batch.append(path)
            if len(batch) == BLOB_BATCH:
                dropped += await self._drop_orphans(batch)
                batch = []
        return dropped + await self._drop_orphans(batch)

    async def _drop_orphans(self, paths: list[str]) -> int:
        orphans = await self.engine.orphans(self.scope, paths) if paths else []
        for path in orphans:
            await self.blobs.delete(path)
        return len(orphans)

    async def _in_steps(self, step: Callable[[], Awaitable[Deletion]]) -> Deletion:
        """Delete bit by bit until nothing is left to delete. Bytes that must wait in the WAL hold nothing up."""
        whole = Deletion()
        while (one := await step()).conversations or one.turns:
            await self.delete_doomed_blobs()
            conversations, turns = whole.conversations + one.conversations, whole.turns + one.turns
            whole = Deletion(conversations, turns, one.scrubbed)
        return whole

    async def finish_removal(self, removed: Deletion) -> None:
        """After rows were deleted: their files too, and the bytes in the WAL."""
        await self.delete_doomed_blobs()
        check_scrubbed(removed)

    def held_back(self, turn: str) -> HeldBack:
        """What holds back the end of a stream that may still turn out to be a secret."""
        from palaver.redaction.redactor import StreamRedactor

        known = self.parts.held_back
        if turn not in known:
            known[turn] = HeldBack(StreamRedactor(self.parts.worker.redactor))
            while len(known) > MAX_HELD:
                del known[next(iter(known))]
        return known[turn]

    async def delete_doomed_blobs(self) -> None:
        while paths := await self.engine.blobs_to_delete(BLOB_BATCH):
            for path in paths:
                await self.blobs.delete(path)
            await self.engine.blobs_deleted(paths)

    async def settle(self) -> None:
        """Wait until everything that was put off is done."""
        await self.engine.abort_expired_streams()
        await self.delete_doomed_blobs()
        await self.parts.worker.drain(self.scope.tenant)
        check_scrubbed(Deletion(scrubbed=await self.engine.scrub()))

    async def stats(self) -> Stats:
        """Counts inside what this scope may see, and facts about the storage."""
        self.require(READ)
        return await self.engine.stats(self.scope)

    async def restore(self, records: Sequence[Record], files: Mapping[str, bytes]) -> Conversation | None:
        """Bring in an exported conversation, exactly as it was. None when it is here already."""
        self.require(WRITE)
        self.require(ADMIN)
        records = [_with_own_path(record, records[0].row["id"]) for record in records]
        rows = [record.row for record in records if record.kind == "attachment"]
        async with self.writing_blobs({row["path"]: files[row["id"]] for row in rows}) as undo:
            info = await self.engine.restore(self.scope, records)
            if info is None:
                await undo()
        return None if info is None else Conversation(self, info)

    @asynccontextmanager
    async def writing_blobs(self, blobs: Mapping[str, bytes]) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        """Files first, then the rows that name them. When the rows are refused, the files go again.

        After an `EngineError` nobody knows whether the rows are there, so the files stay.
        """

        async def undo() -> None:
            for path in blobs:
                await self.blobs.delete(path)

        for path, data in blobs.items():
            await self.blobs.put(path, data)
        try:
            yield undo
        except PalaverError as problem:
            if not isinstance(problem, EngineError):
                await undo()
            raise


def _store_of(parts: Parts, engine: Any) -> Store:
    """What one who signed in works with: everything that reaches the database does so with the token."""
    recaller = RecallService(engine, parts.worker.embedder, parts.clock)
    blobs = parts.blobs if parts.blobs_chosen else engine.blobs
    own = replace(
        parts,
        engine=engine,
        blobs=blobs,
        prompter=ContextBuilder(engine, recaller, parts.prompter.counter),
        worker=replace(parts.worker, engine=engine, files=Files(engine, blobs)),
        generation=replace(parts.generation, token_ratios=TokenRatios(engine)),
    )
    return Store(own, engine.scope)


def _with_own_path(record: Record, conversation: str) -> Record:
    """A file that is brought in never lands on one that is here already."""
    if record.kind != "attachment":
        return record
    row = record.row
    return Record(record.kind, {**row, "path": blob_path(row["owner"], conversation, row["filename"])})


def _clean_settings(value: object, stored: ConversationInfo | None) -> str | None:
    text = clean_mapping("settings", value)
    if isinstance(value, Mapping):
        check_settings(value, None if stored is None else stored.settings)
    return text


def _clean_metadata(value: object) -> str | None:
    text = clean_mapping("metadata", value)
    name = misplaced(value) if isinstance(value, Mapping) else None
    if name is not None:
        # A warning, not a refusal: metadata belongs to the application, which may mean something else by this name.
        warnings.warn(
            f"metadata.{name} has no effect on the conversation; give it as settings={{{name!r}: …}}", stacklevel=4
        )
    return text


def _clean_participants(value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise InvalidInput("participants", "must be a list of names")
    names = tuple(dict.fromkeys(clean_name("participants", one) for one in value))
    if len(names) > MAX_PARTICIPANTS:
        raise TooLarge("participants", size=len(names), limit=MAX_PARTICIPANTS, unit="names")
    return names


def _clean_owner(value: object) -> str:
    """A person's name; the application itself is ''."""
    return "" if value == "" else clean_name("owner", value)


def clean_scope(scope: Scope) -> Scope:
    if not isinstance(scope, Scope):
        raise InvalidInput("scope", f"must be a palaver.Scope, not {type(scope).__name__}")
    clean_name("tenant", scope.tenant)
    optional_name("user", scope.user)
    optional_name("workspace", scope.workspace)
    if scope.visibility not in ("own", "workspace", "tenant"):
        raise InvalidInput("sight", "must be own, workspace or tenant")
    if not isinstance(scope.rights, frozenset):
        raise InvalidInput("rights", "must be a frozenset of rights")
    return scope
