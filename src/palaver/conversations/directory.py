"""The conversations that one scope can see: creating, finding, listing and searching them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from palaver.conversations.arguments import MAX_READ
from palaver.conversations.details import clean_changes, clean_owner
from palaver.conversations.emptiness import EmptyResults
from palaver.conversations.redaction import redact_details
from palaver.core.budgets import Payer
from palaver.core.filters import ConversationWhere, Where, clean_conversation_where, clean_where
from palaver.core.identity import is_id
from palaver.core.pagination import decode_cursor, encode_cursor
from palaver.core.rights import require_right
from palaver.core.validation import clean_actor, clean_limit, clean_name, clean_text, optional_name
from palaver.errors import ConversationNotFound, InvalidInput, SettingsConflict
from palaver.memory.settings import KINDS, Kind, differing, kind_of
from palaver.model import ADMIN, READ, WRITE, ConversationInfo, ConversationMatch, Page, Results, Scope
from palaver.models.budgets import Budgets
from palaver.ports.clock import Ids
from palaver.ports.engine import ConversationStore
from palaver.ports.queries import ConversationSpec, Listing, SearchQuery
from palaver.recall.emptiness import NOTHING_ASKED
from palaver.recall.terms import MAX_QUERY, last_word, title_terms

if TYPE_CHECKING:
    from palaver.redaction import Redactor

MAX_STEMS = 64


@dataclass(frozen=True, slots=True)
class Directory:
    """Finds conversations, within what the scope may see."""

    engine: ConversationStore
    scope: Scope
    ids: Ids
    redactor: Redactor
    budgets: Budgets
    empties: EmptyResults

    async def open(self, key: str | None, owner: str | None, fields: Mapping[str, object]) -> ConversationInfo:
        require_right(self.scope, WRITE)
        owner = self._new_owner(owner)
        changes = clean_changes(await self._redacted(key, owner, fields))
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
        await self._take_room(owner, spec.key)
        info = await self.engine.open_conversation(self.scope, spec)
        _require_settings(info, fields.get("settings"))
        return info

    async def _take_room(self, owner: str, key: str | None) -> None:
        """Count a new conversation in the budgets of its owner, if they limit conversations."""
        payer = Payer(self.scope.tenant, owner or None, self.scope.key)
        if await self.budgets.limits_conversations(payer) and (key is None or not await self._exists(owner, key)):
            await self.budgets.take_room(payer, conversations=1)

    async def _redacted(self, key: str | None, owner: str, fields: Mapping[str, object]) -> Mapping[str, object]:
        """Redact the fields of a new conversation. One that exists already is opened as it is."""
        try:
            clean = await redact_details({**fields, "owner": owner}, None, self.redactor)
        except InvalidInput:
            if not isinstance(key, str) or not await self._exists(owner, key):
                raise
            return fields
        return {name: value for name, value in clean.items() if name != "owner"}

    async def _exists(self, owner: str, key: str) -> bool:
        try:
            await self.engine.find_conversation(self.scope, owner, clean_name("key", key))
        except ConversationNotFound:
            return False
        return True

    def _new_owner(self, owner: str | None) -> str:
        """Return who will own a new conversation: the scope's user, or, for an admin, the owner that is given."""
        if self.scope.user is not None and owner in (None, self.scope.user):
            return self.scope.user
        require_right(self.scope, ADMIN)
        return "" if owner is None else clean_actor("owner", owner)

    async def find(self, key: str, owner: str | None) -> ConversationInfo:
        require_right(self.scope, READ)
        owner = (self.scope.user or "") if owner is None else clean_owner(owner)
        return await self.engine.find_conversation(self.scope, owner, clean_name("key", key))

    async def get(self, id: str) -> ConversationInfo:
        require_right(self.scope, READ)
        id = clean_name("id", id)
        try:
            return await self.engine.conversation(self.scope, id)
        except ConversationNotFound:
            if is_id(id):
                raise
            raise ConversationNotFound(id, "get takes an id, use find(key)") from None

    async def get_or_find(self, id_or_key: str) -> ConversationInfo:
        try:
            return await self.get(id_or_key)
        except ConversationNotFound:
            return await self.find(id_or_key, None)

    async def page(
        self,
        *,
        owner: str | None,
        workspace: str | None,
        agent: str | None,
        kind: Kind | None,
        limit: int,
        cursor: str | None,
        where: ConversationWhere | None,
    ) -> Page:
        require_right(self.scope, READ)
        wanted = clean_conversation_where(where)
        limit = clean_limit("limit", limit, MAX_READ)
        if kind not in (None, *KINDS):
            raise InvalidInput("kind", f"must be one of {', '.join(KINDS)}, or None for all")
        listing = Listing(
            limit=limit + 1,  # one more than asked for: it exists if there is a next page
            owner=None if owner is None else clean_owner(owner),
            workspace=optional_name("workspace", workspace),
            agent=optional_name("agent", agent),
            before=None if cursor is None else decode_cursor(cursor),
            filter=wanted,
        )
        found = await self._of_kind(listing, kind)
        items = tuple(found[:limit])
        if not items and limit:
            filtered = (owner, workspace, agent, kind) != (None,) * 4 or not wanted.is_empty
            empty = await self.empties.in_scope(self.scope, filtered=filtered)
            self.empties.note("list", empty)
            return Page((), None, empty)
        return Page(items, encode_cursor(items[-1]) if len(found) > limit and items else None)

    async def _of_kind(self, listing: Listing, kind: Kind | None) -> list[ConversationInfo]:
        """Return conversations of one kind. Others are skipped, and do not count towards the limit."""
        found: list[ConversationInfo] = []
        wanted = listing.limit
        while True:
            batch = await self.engine.conversations(self.scope, listing)
            found += [one for one in batch if kind in (None, kind_of(one.settings))]
            if len(found) >= wanted or len(batch) < listing.limit:
                return found[:wanted]
            # Many of another kind may follow each other, such as checkpoints: skip them in larger steps.
            larger = min(max(listing.limit * 2, 200), MAX_READ)
            listing = replace(listing, before=decode_cursor(encode_cursor(batch[-1])), limit=larger)

    async def search(self, text: str, *, limit: int = 20, where: Where | None = None) -> Results[ConversationMatch]:
        require_right(self.scope, READ)
        wanted = clean_where(where)
        text = clean_text("text", text)[:MAX_QUERY]
        stems = list(dict.fromkeys(title_terms(text)))[:MAX_STEMS]
        if not stems:
            return self.empties.report("search", (), NOTHING_ASKED)
        limit = clean_limit("limit", limit, 1_000)
        query = SearchQuery(stems=tuple(stems), prefix=last_word(text), limit=limit, filter=wanted)
        found = await self.engine.search(self.scope, query)
        empty = None if found else await self.empties.in_scope(self.scope, filtered=False, searched=True)
        return self.empties.report("search", found, empty)


def _require_settings(info: ConversationInfo, given: object) -> None:
    """Raise `SettingsConflict` if an existing conversation has different settings.

    They are not applied: `retention` deletes text, and a key that is used by accident would delete that of
    another conversation. A program may open a conversation with the same settings each time.
    """
    if isinstance(given, Mapping) and (field := differing(given, info.settings)) is not None:
        raise SettingsConflict(info.id, field)
