"""A Postgres database has no default folder for attachments: they are refused until a location is chosen."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import palaver
from palaver.conversations.internals import engine_of, worker_of
from palaver.conversations.opening import default_folder
from palaver.engines.postgres.deletion import Slices
from palaver.errors import FilesNotConfigured
from palaver.model import ToolCall
from palaver.server.ops.readiness import Readiness
from palaver.testing import FakeClock, ScriptedModel


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def found(here: Path) -> list[str]:
    return sorted(path.name for path in here.iterdir())


async def test_nothing_is_made_until_an_attachment_is_stored(here: Path, postgres_url: str) -> None:
    async with palaver.open(postgres_url) as store:
        talk = await store.conversation("k", ttl=10**6)
        turn = await talk.append("user", "hello")
        await talk.build_context(token_budget=500)
        await talk.verify()
        await talk.forget(turn)
        await store.sweep()
        await store.settle()
        assert [path async for path in _exported(talk)]
    assert await asyncio.to_thread(found, here) == []


async def _exported(talk: palaver.Conversation) -> AsyncIterator[object]:
    async for page in talk.records():
        yield page


async def test_without_a_location_files_are_refused_and_the_choices_named(here: Path, postgres_url: str) -> None:
    async with palaver.open(postgres_url, worker=False) as store:
        talk = await store.conversation("k")
        for use in (
            lambda: talk.attach(b"bytes", filename="a.txt"),
            lambda: talk.open_upload("a.txt"),
        ):
            with pytest.raises(FilesNotConfigured, match=r"PALAVER_FILES.*a folder.*s3://") as refused:
                await use()
            assert refused.value.setting == "files"
        await talk.append("user", "goes on without files")
        await talk.verify()
    assert await asyncio.to_thread(found, here) == []


async def test_files_of_a_known_place_are_not_taken_for_lost_by_a_store_that_has_none(
    here: Path, postgres_url: str, tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture
) -> None:
    shared = tmp_path_factory.mktemp("shared")
    async with palaver.open(postgres_url, files=shared, worker=False) as store:
        talk = await store.conversation("k")
        file = await talk.attach(b"bytes", filename="a.txt")
        turn = await talk.append("user", "look", attachments=[file])
    async with palaver.open(postgres_url, worker=False) as store:
        talk = await store.find("k")
        assert [one.id for one in await talk.attachments()] == [file.id]
        for use in (
            lambda: talk.read_attachment(file.id),
            lambda: talk.read_attachment_range(file.id, 0, 2),
            talk.verify,
            lambda: talk.forget(turn),
        ):
            with pytest.raises(FilesNotConfigured):
                await use()
    assert (shared / file.path).exists()  # the row is gone; the bytes wait for a process that knows where they are
    async with palaver.open(postgres_url, worker=False) as store:
        assert "cannot be removed" in caplog.text
        with pytest.raises(FilesNotConfigured):
            await store.settle()
    async with palaver.open(postgres_url, files=shared, worker=False):
        assert not (shared / file.path).exists()
    assert await asyncio.to_thread(found, here) == []


async def test_a_file_waits_for_a_worker_that_can_read_it(
    here: Path, postgres_url: str, tmp_path_factory: pytest.TempPathFactory, caplog: pytest.LogCaptureFixture
) -> None:
    shared, clock = tmp_path_factory.mktemp("shared"), FakeClock()
    async with palaver.open(postgres_url, files=shared, worker=False, clock=clock) as store:
        talk = await store.conversation("k")
        file = await talk.attach(b"The password of the harbour is pelican.", filename="a.txt")
        await talk.append("user", "look", attachments=[file])
    async with palaver.open(postgres_url, worker=False, clock=clock) as store:
        await worker_of(store).drain()
        clock.advance(3_600)
        assert (await engine_of(store).health()).lag > 3_000
        check = await Readiness(engine_of(store), worker_of(store), longest_lag=600).check()
        assert check.problems == {}, "a server without a location is ready for everything else"
        assert [(job["kind"], job["dead"]) for job in (await store.stats()).storage["outbox"]] == [("files", False)]
        assert "wait for a worker" in caplog.text
        assert "PALAVER_FILES" in caplog.text
    async with palaver.open(postgres_url, files=shared, worker=False, clock=clock) as store:
        check = await Readiness(engine_of(store), worker_of(store), longest_lag=600).check()
        assert "seconds behind" in check.problems["worker"]
        await worker_of(store).drain()
        assert (await store.stats()).storage["outbox"] == []
        assert await (await store.find("k")).recall("pelican")
    assert await asyncio.to_thread(found, here) == []


async def test_a_sweep_deletes_all_rows_that_are_due_and_says_that_bytes_wait(
    here: Path, postgres_url: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shared, clock = tmp_path_factory.mktemp("shared"), FakeClock()
    async with palaver.open(postgres_url, files=shared, worker=False, clock=clock) as store:
        talk = await store.conversation("k")
        for n in range(4):
            file = await talk.attach(f"bytes {n}".encode(), filename="a.txt")
            await talk.append("user", "look", attachments=[file])
    clock.advance(7_200)
    async with palaver.open(postgres_url, worker=False, clock=clock) as store:
        engine_of(store).slices = Slices(retired=1)  # type: ignore[attr-defined]
        with pytest.raises(FilesNotConfigured):
            await store.sweep(retention_minutes=60)
        assert await (await store.find("k")).history() == []
    async with palaver.open(postgres_url, files=shared, worker=False, clock=clock):
        assert [path for path in shared.rglob("*") if path.is_file()] == []
    assert await asyncio.to_thread(found, here) == []


async def test_a_long_tool_result_is_cut_where_there_is_no_place_for_the_whole(here: Path, postgres_url: str) -> None:
    def look() -> str:
        """Look."""
        return "x" * 9_000

    model = ScriptedModel([[ToolCall("c1", "look", {})], "Seen."])
    async with palaver.open(postgres_url, models={"m": model}, model="m") as store:
        talk = await store.conversation("k")
        assert (await talk.generate("Look!", tools=[look])).text == "Seen."
        (result,) = (await talk.history())[2].tool_results
        assert "9,000 characters in all, the rest is not kept" in result.content
    assert await asyncio.to_thread(found, here) == []


@pytest.mark.parametrize(
    ("url", "folder"),
    [
        ("postgresql://ada:secret@db.example/chat", None),
        ("postgres://db.example", None),
        ("supabase+https://x.example", None),
        ("sqlite:///chat.db", Path("chat.db-files")),
        ("sqlite:////srv/a%20b.db", Path("/srv/a b.db-files")),
    ],
)
def test_only_a_database_file_has_a_default_folder(url: str, folder: Path | None) -> None:
    assert default_folder(url) == folder
