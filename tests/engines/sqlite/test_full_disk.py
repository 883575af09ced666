"""A full disk: reading continues without updating the index, and every error names the cause."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import apsw
import pytest

import palaver
from palaver import Conversation, Store
from palaver.conversations.internals import engine_of
from palaver.engines.sqlite.writer import WriterTuning
from palaver.testing import HashEmbedder


@pytest.fixture
async def full(small_disk: Path) -> AsyncIterator[tuple[Store, Conversation]]:
    """A store on a disk without a free block. Its last turns are not in the text index yet."""
    path = small_disk / "chat.db"
    async with asyncio.timeout(60), palaver.open(f"sqlite:///{path}", embedder=HashEmbedder(), worker=False) as store:
        talk = await store.conversation("k")
        await talk.append_many({"role": "user", "content": f"Turn {n}: the zebra has number {n}."} for n in range(60))
        await store.settle()
        engine_of(store).writer.tuning = WriterTuning(chores_after_seconds=3_600)  # no quiet moment for the index
        await talk.append("user", "The last word is walrus.")
        with apsw.Connection(str(path)) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        fill(small_disk / "ballast")
        yield store, talk
        (small_disk / "ballast").unlink(missing_ok=True)


def fill(ballast: Path) -> None:
    with ballast.open("ab", buffering=0) as file:
        while True:
            try:
                file.write(b"x" * 4_096)
            except OSError:
                return


async def test_contexts_search_and_recall_work_on_a_full_disk(
    full: tuple[Store, Conversation], small_disk: Path
) -> None:
    store, talk = full
    with pytest.raises(palaver.DatabaseFull, match="no space left"):
        await talk.append("user", "not stored")
    context = await talk.build_context(token_budget=500, message="Which number has the zebra?")
    assert context.messages
    assert "DatabaseFull" in context.explanation.recall, "it says that the index could not be brought up to date"
    assert [hit.turn.text for hit in await talk.search("walrus")] == ["The last word is walrus."]
    assert [hit.conversation.id for hit in await store.search("walrus")] == [talk.id]
    assert any("walrus" in hit.turn.text for hit in await talk.recall("walrus"))
    assert (await talk.verify()).turns == 61
    (small_disk / "ballast").unlink()
    await store.settle()
    context = await talk.build_context(token_budget=500, message="Which number has the zebra?")
    assert "DatabaseFull" not in context.explanation.recall


async def test_forget_on_a_full_disk_names_the_cause_and_can_be_finished(
    full: tuple[Store, Conversation], small_disk: Path
) -> None:
    _, talk = full
    last = (await talk.history(1))[0]
    with pytest.raises(palaver.DatabaseFull, match="no space left"):
        await talk.forget(last)
    with pytest.raises(palaver.DatabaseFull, match="no space left"):
        await talk.forget()
    (small_disk / "ballast").unlink()
    await talk.forget()
    assert not any(b"walrus" in file.read_bytes() for file in small_disk.iterdir() if file.is_file())


@pytest.mark.costly
async def test_a_scrub_that_fails_after_the_commit_blames_the_disk_and_no_reader(
    tmp_path: Path, file_limit: Callable[[int | None], None]
) -> None:
    """The rows are deleted in the WAL, and then the file has no room to take them over."""
    path = tmp_path / "c.db"
    async with asyncio.timeout(60), palaver.open(f"sqlite:///{path}", embedder=None, worker=False) as store:
        talk = await store.conversation("k")
        await talk.append_many({"role": "user", "content": f"{n} " + "x" * 4_000} for n in range(300))
        await store.settle()
        with apsw.Connection(str(path)) as db:
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        secret = await talk.append("user", "zqbcdfghjklmnp " + "x" * 300_000)
        file_limit(path.stat().st_size)
        with pytest.raises(palaver.ScrubPending, match="the disk ") as caught:
            await talk.forget(secret)
        assert "reading" not in str(caught.value)
        assert caught.value.cause is not None
        file_limit(None)
        assert await engine_of(store).scrub()
        assert not any(b"zqbcdfghjklmnp" in file.read_bytes() for file in tmp_path.iterdir())


async def test_a_scrub_that_meets_a_full_disk_says_so(small_disk: Path) -> None:
    path = small_disk / "chat.db"
    async with asyncio.timeout(60), palaver.open(f"sqlite:///{path}", embedder=None, worker=False) as store:
        talk = await store.conversation("k")
        await talk.append("user", "long " * 200_000)
        await store.settle()
        with apsw.Connection(str(path)) as db:
            db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()  # the WAL keeps its size, and is written again
        secret = await talk.append("user", "zqbcdfghjklmnp " + "x" * 300_000)
        fill(small_disk / "ballast")
        with pytest.raises(palaver.ScrubPending, match="the disk is full") as caught:
            await talk.forget(secret)
        assert "reading" not in str(caught.value)
        (small_disk / "ballast").unlink()
        assert await engine_of(store).scrub()
        assert not any(b"zqbcdfghjklmnp" in file.read_bytes() for file in small_disk.iterdir() if file.is_file())
