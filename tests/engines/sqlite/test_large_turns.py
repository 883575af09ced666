"""A turn with a very long text enters and leaves the text index in parts, between which others write."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import palaver
from palaver import Store, Turn
from palaver.conversations.internals import engine_of
from palaver.engines.sqlite import large_deletions
from palaver.engines.sqlite.engine import SQLiteEngine
from palaver.engines.sqlite.transaction import Tx
from palaver.recall.terms import index_passages
from tests.security.test_forgetting import check_index, marker, prose, traces, url

pytestmark = pytest.mark.costly

FIRST, MIDDLE, LAST = (marker(random.Random(n)) for n in range(3))
MARKERS = [FIRST, MIDDLE, LAST]


def long_text(words: int = 40_000) -> str:
    rng = random.Random(7)
    half = [f"{prose(rng, 30)}." for _ in range(words // 60)]
    return " ".join([FIRST, *half, MIDDLE, *half, LAST])


class Stopped(Exception):
    """Stands for the end of the process."""


async def stop(*_: object) -> None:
    raise Stopped


def sqlite_of(store: Store) -> SQLiteEngine:
    engine: Any = engine_of(store)
    assert isinstance(engine, SQLiteEngine)
    return engine


async def stored_parts(store: Store, turn: Turn) -> list[tuple[int, int]]:
    """The numbers of a turn's passages, and how many words each has."""

    def read(tx: Tx) -> list[tuple[int, int]]:
        of_turn = "JOIN turns t ON t.tid = p.tid WHERE t.id = :id ORDER BY p.part, p.pid"
        sql = f"SELECT p.part, p.size FROM passages p {of_turn}"
        return [(int(part), int(size)) for part, size in tx.all(sql, id=turn.id)]

    return await sqlite_of(store).readers.run(read)


def expected_parts(text: str) -> list[tuple[int, int]]:
    return [(part, stems.count(" ") + 1) for part, stems in enumerate(index_passages(text).stems)]


async def sizes_during(
    store: Store, turn: Turn, work: Awaitable[object], meanwhile: Callable[[], Awaitable[Any]]
) -> set[int]:
    """How many passages the turn had, as others saw it, while `work` ran and they wrote."""
    task = asyncio.ensure_future(work)
    seen: set[int] = set()
    while not task.done():
        await meanwhile()
        seen.add(len(await stored_parts(store, turn)))
    await task
    return seen


async def test_others_write_while_a_large_turn_is_indexed_in_parts(tmp_path: Path) -> None:
    text = long_text()
    async with palaver.open(url(tmp_path), embedder="none", worker=False) as store:
        talk, other = await store.conversation("big"), await store.conversation("other")
        turn = await talk.append("user", text)
        seen = await sizes_during(store, turn, talk.search(LAST), lambda: other.append("user", "hello"))
        whole = expected_parts(text)
        assert await stored_parts(store, turn) == whole
        assert {size for size in seen if 0 < size < len(whole)}
        for word in MARKERS:
            assert [hit.turn.id for hit in await talk.search(word) if hit.turn is not None] == [turn.id]
        assert await other.search("hello")
    check_index(tmp_path)


async def test_another_process_continues_a_turn_that_is_indexed_in_part(tmp_path: Path) -> None:
    text = long_text()
    async with (
        palaver.open(url(tmp_path), embedder="none", worker=False) as store,
        palaver.open(url(tmp_path), embedder="none", worker=False) as second,
    ):
        turn = await (await store.conversation("big")).append("user", text)
        first, whole = sqlite_of(store), expected_parts(text)
        while not (parts := await stored_parts(store, turn)):
            await first.writer.submit_chores()
            await first.indexer.wait()
        assert parts == whole[: len(parts)]
        assert await second.search(LAST)
        assert await store.search(FIRST)
        assert await stored_parts(store, turn) == whole
    check_index(tmp_path)


async def test_a_store_that_is_closed_at_once_indexes_the_turn_later(tmp_path: Path) -> None:
    text = long_text()
    async with palaver.open(url(tmp_path), embedder="none", worker=False) as store:
        turn = await (await store.conversation("big")).append("user", text)
    async with palaver.open(url(tmp_path), embedder="none", worker=False) as store:
        assert await store.search(MIDDLE)
        assert await stored_parts(store, turn) == expected_parts(text)


async def test_turns_before_and_after_a_large_one_are_found(tmp_path: Path) -> None:
    async with palaver.open(url(tmp_path), embedder="none", worker=False) as store:
        talk = await store.conversation("big")
        for said in ("apples", long_text(), "pears", long_text(), "plums"):
            await talk.append("user", said)
        for word, count in (("apples", 1), ("pears", 1), ("plums", 1), (MIDDLE, 2)):
            assert len(await talk.search(word)) == count
    check_index(tmp_path)


@pytest.mark.parametrize("way", ["turn", "turn in a large file", "conversation", "reset"])
async def test_no_byte_of_a_large_turn_is_left_and_others_write_in_between(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(3)
    if way == "turn in a large file":
        monkeypatch.setattr(large_deletions, "TURN_SHARE", 1)
    async with palaver.open(url(tmp_path), embedder="none", worker=False) as store:
        talk, other = await store.conversation("big"), await store.conversation("other")
        await other.append_many([{"role": "user", "content": prose(rng, 60)} for _ in range(300)])
        turn = await talk.append("user", long_text(60_000))
        assert await talk.search(LAST)
        whole = len(await stored_parts(store, turn))
        ways = {"conversation": talk.forget, "reset": talk.reset}
        forget = ways.get(way, lambda: talk.forget(turn))
        seen = await sizes_during(store, turn, forget(), lambda: other.append("user", "hello"))
        assert {size for size in seen if 0 < size < whole}
        assert traces(tmp_path, MARKERS) == []
        assert not await store.search(LAST)
        assert await other.verify()
    check_index(tmp_path)
    assert traces(tmp_path, MARKERS) == []


async def test_forgetting_again_finishes_what_was_interrupted_before_the_merge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with palaver.open(url(tmp_path), embedder="none", worker=False) as store:
        talk = await store.conversation("big")
        turn = await talk.append("user", long_text(60_000))
        assert await talk.search(LAST)
        with monkeypatch.context() as patch:
            patch.setattr(large_deletions.Eraser, "_merge_index", stop)
            with pytest.raises(Stopped):
                await talk.forget(turn)
        assert await stored_parts(store, turn) == []
        assert (await talk.history())[0].text.endswith(LAST)
    async with palaver.open(url(tmp_path), embedder="none", worker=False) as store:
        await (await store.conversation("big")).forget(turn)
        assert traces(tmp_path, MARKERS) == []
    check_index(tmp_path)
    assert traces(tmp_path, MARKERS) == []
