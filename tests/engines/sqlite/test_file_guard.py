"""Files that are deleted or truncated while they are open: noticed before an append is acknowledged."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import palaver
from palaver import Conversation
from palaver.errors import DatabaseCorrupt, EngineError, EngineUnavailable


async def said(path: Path) -> list[str]:
    async with palaver.open(f"sqlite:///{path}", worker=False) as store:
        talk = await store.conversation("k")
        await talk.verify()
        return [turn.text for turn in await talk.history(100)]


async def fill(talk: Conversation, turns: int = 5) -> None:
    for n in range(turns):
        await talk.append("user", f"turn {n}")


async def test_a_deleted_wal_is_noticed_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "c.db"
    async with palaver.open(f"sqlite:///{path}", worker=False) as store:
        talk = await store.conversation("k")
        await fill(talk)
        os.remove(f"{path}-wal")
        for _ in range(2):
            with pytest.raises(EngineUnavailable, match="-wal was deleted or replaced"):
                await talk.append("user", "not acknowledged")
        with pytest.raises(EngineUnavailable, match="-wal"):
            await talk.verify()
        shutil.copy(path, tmp_path / "killed.db")  # as a process that is killed now leaves it
    assert await said(tmp_path / "killed.db") == [f"turn {n}" for n in range(5)]


@pytest.mark.parametrize("size", [0, 4_096, 20_000])
async def test_a_truncated_file_is_noticed(tmp_path: Path, size: int) -> None:
    path = tmp_path / "c.db"
    async with palaver.open(f"sqlite:///{path}", worker=False) as store:
        talk = await store.conversation("k")
        await fill(talk)
    async with palaver.open(f"sqlite:///{path}", worker=False) as store:
        talk = await store.conversation("k")
        os.truncate(path, size)
        with pytest.raises(DatabaseCorrupt, match="truncated"):
            await talk.append("user", "not acknowledged")
        with pytest.raises(EngineError):
            await talk.verify()


async def test_a_vacuum_of_another_program_is_not_taken_as_damage(tmp_path: Path) -> None:
    import apsw

    path = tmp_path / "c.db"
    async with palaver.open(f"sqlite:///{path}", worker=False) as store:
        talk = await store.conversation("k")
        await talk.append_many([{"role": "user", "content": "long " * 2_000} for _ in range(50)])
        await talk.reset()
        db = apsw.Connection(str(path))
        db.execute("VACUUM")
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        db.close()
        await talk.append("user", "after it")
        assert [turn.text for turn in await talk.history(10)] == ["after it"]
