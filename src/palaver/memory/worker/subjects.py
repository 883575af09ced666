"""The memory of one subject in the database: found, created and changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from palaver.core.identity import canonical_json, new_salt
from palaver.errors import ConversationNotFound
from palaver.memory.subjects import ItemChanges, ItemDraft, reconcile
from palaver.memory.worker.services import TRIES
from palaver.model import RIGHTS, ConversationInfo, MemoryItem, Scope
from palaver.ports.clock import Ids
from palaver.ports.engine import Engine
from palaver.ports.queries import ConversationChanges, ConversationSpec
from palaver.ports.subjects import EndedItem, ItemQuery, ItemsDraft, memory_place

Change = Callable[[list[MemoryItem]], ItemChanges]


@dataclass(frozen=True, slots=True)
class SubjectMemory:
    """Reads and changes the memory of one subject. Whether the caller may do so is checked before."""

    engine: Engine
    scope: Scope
    ids: Ids
    kind: str
    id: str

    @property
    def writing(self) -> Scope:
        """The scope that creates the log of a memory: memories of others are created by the application."""
        return Scope(self.scope.tenant, self.scope.user, frozenset(RIGHTS), "tenant")

    async def find(self) -> ConversationInfo | None:
        """Return the conversation that holds the log of the memory; None if nothing was ever remembered."""
        try:
            return await self.engine.find_conversation(self.scope, *memory_place(self.kind, self.id))
        except ConversationNotFound:
            return None

    async def open(self) -> ConversationInfo:
        """Return that conversation, and create it if there is none."""
        found = await self.find()
        if found is not None:
            return found
        owner, key = memory_place(self.kind, self.id)
        metadata = canonical_json({"subject": self.kind, "name": self.id})
        spec = ConversationSpec(id=self.ids(), owner=owner, key=key, metadata=metadata, salt=new_salt())
        return await self.engine.open_conversation(self.writing, spec)

    async def change(self, event: str, make: Change) -> ItemChanges:
        """Read all items, let `make` say what changes, and store that; again if another process changed them since."""
        everything = ItemQuery(status=None, include_ended=True)
        for _ in range(TRIES):
            info = await self.engine.conversation(self.writing, (await self.open()).id)
            changes = make(await self.engine.items(self.writing, info.id, everything))
            if not changes:
                return changes
            draft = as_draft(event, changes, info.last_event)
            added = await self.engine.put_items(self.writing, info.id, draft)
            if added is not None:
                return replace(changes, new={id: item for id, item in changes.new.items() if id in added})
        raise RuntimeError("the memory keeps changing")

    async def learn(self, drafts: Iterable[ItemDraft]) -> ItemChanges:
        """Store what turns say, against what is known."""
        wanted = list(drafts)
        return await self.change("learn", lambda known: reconcile(known, wanted, self.ids)) if wanted else ItemChanges()

    async def set_metadata(self, values: Mapping[str, object]) -> ConversationInfo:
        """Change fields of the metadata of the log: who may read and write, and whether the person agreed."""
        info = await self.open()
        metadata = {**info.metadata, **values}
        people = {*_names(metadata.get("readers")), *_names(metadata.get("writers"))}
        changes = ConversationChanges(
            fields=frozenset({"metadata", "participants"}),
            metadata=canonical_json(metadata),
            participants=tuple(sorted(people)),
            salt=new_salt(),
        )
        return await self.engine.update(self.writing, info.id, changes)


def _names(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list | tuple) else []


def as_draft(event: str, changes: ItemChanges, after: int) -> ItemsDraft:
    """Return changes as the engine takes them."""
    return ItemsDraft(
        event=event,
        new=tuple(changes.new.values()),
        ended=tuple(EndedItem(id, at, by) for id, at, by in changes.ended),
        approved=tuple(changes.approved),
        sources=tuple(changes.sources),
        after=after,
    )
