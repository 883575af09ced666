"""LangGraph: a checkpointer over a store.

    saver = PalaverSaver(store)
    graph = builder.compile(checkpointer=saver)

A thread is one conversation of the kind `state`, with the checkpoints and their writes in the order in which they were
stored. It is verified, exported, erased and swept like any other, and nothing of it is indexed or shown to a model.
Needs `pip install palaver[langgraph]`.
"""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
    writes_sort_key,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from palaver import ConversationGone, ConversationNotFound
from palaver.adapters.bridge import AnyStore, Bridge
from palaver.adapters.state_log import BATCH_BYTES, Entry, StateLog, Value, log_key

AGENT = "langgraph"
MAX_THREADS = 1_000  # whose index is kept in memory
DELTA_COUNTERS = "counters_since_delta_snapshot"  # of a checkpoint's metadata: channels that need its ancestors

Place = tuple[str, str]  # namespace and id of a checkpoint
Typed = tuple[str, bytes]


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """Where a checkpoint is stored, its parent and its run."""

    entry: Entry
    parent: str | None
    run: str | None


@dataclass(frozen=True, slots=True)
class StoredWrite:
    """Where one write is stored: it is number `position` of the writes in its entry."""

    entry: Entry
    position: int
    order: tuple[str, str, int]


@dataclass(slots=True)
class ThreadIndex:
    """The places of a thread's checkpoints and writes. Values are read when they are needed."""

    log: StateLog
    checkpoints: dict[Place, StoredCheckpoint] = field(default_factory=dict)
    writes: dict[Place, dict[tuple[str, int], StoredWrite]] = field(default_factory=dict)

    async def refresh(self) -> None:
        """Read the entries that this or another process has stored since."""
        async with self.log.lock:
            for entry in await self.log.read_new():
                self._add(entry)

    def _add(self, entry: Entry) -> None:
        labels = entry.labels
        place = (labels["ns"], labels["id"])
        if labels["type"] == "checkpoint":
            self.checkpoints[place] = StoredCheckpoint(entry, labels.get("parent"), labels.get("run"))
            return
        known = self.writes.setdefault(place, {})
        for position, number in enumerate(labels["numbers"]):
            key = (labels["task"], number)
            if number < 0 or key not in known:  # special channels take the last write, others the first
                known[key] = StoredWrite(entry, position, writes_sort_key(labels["path"], *key))

    def latest(self, namespace: str) -> Place | None:
        return max((place for place in self.checkpoints if place[0] == namespace), default=None)

    def entries_of(self, place: Place) -> list[Entry]:
        """Return everything that is stored of a checkpoint."""
        stored = self.checkpoints.get(place)
        writes = {write.entry.turn: write.entry for write in self.writes.get(place, {}).values()}
        return [*([stored.entry] if stored else []), *writes.values()]

    def drop(self, place: Place) -> None:
        self.checkpoints.pop(place, None)
        self.writes.pop(place, None)


