"""The LangGraph checkpointer: LangGraph's own conformance suite, writers at once, and what it promises beyond it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langgraph.checkpoint.conformance")

from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.types import ERROR

import palaver
from palaver import Store
from palaver.adapters.langgraph_checkpointer import PalaverSaver
from tests.support.memory import url

# Writes checkpoints of one thread from several tasks of one process.
WRITER = """
import asyncio, json, sys
import palaver
from langgraph.checkpoint.base import empty_checkpoint
from palaver.adapters.langgraph_checkpointer import PalaverSaver

async def main(url, name, writers, count):
    async with palaver.open(url, embedder="none", worker=False) as store:
        saver = PalaverSaver(store)
        async def write(writer):
            made = []
            for number in range(count):
                checkpoint = {**empty_checkpoint(), "channel_values": {"at": f"{name}/{writer}/{number}"}}
                config = {"configurable": {"thread_id": "shared", "checkpoint_ns": ""}}
                stored = await saver.aput(config, checkpoint, {"step": number}, {})
                await saver.aput_writes(stored, [("out", number)], f"{name}/{writer}")
                made.append(stored["configurable"]["checkpoint_id"])
            return made
        made = await asyncio.gather(*(write(writer) for writer in range(writers)))
    print(json.dumps([one for part in made for one in part]))

asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
"""


def config(thread: str = "t", namespace: str = "", checkpoint: str | None = None) -> Any:
    given = {"thread_id": thread, "checkpoint_ns": namespace}
    return {"configurable": given if checkpoint is None else {**given, "checkpoint_id": checkpoint}}


def checkpoint(value: object, version: str = "1") -> Any:
    return {**empty_checkpoint(), "channel_values": {"v": value}, "channel_versions": {"v": version}}


@pytest.mark.both_engines
@pytest.mark.costly
async def test_langgraphs_own_suite(store: Store, record_property: Any) -> None:
    @checkpointer_test(name="Palaver")
    async def ours() -> AsyncIterator[BaseCheckpointSaver]:
        yield PalaverSaver(store)

    report = await validate(ours)
    failures = {name: one.failures for name, one in report.results.items() if one.failures}
    passed = {name: one.tests_passed for name, one in report.results.items()}
    count = sum(passed.values())
    record_property("suite", f"langgraph-checkpoint-conformance: {count} of {count} tests")
    assert failures == {}
    assert all(one.detected and one.passed for one in report.results.values())
    assert len(passed) == 8
    assert count >= 81


@pytest.mark.parametrize("processes", [pytest.param(4, marks=pytest.mark.slow), 2])
async def test_writers_at_once_lose_no_checkpoint(database_url: str, processes: int, record_property: Any) -> None:
    """8 writers on one thread: in 2 processes, and in the long form in 4."""
    writers, count = 8 // processes, 250 if processes == 4 else 15
    arguments = [(database_url, str(one), str(writers), str(count)) for one in range(processes)]
    started = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", WRITER, *one, stdout=asyncio.subprocess.PIPE)
        for one in arguments
    ]
    printed = [(await one.communicate())[0] for one in started]
    acknowledged = {id for one in printed for id in json.loads(one)}
    assert len(acknowledged) == 8 * count
    async with palaver.open(database_url, embedder="none", worker=False) as store:
        saver = PalaverSaver(store)
        found = [one async for one in saver.alist(config("shared"))]
        assert {one.checkpoint["id"] for one in found} == acknowledged
        assert all(len(one.pending_writes or ()) == 1 for one in found)
        await (await store.find("langgraph/shared")).verify()
    record_property("suite", f"{8 * count} checkpoints by 8 writers in {processes} processes: 0 lost")


@pytest.mark.both_engines
async def test_it_agrees_with_langgraphs_own_saver(store: Store) -> None:
    ours, theirs = PalaverSaver(store), InMemorySaver()
    first, second = checkpoint("one"), checkpoint({"nested": [1, b"bytes", {"a", "b"}]}, "2")
    for saver in (ours, theirs):
        parent = await saver.aput(config(), first, {"step": 1, "source": "input"}, {"v": "1"})
        child = await saver.aput(parent, second, {"step": 2, "source": "loop"}, {"v": "2"})
        await saver.aput_writes(child, [("b", 1), (ERROR, "failed"), ("b", 2)], "task-2", "~2")
        await saver.aput_writes(child, [("a", None)], "task-1", "~1")
        await saver.aput_writes(child, [("a", "ignored")], "task-1", "~1")
        await saver.aput_writes(child, [("x", 0), (ERROR, "again")], "task-2", "~2")
    for asked in (config(), config(checkpoint=first["id"]), config(checkpoint="none"), config("other")):
        assert await ours.aget_tuple(asked) == await theirs.aget_tuple(asked)
    for options in ({}, {"limit": 1}, {"filter": {"step": 1}}, {"before": config(checkpoint=second["id"])}):
        assert [one async for one in ours.alist(config(), **options)] == [
            one async for one in theirs.alist(config(), **options)
        ]


@pytest.mark.both_engines
async def test_two_processes_see_each_others_checkpoints_and_deletions(store: Store) -> None:
    one, two = PalaverSaver(store), PalaverSaver(store)
    stored = await one.aput(config(), checkpoint("one"), {"step": 1, "run_id": "r"}, {})
    seen = await two.aget_tuple(config())
    assert seen is not None
    assert seen.checkpoint["channel_values"] == {"v": "one"}
    await two.aput(stored, checkpoint("two"), {"step": 2}, {})
    assert (await one.aget_tuple(config())).checkpoint["channel_values"] == {"v": "two"}  # type: ignore[union-attr]
    await one.aprune(["t"])
    assert len([found async for found in two.alist(config())]) == 1
    await one.adelete_thread("t")
    assert await two.aget_tuple(config()) is None
    await two.aput(config(), checkpoint("again"), {}, {})  # a late write begins a new thread, and brings nothing back
    assert [found.checkpoint["channel_values"] async for found in one.alist(None)] == [{"v": "again"}]


@pytest.mark.both_engines
async def test_a_deleted_thread_is_in_no_row(store: Store) -> None:
    saver = PalaverSaver(store)
    await saver.aput(config(), checkpoint("secret"), {}, {})
    await saver.adelete_thread("t")
    assert (await store.conversations(kind=None)).items == ()
    assert (await store.stats()).turns == 0


@pytest.mark.costly
async def test_large_values(tmp_path: Path) -> None:
    async with palaver.open(url(tmp_path)) as store:
        saver = PalaverSaver(store)
        value = [f"row {number * 7919}" for number in range(900_000)]
        await saver.aput(config(), checkpoint(value), {}, {})
        found = await PalaverSaver(store).aget_tuple(config())
        assert found is not None
        assert found.checkpoint["channel_values"]["v"] == value


def test_synchronous_methods(tmp_path: Path) -> None:
    with palaver.sync.open(url(tmp_path)) as store:
        saver = PalaverSaver(store)
        stored = saver.put(config(), checkpoint("one"), {"step": 1, "run_id": "r"}, {})
        saver.put_writes(stored, [("a", 1)], "task")
        found = saver.get_tuple(config())
        assert found is not None
        assert found.pending_writes == [("task", "a", 1)]
        saver.copy_thread("t", "copy")
        assert saver.get(config("copy")) == found.checkpoint
        saver.delete_for_runs(["r"])
        assert list(saver.list(config())) == [] == list(saver.list(None))
        saver.put(config(), checkpoint("two"), {}, {})
        saver.prune(["t"])
        assert len(list(saver.list(config()))) == 1
        saver.delete_thread("t")
        assert saver.get_tuple(config()) is None
        assert asyncio.run(saver.aget_tuple(config())) is None


async def test_pruning_keeps_what_delta_channels_are_rebuilt_from(tmp_path: Path) -> None:
    async with palaver.open(url(tmp_path)) as store:
        saver, parent = PalaverSaver(store), config()
        for step in range(5):
            values = {"log": ["snapshot"]} if step == 2 else {}
            made = {**empty_checkpoint(), "channel_values": values, "channel_versions": {"log": str(step)}}
            counters = {} if step == 2 else {"counters_since_delta_snapshot": {"log": (1, 1)}}
            parent = await saver.aput(parent, made, {"step": step, **counters}, {})
            await saver.aput_writes(parent, [("log", step)], f"task-{step}")
        before = await saver.aget_delta_channel_history(config=parent, channels=["log"])
        await saver.aprune(["t"])
        assert [one.metadata["step"] async for one in saver.alist(config())] == [4, 3, 2]
        assert await saver.aget_delta_channel_history(config=parent, channels=["log"]) == before
