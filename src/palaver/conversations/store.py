"""An open database, seen by one scope. It hands out conversations."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import Self, Unpack

from palaver.conversations.arguments import MAX_READ, event_query, optional_moment
from palaver.conversations.attachments import put_blobs
from palaver.conversations.components import Components
from palaver.conversations.conversation import Conversation
from palaver.conversations.details import clean_scope
from palaver.conversations.directory import Directory
from palaver.conversations.emptiness import EmptyResults
from palaver.conversations.erasure import Eraser
from palaver.conversations.maintenance import Maintenance
from palaver.conversations.options import ConversationOptions
from palaver.conversations.sessions import Sessions, new_session
from palaver.conversations.subjects import Subject
from palaver.core.budgets import BudgetLimits, Payer, clean_limits, clean_subject
from palaver.core.filters import ConversationWhere, Where
from palaver.core.identity import is_id
from palaver.core.option_docs import describe_options
from palaver.core.rights import require_right
from palaver.core.turn_options import Moment
from palaver.core.validation import clean_limit, clean_name, optional_name
from palaver.errors import ConversationNotFound, InvalidInput
from palaver.files.storage import blob_path
from palaver.generation.events import GenerateEvent
from palaver.generation.options import GenerateOptions
from palaver.memory.settings import Kind
from palaver.model import (
    ADMIN,
    PERSON,
    READ,
    WRITE,
    BudgetKind,
    BudgetLine,
    ContentInput,
    ConversationInfo,
    ConversationMatch,
    ErasureReceipt,
    Event,
    Page,
    Request,
    Results,
    Scope,
    Stats,
    Swept,
    Turn,
    UsageLine,
)
from palaver.ports.budgets import StoredBudget
from palaver.ports.engine import Token, TokenEngine
from palaver.ports.queries import Record
from palaver.telemetry import traced


@traced(lambda store: (store._components.generation.telemetry, None))
class Store:
    """An open database, seen by one scope. `palaver.open(url)` makes one."""

    def __init__(self, components: Components, scope: Scope, sessions: Sessions | None = None) -> None:
        self.scope = scope
        self._components, self._sessions = components, sessions or Sessions()
        self._directory = Directory(
            components.engine,
            scope,
            components.ids,
            components.redactor,
            components.budgets,
            EmptyResults(components.engine, components.meter),
        )
        self._eraser = Eraser(components, scope)
        self._maintenance = Maintenance(
            components.engine,
            scope,
            components.blobs,
            components.clock,
            components.clock_watch,
            components.worker,
            self._eraser.resume,
        )

    def __repr__(self) -> str:
        return f"<Store tenant={self.scope.tenant!r} user={self.scope.user!r}>"

    async def aclose(self) -> None:
        """Close the database, for every scope that shares it. Later calls raise `StoreClosed`."""
        await self._components.lifetime.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def scoped(self, scope: Scope) -> Store:
        """Return a store of the same database for another scope."""
        engine = self._components.engine
        if isinstance(engine, TokenEngine) and not engine.is_service:
            raise InvalidInput("scope", "on Supabase the token decides who the caller is: use store.signed_in(token)")
        return Store(self._components, clean_scope(scope), self._sessions)

    async def signed_in(self, token: Token) -> Store:
        """Return a store of the same Supabase project for the user whose token this is.

        The token is sent with each request of that user and nowhere else. A function in its place is called before
        each request, for sessions that are renewed.
        """
        engine = self._components.engine
        if not isinstance(engine, TokenEngine):
            raise InvalidInput("token", "is for Supabase; here use store.scoped(Scope(...))")
        session = self._sessions.get(token)
        if session is None:
            theirs = await engine.signed_in(token)
            session = new_session(self._components.signed_in(theirs), theirs.scope, theirs)
            self._sessions.add(token, session)
        return Store(session.components, session.scope, self._sessions)

    # ---- conversations

    @describe_options(ConversationOptions)
    async def conversation(
        self, key: str | None = None, *, owner: str | None = None, **fields: Unpack[ConversationOptions]
    ) -> Conversation:
        """Return the conversation with the application's own name `key`, and create it if there is none; without a
        key, create a new one.

        `owner` is another user's name, for an admin. The other options are used when it is created. Of a conversation
        that exists, `settings` must be as they are stored: otherwise `SettingsConflict`, and `update` changes them.
        """
        return self._open(await self._directory.open(key, owner, fields))

    async def find(self, key: str, *, owner: str | None = None) -> Conversation:
        """Return the conversation with the application's own name `key`. Unlike `conversation`, never create one."""
        return self._open(await self._directory.find(key, owner))

    async def get(self, id: str) -> Conversation:
        """Return the conversation with this id."""
        return self._open(await self._directory.get(id))

    def _open(self, info: ConversationInfo) -> Conversation:
        return Conversation(self._components, self.scope, info)

    async def conversations(
        self,
        *,
        owner: str | None = None,
        workspace: str | None = None,
        agent: str | None = None,
        kind: Kind | None = "talk",
        limit: int = 50,
        cursor: str | None = None,
        where: ConversationWhere | None = None,
    ) -> Page:
        """Return the conversations that this scope may see, most recently used first. `page.cursor` leads to the next
        page. `kind` is `talk`, `state` or `items` (see `ConversationSettings`), or None for all. `where` filters by the
        conversation's metadata, owner or participants, and last change; see `ConversationWhere`."""
        return await self._directory.page(
            owner=owner, workspace=workspace, agent=agent, kind=kind, limit=limit, cursor=cursor, where=where
        )

    async def search(self, text: str, *, limit: int = 20, where: Where | None = None) -> Results[ConversationMatch]:
        """Return the conversations with these words in their title or text. The last word may be a prefix.

        With `where`, only turns that meet its conditions are searched (see `Where`), and no titles.
        """
        return await self._directory.search(text, limit=limit, where=where)

    # ---- subjects

    def person(self, id: str) -> Subject:
        """Return the memory of a person: what holds across all conversations of that person. Not awaited."""
        return Subject(self._components, self.scope, PERSON, id)

    def subject(self, kind: str, id: str) -> Subject:
        """Return the memory of anything else: a project, a team, an agent, a product. Not awaited."""
        return Subject(self._components, self.scope, kind, id)

    # ---- answers

    async def generate(
        self,
        conversation: Conversation | str,
        message: ContentInput | None = None,
        **options: Unpack[GenerateOptions],
    ) -> Turn:
        """Run `Conversation.generate` in a conversation given by its id or its key; a new key creates one."""
        return await (await self._get_or_create(conversation)).generate(message, **options)

    async def generate_stream(
        self,
        conversation: Conversation | str,
        message: ContentInput | None = None,
        **options: Unpack[GenerateOptions],
    ) -> AsyncGenerator[GenerateEvent]:
        """Run `Conversation.generate_stream` in a conversation given by its id or its key; a new key creates one."""
        talk = await self._get_or_create(conversation)
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
        """Return what was really sent to models in a conversation. See `Conversation.requests`."""
        if not isinstance(conversation, Conversation):
            conversation = self._open(await self._directory.get_or_find(conversation))
        return await conversation.requests(limit, turn=turn, before=before)

    async def _get_or_create(self, conversation: Conversation | str) -> Conversation:
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
        """Return the log of a conversation, even after it was deleted: then the tombstone is its last event."""
        require_right(self.scope, READ)
        query = event_query(after, limit, kinds, actors, turn, since, until)
        return await self._components.engine.events(self.scope, clean_name("conversation", conversation), query)

    async def usage(
        self, *, since: Moment | None = None, until: Moment | None = None, limit: int = 10_000
    ) -> list[UsageLine]:
        """Return tokens by day (UTC), owner and model, as providers reported them; newest day first."""
        require_right(self.scope, READ)
        return await self._components.engine.usage(
            self.scope,
            optional_moment("since", since),
            optional_moment("until", until),
            clean_limit("limit", limit, MAX_READ),
        )

    async def budgets(self, *, user: str | None = None, key: str | None = None) -> list[BudgetLine]:
        """Return the limits of the budgets that hold for this scope, and how much of each is used.

        - `user`, `key`: the budgets of another user, or of an API key by its id. Needs the right `admin`.
        """
        require_right(self.scope, READ)
        if user not in (None, self.scope.user) or key not in (None, self.scope.key):
            require_right(self.scope, ADMIN)
        user, key = optional_name("user", user), optional_name("key", key)
        payer = Payer(self.scope.tenant, user or self.scope.user, key or self.scope.key)
        return await self._components.budgets.lines(payer)

    async def set_budget(self, kind: BudgetKind, name: str | None = None, **limits: Unpack[BudgetLimits]) -> None:
        """Set the budget of one user or API key, or of the tenant, in place of the default. Needs the right `admin`.

        Without limits the default holds again. The tenant's own budget is set by the application, not by a user or a
        key. Other processes use the new limits within five seconds.

        - `kind`: `tenant`, `user` or `key`; `name`: the user's name, or the id of the key.
        """
        require_right(self.scope, ADMIN)
        whose, called = clean_subject(kind, name)
        if whose == "tenant" and (self.scope.user is not None or self.scope.key is not None):
            raise InvalidInput("kind", "the tenant's own budget is set by the application: use `palaver budgets set`")
        cleaned = clean_limits("limits", limits)
        await self._components.engine.put_budget(self.scope, StoredBudget(whose, called, cleaned))
        self._components.budgets.changed(self.scope.tenant)

    # ---- maintenance

    async def expire(self) -> list[str]:
        """Delete the conversations whose time to live is over, and return their ids."""
        return await self._maintenance.expire()

    async def sweep(self, *, retention_minutes: float | None = None) -> Swept:
        """Delete what has outlived its time: expired conversations, streams without a writer, files that no turn has
        taken for a day and, if `retention_minutes` is given, every older turn. Safe to run in several places at once.
        """
        return await self._maintenance.sweep(retention_minutes)

    async def erase_user(self, user: str, *, audit_key: bytes | None = None) -> ErasureReceipt:
        """Erase a person for good, and return a receipt that lists what was erased. Needs the right `admin`.

        Deletes the conversations that the user owns, forgets the user's turns elsewhere, and removes files, notes, API
        keys, the place among participants, and the name in titles, metadata and logs. The words of others
        about the person stay. Safe to repeat; after a crash, the same call or a sweep continues it.

        - `audit_key`: the key that signs the receipt, as for seals.
        """
        return await self._eraser.erase_user(user, audit_key)

    async def check_erasure(self, receipt: ErasureReceipt, *, audit_key: bytes | None = None) -> None:
        """Raise `VerificationFailed` if a receipt was changed, or if anything that it lists is there again.

        - `audit_key`: also check that the receipt was signed with this key.
        """
        await self._eraser.check(receipt, audit_key)

    async def settle(self) -> None:
        """Wait until all background work is done."""
        await self._maintenance.settle()

    async def stats(self) -> Stats:
        """Return counts of what this scope may see, and figures about the storage."""
        require_right(self.scope, READ)
        return await self._components.engine.stats(self.scope)

    async def restore(self, records: Sequence[Record], files: Mapping[str, bytes]) -> Conversation | None:
        """Import an exported conversation, exactly as it was. Returns None when it is stored already.

        Persons who were erased here are erased from it; the conversation of such a person raises `ConversationGone`.
        """
        require_right(self.scope, WRITE, ADMIN)
        records = [_with_own_path(record, records[0].row["id"]) for record in records]
        rows = [record.row for record in records if record.kind == "attachment"]
        contents = {row["path"]: files[row["id"]] for row in rows}
        async with self._eraser.importing(records), put_blobs(self._components.blobs, contents) as undo:
            info = await self._components.engine.restore(self.scope, records)
            if info is None:
                await undo()
        return None if info is None else await self.get(info.id)


def _with_own_path(record: Record, conversation: str) -> Record:
    """Give an imported file a new path, so that it never overwrites one that is stored already."""
    if record.kind != "attachment":
        return record
    row = record.row
    return Record(record.kind, {**row, "path": blob_path(row["owner"], conversation, row["filename"])})
