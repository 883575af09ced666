"""LangGraph: a store of items with semantic search.

    memories = PalaverStore(store)
    graph = builder.compile(checkpointer=PalaverSaver(store), store=memories)

A namespace is one conversation of the kind `items`: what is searched is what Palaver recalls, by meaning and by words,
with its own embedder. Replaced and deleted items are forgotten permanently. Needs `pip install palaver[langgraph]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec
from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    get_text_at_path,
    tokenize_path,
    validate_op_namespace,
)

from palaver import ConversationGone, ConversationNotFound
from palaver.adapters.bridge import AnyStore, Bridge
from palaver.adapters.state_log import Entry, StateLog, Value, log_key
from palaver.adapters.thread import own_score

AGENT = "langgraph-store"
MAX_NAMESPACES = 1_000  # whose index is kept in memory
MOST_HITS = 1_000
MORE = 20  # further hits that are asked for when a filter leaves some out
Namespace = tuple[str, ...]


@dataclass(slots=True)
class NamespaceIndex:
    """Where the items of a namespace are stored. Values are read when they are needed."""

    namespace: Namespace
    log: StateLog
    entries: dict[str, list[Entry]] = field(default_factory=dict)  # by key; the last one counts

    async def refresh(self) -> None:
        async with self.log.lock:
            for entry in await self.log.read_new():
                self.entries.setdefault(str(entry.labels["key"]), []).append(entry)

    async def read(self, keys: Iterable[str]) -> dict[str, Item]:
        """Return items by their keys; those that were deleted since are left out."""
        wanted = {key: self.entries[key][-1] for key in keys if key in self.entries}
        values = zip(wanted.items(), await self.log.read(wanted.values()), strict=True)
        found = {key: self._item(entry, data) for (key, entry), data in values if data is not None}
        for key in wanted.keys() - found.keys():
            self.entries.pop(key, None)
        return found

    def _item(self, entry: Entry, data: bytes) -> Item:
        created = entry.labels.get("created")
        return Item(
            value=msgspec.json.decode(data),
            key=str(entry.labels["key"]),
            namespace=self.namespace,
            created_at=datetime.fromisoformat(created) if created else entry.stored,
            updated_at=entry.stored,
        )

    async def put(self, key: str, value: Mapping[str, Any], text: str) -> None:
        """Store a new version, then forget the old ones."""
        before = self.entries.get(key, [])
        created = (before[0].labels.get("created") or before[0].stored.isoformat()) if before else None
        labels = {"key": key, **({"created": created} if created else {})}
        await self.log.append([Value(labels, msgspec.json.encode(value), text)])
        await self.log.forget(before)
        self.entries.pop(key, None)

    async def delete(self, key: str) -> None:
        await self.log.forget(self.entries.pop(key, []))


class PalaverStore(BaseStore):
    """A LangGraph store that keeps items in a Palaver store.

    - `store`: of `palaver.open`, for the asynchronous methods, or of `palaver.sync.open`, for both.
    - `fields`: the parts of a value that are searched, as paths such as `text` or `chapters[*].title`; all by default.
    - `prefix`: begins the keys of the conversations.
    """

    def __init__(self, store: AnyStore, *, fields: Sequence[str] = ("$",), prefix: str = AGENT) -> None:
        self._bridge, self._fields, self._prefix = Bridge(store), tuple(fields), prefix
        self._namespaces: dict[Namespace, NamespaceIndex] = {}

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        return self._bridge.call(self._batch(list(ops)))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        return await self._bridge.run(self._batch(list(ops)))

    async def _batch(self, ops: list[Op]) -> list[Result]:
        """Answer the reading operations from before the writes, as LangGraph's own stores do."""
        for op in ops:
            validate_op_namespace(op)
        results: list[Result] = [None if isinstance(op, PutOp) else await self._answer(op) for op in ops]
        writes = {(op.namespace, op.key): op for op in ops if isinstance(op, PutOp)}  # the last one counts
        for op in writes.values():
            await self._put(op)
        return results

    async def _answer(self, op: Op) -> Result:
        if isinstance(op, GetOp):
            index = await self._index(op.namespace)
            return (await index.read([op.key])).get(op.key) if index else None
        if isinstance(op, SearchOp):
            return await self._search(op)
        if isinstance(op, ListNamespacesOp):
            return await self._list(op)
        raise ValueError(f"unknown operation {type(op).__name__}")

    # ---- writing

    async def _put(self, op: PutOp) -> None:
        index = await self._index(op.namespace)
        if op.value is None:
            if index is not None:
                await index.delete(op.key)
            return
        index = index or await self._open(op.namespace)
        text = "" if op.index is False else _text(op.value, self._fields if op.index is None else op.index)
        try:
            await index.put(op.key, op.value, text)
        except (ConversationGone, ConversationNotFound):  # deleted since
            self._namespaces.pop(op.namespace, None)
            await (await self._open(op.namespace)).put(op.key, op.value, text)

    # ---- searching

    async def _search(self, op: SearchOp) -> list[SearchItem]:
        """Rank the items that fit the query first; others with the prefix follow, those changed last first."""
        end, prefix = op.offset + op.limit, tuple(op.namespace_prefix)
        spaces = [one for one in await self._all() if one[: len(prefix)] == prefix]
        indexes = [index for one in spaces if (index := await self._index(one)) is not None]
        ranked = [hit for index in indexes for hit in await self._ranked(index, op)] if op.query else []
        ranked.sort(key=lambda hit: hit.score or 0.0, reverse=True)
        if len(ranked) < end:
            known = {(hit.namespace, hit.key) for hit in ranked}
            rest = [item for index in indexes for item in (await index.read(list(index.entries))).values()]
            others = [one for one in rest if (one.namespace, one.key) not in known and _fits(one.value, op.filter)]
            others.sort(key=lambda one: one.updated_at, reverse=True)
            ranked += [_search_item(one, None) for one in others]
        return ranked[op.offset : end]

    async def _ranked(self, index: NamespaceIndex, op: SearchOp) -> list[SearchItem]:
        """Return the best items of one namespace: enough for the page, unless there are no more."""
        keys = {entries[-1].turn: key for key, entries in index.entries.items()}
        asked = op.offset + op.limit
        while True:
            hits = await index.log.talk.recall(op.query or "", min(asked, MOST_HITS), include_facts=False)
            scores = {keys[hit.turn.id]: own_score(hit) for hit in hits if hit.turn and hit.turn.id in keys}
            items = await index.read(scores)
            found = [_search_item(item, scores[key]) for key, item in items.items() if _fits(item.value, op.filter)]
            if len(found) >= op.offset + op.limit or len(hits) < asked or asked >= MOST_HITS:
                return found
            asked = asked * 2 + MORE

    # ---- namespaces

    async def _list(self, op: ListNamespacesOp) -> list[Namespace]:
        found = [one for one in await self._all() if all(_matches(one, rule) for rule in op.match_conditions or ())]
        cut = sorted({one[: op.max_depth] if op.max_depth is not None else one for one in found})
        return cut[op.offset : op.offset + op.limit]

    async def _all(self) -> list[Namespace]:
        """Return the namespaces that have items."""
        found: list[Namespace] = []
        cursor = None
        while True:
            page = await self._bridge.store.conversations(kind="items", agent=AGENT, limit=1_000, cursor=cursor)
            for info in page.items:
                space = tuple(info.metadata.get("namespace") or ())
                if info.turn_count and info.key == self._key(space):
                    found.append(space)
            cursor = page.cursor
            if cursor is None:
                return found

    async def _index(self, namespace: Namespace) -> NamespaceIndex | None:
        """Return the index of a namespace, up to date; None if nothing was ever stored there."""
        index = self._namespaces.get(namespace)
        if index is not None:
            try:
                await index.refresh()
                return index
            except (ConversationGone, ConversationNotFound):
                self._namespaces.pop(namespace, None)
        log = await StateLog.find(self._bridge.store, self._key(namespace))
        if log is None:
            return None
        index = self._keep(NamespaceIndex(namespace, log))
        await index.refresh()
        return index

    async def _open(self, namespace: Namespace) -> NamespaceIndex:
        metadata = {"namespace": list(namespace)}
        log = await StateLog.open(self._bridge.store, self._key(namespace), AGENT, metadata, "items")
        return self._keep(NamespaceIndex(namespace, log))

    def _keep(self, index: NamespaceIndex) -> NamespaceIndex:
        if len(self._namespaces) >= MAX_NAMESPACES:
            self._namespaces.pop(next(iter(self._namespaces)))
        return self._namespaces.setdefault(index.namespace, index)

    def _key(self, namespace: Namespace) -> str:
        return log_key(self._prefix, "/".join(one.replace("%", "%25").replace("/", "%2F") for one in namespace))