class PalaverSaver(BaseCheckpointSaver[str]):
    """A LangGraph checkpointer that keeps threads in a Palaver store.

    `store` is one of `palaver.open`, for `ainvoke` and the other asynchronous methods, or of `palaver.sync.open`, for
    both. `prefix` begins the keys of the conversations.
    """

    def __init__(self, store: AnyStore, *, prefix: str = AGENT, serde: SerializerProtocol | None = None) -> None:
        super().__init__(serde=serde)
        self._bridge, self._prefix = Bridge(store), prefix
        self._threads: dict[str, ThreadIndex] = {}

    def get_next_version(self, current: str | int | None, channel: None) -> str:
        """Return a version that is greater than `current`. The last digits keep two writers apart."""
        from random import random

        before = current if isinstance(current, int) else int((current or "0").split(".")[0])
        return f"{before + 1:032}.{random():016}"

    # ---- asynchronous

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await self._bridge.run(self._get_tuple(config))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        found = self._list(config, filter, before, limit)
        while True:
            try:
                yield await self._bridge.run(found.__anext__())
            except StopAsyncIteration:
                return

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return await self._bridge.run(self._put(config, checkpoint, metadata))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        await self._bridge.run(self._put_writes(config, writes, task_id, task_path))

    async def adelete_thread(self, thread_id: str) -> None:
        await self._bridge.run(self._delete_thread(thread_id))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        await self._bridge.run(self._delete_for_runs(run_ids))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await self._bridge.run(self._copy_thread(source_thread_id, target_thread_id))

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        await self._bridge.run(self._prune(thread_ids, strategy))

    # ---- synchronous

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self._bridge.call(self._get_tuple(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        return self._bridge.iterate(self._list(config, filter, before, limit))

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return self._bridge.call(self._put(config, checkpoint, metadata))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        self._bridge.call(self._put_writes(config, writes, task_id, task_path))

    def delete_thread(self, thread_id: str) -> None:
        self._bridge.call(self._delete_thread(thread_id))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        self._bridge.call(self._delete_for_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        self._bridge.call(self._copy_thread(source_thread_id, target_thread_id))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        self._bridge.call(self._prune(thread_ids, strategy))

    # ---- reading

    async def _get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        thread, namespace = _thread_of(config), _namespace_of(config) or ""
        index = await self._index(thread)
        if index is None:
            return None
        while True:
            asked = get_checkpoint_id(config)
            place = (namespace, asked) if asked else index.latest(namespace)
            if place is None or place not in index.checkpoints:
                return None
            found = await self._read(thread, index, place)
            if found is not None:
                return found
            index.drop(place)  # another process deleted it

    async def _list(
        self,
        config: RunnableConfig | None,
        filter: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> AsyncGenerator[CheckpointTuple]:
        threads = [_thread_of(config)] if config else await self._all_threads()
        namespace, asked = (_namespace_of(config), get_checkpoint_id(config)) if config else (None, None)
        end = get_checkpoint_id(before) if before else None
        left = limit
        for thread in threads:
            index = await self._index(thread)
            for place in sorted(index.checkpoints, key=lambda one: one[1], reverse=True) if index else ():
                fits = namespace in (None, place[0]) and asked in (None, place[1]) and (end is None or place[1] < end)
                if left is not None and left <= 0:
                    return
                found = await self._read(thread, index, place) if fits and index else None
                if found is None or not _matches(found.metadata, filter):
                    continue
                left = None if left is None else left - 1
                yield found

    async def _read(self, thread: str, index: ThreadIndex, place: Place) -> CheckpointTuple | None:
        """Return a checkpoint with its pending writes; None if it was deleted since."""
        stored = index.checkpoints[place]
        writes = sorted(index.writes.get(place, {}).values(), key=lambda write: write.order)
        entries = {entry.turn: entry for entry in (stored.entry, *(write.entry for write in writes))}
        values = dict(zip(entries, await index.log.read(entries.values()), strict=True))
        data = values[stored.entry.turn]
        if data is None:
            return None
        checkpoint, metadata = msgspec.msgpack.decode(data, type=tuple[Typed, Typed])
        tasks = {
            key: _decode_writes(value)
            for key, value in values.items()
            if value is not None and key != stored.entry.turn
        }
        pending = [
            (write.order[1], channel, self.serde.loads_typed(value))
            for write in writes
            if write.entry.turn in tasks
            for channel, value in [tasks[write.entry.turn][write.position]]
        ]
        return CheckpointTuple(
            config=_config(thread, *place),
            checkpoint=self.serde.loads_typed(checkpoint),
            metadata=self.serde.loads_typed(metadata),
            parent_config=_config(thread, place[0], stored.parent) if stored.parent else None,
            pending_writes=pending,
        )

    # ---- writing

    async def _put(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata
    ) -> RunnableConfig:
        thread, namespace = _thread_of(config), _namespace_of(config) or ""
        whole = get_checkpoint_metadata(config, metadata)
        labels: dict[str, Any] = {"type": "checkpoint", "ns": namespace, "id": checkpoint["id"]}
        if parent := config["configurable"].get("checkpoint_id"):
            labels["parent"] = parent
        if run := whole.get("run_id"):
            labels["run"] = run
        value = (self.serde.dumps_typed(checkpoint), self.serde.dumps_typed(whole))
        await self._append(thread, labels, msgspec.msgpack.encode(value))
        return _config(thread, namespace, checkpoint["id"])

    async def _put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str
    ) -> None:
        labels = {
            "type": "writes",
            "ns": _namespace_of(config) or "",
            "id": config["configurable"]["checkpoint_id"],
            "task": task_id,
            "path": task_path,
            "numbers": [WRITES_IDX_MAP.get(channel, number) for number, (channel, _) in enumerate(writes)],
        }
        values = [(channel, self.serde.dumps_typed(value)) for channel, value in writes]
        await self._append(_thread_of(config), labels, msgspec.msgpack.encode(values))

    async def _append(self, thread: str, labels: Mapping[str, Any], data: bytes) -> None:
        index = self._threads.get(thread) or await self._open(thread)
        try:
            await index.log.append([Value(labels, data)])
        except (ConversationGone, ConversationNotFound):  # the thread was deleted, and begins again
            self._threads.pop(thread, None)
            index = await self._open(thread)
            await index.log.append([Value(labels, data)])

    # ---- deleting and copying

    async def _delete_thread(self, thread: str) -> None:
        self._threads.pop(thread, None)
        log = await StateLog.find(self._bridge.store, self._key(thread))
        if log is not None:
            await log.talk.forget()

    async def _delete_for_runs(self, runs: Sequence[str]) -> None:
        for thread in await self._all_threads():
            index = await self._index(thread)
            if index is not None:
                places = [place for place, one in index.checkpoints.items() if one.run in runs]
                await self._forget(index, places)

    async def _prune(self, threads: Sequence[str], strategy: str) -> None:
        if strategy == "delete":
            await asyncio.gather(*map(self._delete_thread, threads))
            return
        if strategy != "keep_latest":
            raise ValueError(f"unknown strategy {strategy!r}: use 'keep_latest' or 'delete'")
        for thread in threads:
            index = await self._index(thread)
            if index is not None:
                latest = {place for name in {one[0] for one in index.checkpoints} if (place := index.latest(name))}
                kept = {needed for place in latest for needed in await self._needed(thread, index, place)}
                await self._forget(index, [*({*index.checkpoints, *index.writes} - kept)])

    async def _needed(self, thread: str, index: ThreadIndex, place: Place) -> builtins.list[Place]:
        """Return a checkpoint, and the ancestors from which its delta channels are rebuilt."""
        needed = [place]
        missing: builtins.set[str] | None = None
        while True:
            found = await self._read(thread, index, place)
            if found is None:
                return needed
            if missing is None:
                counters: Any = found.metadata.get(DELTA_COUNTERS)
                missing = {str(name) for name in counters or ()}
            missing -= set(found.checkpoint["channel_values"])
            parent = index.checkpoints[place].parent
            place = (place[0], parent or "")
            if not missing or place not in index.checkpoints:
                return needed
            needed.append(place)

    async def _forget(self, index: ThreadIndex, places: Sequence[Place]) -> None:
        for place in places:
            await index.log.forget(index.entries_of(place))
            index.drop(place)

    async def _copy_thread(self, source: str, target: str) -> None:
        index = await self._index(source)
        if index is None:
            return
        places = {*index.checkpoints, *index.writes}
        entries = sorted((one for place in places for one in index.entries_of(place)), key=lambda one: one.number)
        copy = self._threads.get(target) or await self._open(target)
        batch: builtins.list[Value] = []
        for entry in entries:
            (data,) = await index.log.read([entry])
            if data is not None:
                batch.append(Value(entry.labels, data))
            if sum(len(one.data) for one in batch) > BATCH_BYTES or len(batch) >= 500:
                await copy.log.append(batch)
                batch = []
        await copy.log.append(batch)

    # ---- threads

    def _key(self, thread: str) -> str:
        return log_key(self._prefix, thread)

    async def _index(self, thread: str) -> ThreadIndex | None:
        """Return the index of a thread, up to date; None if there is no such thread."""
        index = self._threads.get(thread)
        if index is not None:
            try:
                await index.refresh()
                return index
            except (ConversationGone, ConversationNotFound):
                self._threads.pop(thread, None)
        log = await StateLog.find(self._bridge.store, self._key(thread))
        if log is None:
            return None
        index = self._keep(thread, ThreadIndex(log))
        await index.refresh()
        return index

    async def _open(self, thread: str) -> ThreadIndex:
        log = await StateLog.open(self._bridge.store, self._key(thread), AGENT, {"thread_id": thread})
        return self._keep(thread, ThreadIndex(log))

    def _keep(self, thread: str, index: ThreadIndex) -> ThreadIndex:
        """Keep an index in memory, in the place of the oldest if there are many."""
        if len(self._threads) >= MAX_THREADS:
            self._threads.pop(next(iter(self._threads)))
        return self._threads.setdefault(thread, index)

    async def _all_threads(self) -> builtins.list[str]:
        threads: builtins.list[str] = []
        cursor = None
        while True:
            page = await self._bridge.store.conversations(kind="state", agent=AGENT, limit=1_000, cursor=cursor)
            named = [(info.key, info.metadata.get("thread_id")) for info in page.items]
            threads += [name for key, name in named if isinstance(name, str) and key == self._key(name)]
            cursor = page.cursor
            if cursor is None:
                return threads


def _thread_of(config: RunnableConfig) -> str:
    return str(config["configurable"]["thread_id"])


def _namespace_of(config: RunnableConfig) -> str | None:
    namespace: str | None = config["configurable"].get("checkpoint_ns")
    return namespace


def _config(thread: str, namespace: str, checkpoint: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread, "checkpoint_ns": namespace, "checkpoint_id": checkpoint}}


def _matches(metadata: Mapping[str, Any], filter: Mapping[str, Any] | None) -> bool:
    return all(metadata.get(name) == value for name, value in (filter or {}).items())


def _decode_writes(data: bytes) -> list[tuple[str, Typed]]:
    return msgspec.msgpack.decode(data, type=list[tuple[str, Typed]])
