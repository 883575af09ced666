"""Memory of subjects on Postgres: items and their sources. Each method is one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from palaver.core.identity import from_json, micros, moment, optional_micros
from palaver.engines.postgres.rpc import EnginePart
from palaver.engines.postgres.transports import as_json
from palaver.engines.rows import read_item
from palaver.model import ItemSource, MemoryItem, Scope
from palaver.ports.subjects import ALL_ITEMS, ItemQuery, ItemsDraft, ItemWords


class PostgresSubjects(EnginePart):
    async def items(self, scope: Scope, conversation: str, query: ItemQuery) -> list[MemoryItem]:
        rows = await self.read(
            "items",
            scope,
            conversation=conversation,
            status=query.status,
            kind=query.kind,
            include_ended=query.include_ended,
            ids=None if query.ids is None else list(query.ids),
            most=query.limit,
        )
        return [read_item(from_json(row["item"]), map(_read_source, from_json(row["sources"] or "[]"))) for row in rows]

    async def item_words(self, scope: Scope, conversation: str) -> list[ItemWords]:
        rows = await self.read("item_words", scope, conversation=conversation, most=ALL_ITEMS)
        return [ItemWords(*(row[name] for name in ItemWords._fields)) for row in rows]

    async def put_items(self, scope: Scope, conversation: str, draft: ItemsDraft) -> list[str] | None:
        changes = {
            "event": draft.event,
            "new": [_item_row(item) for item in draft.new],
            "ended": [(one.id, micros(one.at), one.by) for one in draft.ended],
            "approved": list(draft.approved),
            "sources": [(item, _source_row(source)) for item, source in draft.sources],
        }
        args = {"conversation": conversation, "changes": as_json(changes), "after": draft.after}
        (row,) = await self.write("put_items", scope, **args)
        return list(row["added"]) if row["stored"] else None

    async def drop_items(self, scope: Scope, conversation: str, ids: Sequence[str]) -> list[str]:
        (row,) = await self.write("drop_items", scope, conversation=conversation, ids=list(ids))
        return list(row["dropped"])

    async def items_of_author(self, scope: Scope, conversation: str, author: str) -> list[str]:
        rows = await self.read("items_of_author", scope, conversation=conversation, author=author)
        return [row["id"] for row in rows]


def _read_source(values: Sequence[object]) -> ItemSource:
    conversation, turn, said, title = values
    assert isinstance(said, int)
    return ItemSource(
        conversation=str(conversation),
        turn=str(turn),
        said=moment(said),
        title=None if title is None else str(title),
    )


def _source_row(source: ItemSource) -> dict[str, object]:
    return {"conversation": source.conversation, "turn": source.turn, "said": micros(source.said)}


def _item_row(item: MemoryItem) -> dict[str, object]:
    return {
        "id": item.id,
        "kind": item.kind,
        "subject": item.subject,
        "predicate": item.predicate,
        "object": item.object,
        "confidence": item.confidence,
        "valid_from": optional_micros(item.valid_from),
        "valid_to": optional_micros(item.valid_to),
        "learnt": micros(item.learnt_at),
        "origin": item.origin,
        "status": item.status,
        "said_by": item.said_by,
        "by": item.by,
        "sources": [_source_row(source) for source in item.sources],
    }