def _text(value: Mapping[str, Any], fields: Sequence[str]) -> str:
    """Return the text that an item is found by."""
    found = [text for path in fields for text in get_text_at_path(value, path if path == "$" else tokenize_path(path))]
    return "\n".join(found).replace("\0", " ")


def _search_item(item: Item, score: float | None) -> SearchItem:
    return SearchItem(
        namespace=item.namespace,
        key=item.key,
        value=item.value,
        created_at=item.created_at,
        updated_at=item.updated_at,
        score=score,
    )


COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "$eq": lambda found, asked: found == asked,
    "$ne": lambda found, asked: found != asked,
    "$gt": lambda found, asked: _number(found) > _number(asked),
    "$gte": lambda found, asked: _number(found) >= _number(asked),
    "$lt": lambda found, asked: _number(found) < _number(asked),
    "$lte": lambda found, asked: _number(found) <= _number(asked),
}


def _number(value: Any) -> float:
    """Return a value as a number, as LangGraph's stores compare; one that is not a number fits no comparison."""
    try:
        return float(value)
    except (TypeError, ValueError):
        return float("nan")


def _fits(value: Mapping[str, Any], filter: Mapping[str, Any] | None) -> bool:
    return all(_compare(value.get(name), asked) for name, asked in (filter or {}).items())


def _compare(found: Any, asked: Any) -> bool:
    if not isinstance(asked, Mapping) or not any(str(name).startswith("$") for name in asked):
        return bool(found == asked)
    unknown = [name for name in asked if name not in COMPARISONS]
    if unknown:
        raise ValueError(f"unknown operator {unknown[0]!r}; known operators: {', '.join(COMPARISONS)}")
    return all(COMPARISONS[name](found, one) for name, one in asked.items())


def _matches(namespace: Namespace, rule: MatchCondition) -> bool:
    path = tuple(rule.path)
    if len(path) > len(namespace):
        return False
    part = namespace[: len(path)] if rule.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return all(asked in ("*", found) for asked, found in zip(path, part, strict=True))
