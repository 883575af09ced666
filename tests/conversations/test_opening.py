"""A store that is cancelled while it opens or closes leaves nothing open."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest

import palaver
from palaver.testing.kit import eventually

THREAD = "palaver-writer"


def left_open(folder: Path) -> list[str]:
    """The files in a folder that this process still has open."""
    names = (os.path.realpath(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd"))
    return [name for name in names if name.startswith(str(folder))]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="there is no list of open files here")
async def test_cancelling_while_a_file_is_opened_leaves_nothing_open(tmp_path: Path) -> None:
    lock = apsw.Connection(f"{tmp_path}/a.db")
    lock.execute("BEGIN EXCLUSIVE")  # so that opening it takes until the end of this transaction
    before = len(left_open(tmp_path))
    store = palaver.open(f"sqlite:///{tmp_path}/a.db?busy_timeout=60000", embedder=None, worker=False)
    opening = asyncio.create_task(store.__aenter__())

    async def has_begun() -> bool:
        return len(left_open(tmp_path)) > before

    await eventually(has_begun)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    lock.close()

    async def nothing_is_open() -> bool:
        there = (tmp_path / "a.db").stat().st_size > 0  # so that it was opened
        return there and not left_open(tmp_path) and all(one.name != THREAD for one in threading.enumerate())

    await eventually(nothing_is_open)


async def closed_in_a_hurry(url: str, steps: int, **options: Any) -> None:
    """Cancel a store `steps` iterations of the loop after it began to close."""
    leaving = asyncio.Event()

    async def use() -> None:
        async with palaver.open(url, embedder=None, **options) as store:
            await (await store.conversation("k")).append("user", "hello")
            leaving.set()

    task = asyncio.create_task(use())
    await leaving.wait()
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="there is no list of open files here")
async def test_who_is_cancelled_while_a_file_is_closed_leaves_nothing_open(tmp_path: Path) -> None:
    for steps in range(12):
        await closed_in_a_hurry(f"sqlite:///{tmp_path}/a.db", steps)
        assert left_open(tmp_path) == []


async def test_who_is_cancelled_while_a_pool_is_closed_leaves_no_connection(
    postgres_database: str, postgres_url: str, tmp_path: Path
) -> None:
    witness = await asyncpg.connect(postgres_database)

    async def nobody_is_there() -> bool:
        count = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        return not await witness.fetchval(count)

    for steps in range(12):
        await closed_in_a_hurry(postgres_url, steps, files=tmp_path)
        await eventually(nobody_is_there)
    await witness.close()
