"""An open database, used with one scope. It returns conversations."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from palaver.conversations.arguments import MAX_READ, event_query, optional_moment
from palaver.conversations.attachments import put_blobs
from palaver.conversations.components import Components
from palaver.conversations.conversation import Conversation
from palaver.conversations.details import clean_scope
from palaver.conversations.directory import Directory
from palaver.conversations.emptiness import EmptyResults
from palaver.conversations.erasure import Eraser
from palaver.conversations.maintenance import Maintenance
from palaver.conversations.method_hints import OF_STORE, missing_attribute
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
    """An open database, used with one scope: a tenant, a user and rights. `palaver.open(url)` returns it."""

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

    if not TYPE_CHECKING:  # type checkers know that these names do not exist

        def __getattr__(self, name: str) -> object:
            raise missing_attribute(self, name, OF_STORE)

    async def aclose(self) -> None:
        """Close the database for this store and all stores made from it. Later calls raise `StoreClosed`."""
        await self._components.lifetime.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def scoped(self, scope: Scope) -> Store:
        """Return a store for another scope on the same database. On Supabase, use `signed_in`."""
        engine = self._components.engine
        if isinstance(engine, TokenEngine) and not engine.is_service:
            raise InvalidInput("scope", "on Supabase the token decides who the caller is: use store.signed_in(token)")
        return Store(self._components, clean_scope(scope), self._sessions)

    async def signed_in(self, token: Token) -> Store:
        """Return a store for the user of this token, in the same Supabase project.

        The token is sent only with the requests of the returned store. For sessions that are renewed, pass a function
        that returns the current token; it is called before each request.
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
        """Return the conversation with this key, and create it if it does not exist. Without a key, create a new one.

        The key is a name that your application chooses, such as `support/42`. The options other than `owner` apply only
        if the conversation is created. If it exists and one of the given `settings` has another value there,
        `SettingsConflict` is raised; use `Conversation.update` to change settings.

        - `owner`: the user who owns the conversation; by default the user of the store. Another user's name needs the
          right `admin`.
        """
        return self._open(await self._directory.open(key, owner, fields))

    async def find(self, key: str, *, owner: str | None = None) -> Conversation:
        """Return the conversation with this key. Raises `ConversationNotFound` if it does not exist.

        - `owner`: the user who owns the conversation, as for `conversation`.
        """
        return self._open(await self._directory.find(key, owner))

    async def get(self, id: str) -> Conversation:
        """Return the conversation with this id. To look up a key, use `find`."""
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
        """Return a page of the conversations that this scope may see, the most recently changed first.

        - `owner`, `workspace`, `agent`: only conversations with this owner, workspace or agent.
        - `kind`: only `talk`, `state` or `items` (see `ConversationSettings`); None for all kinds.
        - `limit`: the maximum number of conversations on the page.
        - `cursor`: `page.cursor` of the page before, to get the next one.
        - `where`: conditions on metadata, owner or participants, and last change; see `ConversationWhere`.
        """
        return await self._directory.page(
            owner=owner, workspace=workspace, agent=agent, kind=kind, limit=limit, cursor=cursor, where=where
        )

    async def search(self, text: str, *, limit: int = 20, where: Where | None = None) -> Results[ConversationMatch]:
        """Return the conversations that contain these words in their title or text. The last word may be a prefix.

        With `where`, the search covers only turns that meet the conditions (see `Where`), and no titles.
        """
        return await self._directory.search(text, limit=limit, where=where)

    # ---- subjects

    def person(self, id: str) -> Subject:
        """Return the memory of a person, which all conversations of that person share. Not awaited."""
        return Subject(self._components, self.scope, PERSON, id)

    def subject(self, kind: str, id: str) -> Subject:
        """Return the memory of a subject of any other kind, such as a project, a team or a product. Not awaited."""
        return Subject(self._components, self.scope, kind, id)

    # ---- answers

    async def generate(
        self,
        conversation: Conversation | str,
        message: ContentInput | None = None,
        **options: Unpack[GenerateOptions],
    ) -> Turn:
        """Call `Conversation.generate` on the conversation with this id or key. A new key creates one."""
        return await (await self._get_or_create(conversation)).generate(message, **options)

    async def generate_stream(
        self,
        conversation: Conversation | str,
        message: ContentInput | None = None,
        **options: Unpack[GenerateOptions],
    ) -> AsyncGenerator[GenerateEvent]:
        """Call `Conversation.generate_stream` on the conversation with this id or key. A new key creates one."""
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
        """Return the recorded model calls of the conversation with this id or key. See `Conversation.requests`."""
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
        """Return the log of the conversation with this id. The log of a deleted one ends with its tombstone.

        The arguments are those of `Conversation.audit`.
        """
        require_right(self.scope, READ)
        query = event_query(after, limit, kinds, actors, turn, since, until)
        return await self._components.engine.events(self.scope, clean_name("conversation", conversation), query)

    async def usage(
        self, *, since: Moment | None = None, until: Moment | None = None, limit: int = 10_000
    ) -> list[UsageLine]:
        """Return the token usage by day (UTC), owner and model, as reported by the providers; the newest day first."""
        require_right(self.scope, READ)
        return await self._components.engine.usage(
            self.scope,
            optional_moment("since", since),
            optional_moment("until", until),
            clean_limit("limit", limit, MAX_READ),
        )

    async def budgets(self, *, user: str | None = None, key: str | None = None) -> list[BudgetLine]:
        """Return the limits of the budgets that apply to this scope, and how much of each is used.

        - `user`, `key`: another user's name, or the id of an API key, to see those budgets. Needs the right `admin`.
        """
        require_right(self.scope, READ)
        if user not in (None, self.scope.user) or key not in (None, self.scope.key):
            require_right(self.scope, ADMIN)
        user, key = optional_name("user", user), optional_name("key", key)
        payer = Payer(self.scope.tenant, user or self.scope.user, key or self.scope.key)
        return await self._components.budgets.lines(payer)

    async def set_budget(self, kind: BudgetKind, name: str | None = None, **limits: Unpack[BudgetLimits]) -> None:
        """Set the budget of a user, an API key or the tenant, in place of the default. Needs the right `admin`.

        Only the application, a store without a user and a key, can set the tenant's budget. Other processes apply the
        new limits within five seconds.

        - `kind`: `tenant`, `user` or `key`.
        - `name`: the user's name, or the id of the key; None for the tenant.
        - `limits`: the limits; see `BudgetLimits`. Without any, the default applies again.
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
        """Delete the conversations whose time to live (`ttl`) is over, and return their ids."""
        return await self._maintenance.expire()

    async def sweep(self, *, retention_minutes: float | None = None) -> Swept:
        """Delete expired data, and return counts of what was removed. Several processes may sweep at the same time.

        A sweep deletes expired conversations and files that were not attached to a turn within a day. It aborts streams
        without a writer, and continues interrupted erasures.

        - `retention_minutes`: also forget every turn that is older than this.
        """
        return await self._maintenance.sweep(retention_minutes)

    async def erase_user(self, user: str, *, audit_key: bytes | None = None) -> ErasureReceipt:
        """Permanently erase a user's data, and return a receipt that lists what was erased. Needs the right `admin`.

        This deletes the conversations that the user owns, and forgets the user's turns in other conversations. It also
        removes the user's files, notes and API keys, removes the user from participants, and removes the name from
        titles, metadata and logs. Text that others wrote about the person stays. The call can be repeated. After a
        crash, the same call or a sweep completes it.

        - `audit_key`: the key that signs the receipt, as for the seals of the log.
        """
        return await self._eraser.erase_user(user, audit_key)

    async def check_erasure(self, receipt: ErasureReceipt, *, audit_key: bytes | None = None) -> None:
        """Raise `VerificationFailed` if a receipt was changed, or if anything that it lists is stored again.

        - `audit_key`: also check that the receipt was signed with this key.
        """
        await self._eraser.check(receipt, audit_key)

    async def settle(self) -> None:
        """Run the waiting background jobs of the tenant, and return when all are done."""
        await self._maintenance.settle()

    async def stats(self) -> Stats:
        """Return counts of the data that this scope may see, and sizes of the storage."""
        require_right(self.scope, READ)
        return await self._components.engine.stats(self.scope)

    async def restore(self, records: Sequence[Record], files: Mapping[str, bytes]) -> Conversation | None:
        """Import an exported conversation unchanged, and return it; None if it is stored already. Needs `admin`.

        Data of persons who were erased in this store is left out. If such a person owns the conversation,
        `ConversationGone` is raised.

        - `records`: the rows that `Conversation.records` yielded.
        - `files`: the bytes of each attachment, by its id.
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
