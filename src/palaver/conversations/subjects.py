"""The memory of a subject: a person, or anything else that an application remembers something of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec

from palaver.conversations.arguments import clean_names
from palaver.conversations.components import Components
from palaver.conversations.conversation import Conversation
from palaver.conversations.recall import RecallQuery, find_hits
from palaver.core.identity import micros, moment
from palaver.core.rights import require_right
from palaver.core.turn_options import Moment
from palaver.core.validation import clean_limit, clean_moment, clean_name, clean_text
from palaver.errors import InvalidInput, PermissionDenied, SubjectNotFound
from palaver.memory.shapes import SubjectShape
from palaver.memory.subjects import (
    MAX_TEXT,
    ItemChanges,
    ItemDraft,
    believed_at,
    heading,
    line_of,
    profile_lines,
    rank,
    replace_with,
    statements_of,
    versions_of,
)
from palaver.memory.worker.subjects import SubjectMemory
from palaver.model import (
    ADMIN,
    PERSON,
    READ,
    WRITE,
    ConversationInfo,
    Event,
    ItemStatus,
    MemoryItem,
    RecallHit,
    Scope,
    Verified,
)
from palaver.ports.queries import Listing
from palaver.ports.recall import RecallScope
from palaver.ports.subjects import ItemQuery

APPLICATION = "application"  # the author of items that no user wrote
PROFILE_TOKENS = 600
PROFILE_ITEMS = 150  # the newest ones that a profile is made from
PROFILE_WISHES = 50
BULLET, HEADING, SMALLEST = 2, 4, 6  # tokens of a bullet and a heading, and of the shortest line
MAX_ITEMS = 10_000
LEARN_PAGE = 100  # conversations


class Subject:
    """The memory of one subject. Get it from `store.person("ada")` or `store.subject("project", "apollo")`.

    The memory of a person is open to that person, to the application and to admins. The memory of any other subject is
    open to the application, to admins, and to the users that `share` names.
    """

    def __init__(self, components: Components, scope: Scope, kind: str, id: str) -> None:
        self._components, self._scope = components, scope
        self.kind, self.id = clean_name("kind", kind), clean_name("id", id)
        if "/" in self.kind:
            raise InvalidInput("kind", "must not contain a slash")
        self._memory = SubjectMemory(components.engine, scope, components.ids, self.kind, self.id)

    def __repr__(self) -> str:
        return f"<Subject {self.kind} {self.id!r}>"

    # ---- reading

    async def facts(
        self,
        *,
        kind: str | None = None,
        as_of: Moment | None = None,
        include_ended: bool = False,
        status: ItemStatus | None = "approved",
        limit: int = MAX_ITEMS,
    ) -> list[MemoryItem]:
        """Return the items of the memory, the newest first.

        - `kind`: only items of this kind: `fact`, `preference`, `instruction`, `goal`, or a field that the application
          defines.
        - `as_of`: the items that were part of the memory at this moment.
        - `include_ended`: also items that are no longer true or were replaced.
        - `status`: `approved` (the default), `proposed`, or None for both.
        - `limit`: the maximum number of items to return.
        """
        at = None if as_of is None else moment(clean_moment("as_of", as_of))
        query = ItemQuery(
            status=_clean_status(status),
            kind=None if kind is None else clean_name("kind", kind),
            include_ended=include_ended or at is not None,
            limit=clean_limit("limit", limit, MAX_ITEMS),
        )
        found = await self._read(query)
        return found if at is None else believed_at(found, at)

    async def proposals(self) -> list[MemoryItem]:
        """Return the proposed items: they come from sources that are not trusted, and need `approve` or `drop`."""
        return await self.facts(status="proposed")

    async def fact_history(self, item: MemoryItem | str | None = None) -> list[MemoryItem]:
        """Return all items, the oldest first, including those that ended but not those that were dropped.

        - `item`: return only the versions of this item.
        """
        found = await self._read(ItemQuery(status=None, include_ended=True))
        if item is None:
            return found[::-1]
        versions = versions_of(found, _item_id(item))
        if not versions:
            raise SubjectNotFound(self.kind, self.id, _item_id(item))
        return versions

    async def profile(self, *, token_budget: int = PROFILE_TOKENS, as_of: Moment | None = None) -> str:
        """Return the memory as a text: instructions, facts, preferences and open goals, with their sources.

        - `token_budget`: the maximum number of tokens of the text.
        - `as_of`: the memory as it was at this moment.
        """
        budget = clean_limit("token_budget", token_budget, 1_000_000)
        if as_of is not None:
            found = await self.facts(as_of=as_of)
        else:
            wishes = await self._read(ItemQuery(kind="instruction", limit=PROFILE_WISHES))
            newest = await self._read(ItemQuery(limit=PROFILE_ITEMS))
            found = list({item.id: item for item in (*wishes, *newest)}.values())
        return self._render(found, budget)

    def _render(self, items: Sequence[MemoryItem], budget: int) -> str:
        """Return the lines of as many items as fit, wishes first, then the newest, grouped by their kind."""
        count = self._components.contexts.counter
        chosen: list[MemoryItem] = []
        left = budget
        for item in sorted(items, key=lambda one: one.kind != "instruction"):
            cost = count(line_of(item)) + BULLET + (0 if any(one.kind == item.kind for one in chosen) else HEADING)
            if cost <= left:
                chosen.append(item)
                left -= cost
            if left < SMALLEST:
                break
        while chosen and count(_text_of(chosen)) > budget:
            chosen.pop()
        return _text_of(chosen)

    async def recall(self, query: str, *, k: int = 10) -> list[RecallHit]:
        """Return the items of this memory that are most relevant to `query`, at most `k`.

        For a person, the results also include turns of all conversations that the person may see.
        """
        await self._require_reader()
        text, most = clean_text("query", query), clean_limit("k", k, 1_000)
        hits = await self._item_hits(text, most)
        if self.kind == PERSON and text.strip() and most:
            theirs = Scope(self._scope.tenant, self.id, frozenset({READ}), "own")
            where = RecallQuery(text, most, RecallScope(), None, None, None, include_facts=False)
            hits += await find_hits(self._components.contexts.recall, theirs, where)
        return sorted(hits, key=lambda hit: -hit.relevance)[:most]

    async def _item_hits(self, query: str, k: int) -> list[RecallHit]:
        info = await self._memory.find()
        if info is None or not query.strip():
            return []
        engine = self._components.engine
        words = [
            (one.id, f"{one.subject} {one.predicate} {one.object}")
            for one in await engine.item_words(self._scope, info.id)
        ]
        scores = dict(rank(words, query, k))
        found = await engine.items(self._scope, info.id, ItemQuery(ids=tuple(scores)))
        return [RecallHit(score=scores[one.id], relevance=round(scores[one.id], 4), item=one) for one in found]

    async def _read(self, query: ItemQuery) -> list[MemoryItem]:
        info = await self._require_reader()
        return [] if info is None else await self._components.engine.items(self._scope, info.id, query)

    # ---- changing

    async def remember(
        self,
        text: str,
        *,
        kind: str = "fact",
        predicate: str = "",
        about: str | None = None,
        valid_from: Moment | None = None,
        valid_to: Moment | None = None,
    ) -> MemoryItem:
        """Add an item to the memory. Extraction never changes it.

        - `text`: a plain statement ("I live in Rome"), or the object of a fact that has a `predicate`.
        - `kind`: `fact` (the default), `preference`, `instruction`, `goal`, or a field that the application defines.
        - `predicate`, `about`: to give a fact in three parts: `about` (by default the subject itself), `predicate` and
          `text`.
        - `valid_from`, `valid_to`: the time in which the statement is true; by default from now on.
        """
        author = await self._require_writer()
        shape = self._components.worker.shapes.get(self.kind, SubjectShape())
        shape.check(clean_name("kind", kind), clean_text("text", text))
        draft = self._draft(text, kind, predicate, about, valid_from, valid_to, author)

        def add(known: list[MemoryItem]) -> ItemChanges:
            return replace_with(known, draft, self._new_id())

        changes = await self._memory.change("remember", add)
        if kind in shape.fields:
            await self._memory.set_metadata({"shape": shape.version})
        return await self._stored(next(iter(changes.new)))

    async def correct(
        self,
        item: MemoryItem | str,
        text: str,
        *,
        valid_from: Moment | None = None,
        valid_to: Moment | None = None,
    ) -> MemoryItem:
        """Replace an item with a corrected statement, and return the new item. Later extraction does not override it.

        - `valid_from`, `valid_to`: the time in which it is true; by default from the start of the old item, without an
          end.
        """
        author = await self._require_writer()
        wanted, words = _item_id(item), _clean_object(text)

        def change(known: list[MemoryItem]) -> ItemChanges:
            old = next((one for one in known if one.id == wanted), None)
            if old is None:
                raise SubjectNotFound(self.kind, self.id, wanted)
            now = self._components.clock.now()
            new = MemoryItem(
                id=self._new_id(),
                kind=old.kind,
                subject=old.subject,
                predicate=old.predicate,
                object=words,
                valid_from=_optional(valid_from, "valid_from") or old.valid_from,
                valid_to=_optional(valid_to, "valid_to"),
                learnt_at=now,
                by=author,
            )
            return ItemChanges(new={new.id: new}, ended=[(old.id, now, new.id)])

        changes = await self._memory.change("correct", change)
        return await self._stored(next(iter(changes.new)))

    async def approve(self, item: MemoryItem | str) -> MemoryItem:
        """Approve a proposed item, so that prompts may contain it."""
        await self._require_writer()
        wanted = _item_id(item)

        def change(known: list[MemoryItem]) -> ItemChanges:
            if all(one.id != wanted for one in known):
                raise SubjectNotFound(self.kind, self.id, wanted)
            return ItemChanges(approved=[wanted])

        await self._memory.change("approve", change)
        return await self._stored(wanted)

    async def _stored(self, id: str) -> MemoryItem:
        (found,) = await self._read(ItemQuery(status=None, include_ended=True, ids=(id,)))
        return found

    async def drop(self, item: MemoryItem | str) -> None:
        """Permanently delete an item. The items that it replaced become current again."""
        await self._require_writer()
        info = await self._memory.find()
        engine = self._components.engine
        wanted = _item_id(item)
        dropped = [] if info is None else await engine.drop_items(self._memory.writing, info.id, [wanted])
        if not dropped:
            raise SubjectNotFound(self.kind, self.id, wanted)
        await engine.scrub()

    async def forget(self) -> None:
        """Permanently delete the memory of the subject. Conversations are not deleted."""
        await self._require_writer()
        talk = await self._log()
        if talk is not None:
            await talk.forget()

    async def learn(self) -> int:
        """Read all conversations that the person owns again, in the background, and return their number.

        Use it for conversations that are older than the memory of persons. Items that were dropped may be found again.
        """
        await self._require_writer()
        engine, scope, found, before = self._components.engine, self._memory.writing, 0, None
        while self.kind == PERSON:
            page = await engine.conversations(scope, Listing(limit=LEARN_PAGE, owner=self.id, before=before))
            for info in page:
                await engine.add_job(scope, info.id, "person", 0)
            found += len(page)
            if len(page) < LEARN_PAGE:
                break
            before = (micros(page[-1].updated), page[-1].id)
        return found

    # ---- who may use it

    async def share(self, *, readers: Iterable[str] = (), writers: Iterable[str] = ()) -> None:
        """Set the users who may read the memory of a subject, and those who may change it. Not for persons."""
        if self._scope.user is not None:
            require_right(self._scope, ADMIN)
        if self.kind == PERSON:
            raise InvalidInput("kind", "the memory of a person is not shared with other users")
        lists = {"readers": sorted(clean_names("readers", readers)), "writers": sorted(clean_names("writers", writers))}
        await self._memory.set_metadata(lists)

    async def consent(self, agreed: bool) -> None:
        """Record whether the person agrees to being remembered, for stores with `consent="required"`."""
        await self._require_writer()
        await self._memory.set_metadata({"consent": bool(agreed)})

    # ---- proof

    async def export(self) -> dict[str, Any]:
        """Return the whole memory as JSON values, including ended and proposed items."""
        items = await self.fact_history()
        return {"kind": self.kind, "id": self.id, "items": [item_as_json(one) for one in items]}

    async def verify(self) -> Verified | None:
        """Check every item against the log of this memory. Returns None if there has never been an item."""
        await self._require_reader()
        talk = await self._log()
        return None if talk is None else await talk.verify()

    async def audit(self, *, after: int = 0, limit: int = 1_000) -> list[Event]:
        """Return the log of this memory: who changed it, and when. It has no content."""
        await self._require_reader()
        talk = await self._log()
        return [] if talk is None else await talk.audit(after=after, limit=limit)

    async def _log(self) -> Conversation | None:
        info = await self._memory.find()
        return None if info is None else Conversation(self._components, self._memory.writing, info)

    # ---- rights and arguments

    def _is_own(self) -> bool:
        scope = self._scope
        return scope.user is None or ADMIN in scope.rights or (self.kind == PERSON and scope.user == self.id)

    async def _require_reader(self) -> ConversationInfo | None:
        """Refuse other users, and return the log of the memory. Of other subjects, only participants see the log."""
        require_right(self._scope, READ)
        if self.kind == PERSON and not self._is_own():
            raise PermissionDenied(ADMIN)
        info = await self._memory.find()
        if info is None and not self._is_own():
            raise SubjectNotFound(self.kind, self.id)
        return info

    async def _require_writer(self) -> str:
        """Return the author of a change, or refuse it."""
        require_right(self._scope, WRITE)
        info = await self._require_reader()
        if not self._is_own() and self._scope.user not in ((info and info.metadata.get("writers")) or ()):
            raise PermissionDenied(ADMIN)
        return self._scope.user or APPLICATION

    def _new_id(self) -> str:
        return self._components.ids()

    def _draft(
        self,
        text: str,
        kind: str,
        predicate: str,
        about: str | None,
        valid_from: Moment | None,
        valid_to: Moment | None,
        author: str,
    ) -> ItemDraft:
        now = self._components.clock.now()
        given = ItemDraft(
            kind=kind,
            subject=self.id if about is None else clean_name("about", about),
            predicate=clean_text("predicate", predicate)[:MAX_TEXT] if predicate else "",
            object=_clean_object(text),
            confidence=1.0,
            valid_from=_optional(valid_from, "valid_from") or now,
            valid_to=_optional(valid_to, "valid_to"),
            learnt_at=now,
            source=None,
            origin="manual",
            by=author,
        )
        return given if given.predicate or given.kind != "fact" else statements_of(given)


def item_as_json(item: MemoryItem) -> dict[str, Any]:
    """Return an item as JSON values: the form that REST, MCP and exports have."""
    return {**msgspec.to_builtins(item), "text": item.text}


def _text_of(items: Sequence[MemoryItem]) -> str:
    lines: list[str] = []
    kind = None
    for item, line in profile_lines(items):
        if item.kind != kind:
            kind = item.kind
            lines.append(f"{heading(kind)}:")
        lines.append(f"- {line}")
    return "\n".join(lines)


def _item_id(item: MemoryItem | str) -> str:
    return item.id if isinstance(item, MemoryItem) else clean_name("item", item)


def _clean_object(text: str) -> str:
    words = " ".join(clean_text("text", text).split())
    if not words:
        raise InvalidInput("text", "must not be empty")
    if len(words) > MAX_TEXT:
        raise InvalidInput("text", f"has {len(words):,} characters, and at most {MAX_TEXT} are remembered: shorten it")
    return words


def _clean_status(status: object) -> ItemStatus | None:
    if status not in ("approved", "proposed", None):
        raise InvalidInput("status", "must be approved, proposed or None")
    return status


def _optional(at: Moment | None, field: str) -> datetime | None:
    return None if at is None else moment(clean_moment(field, at))
