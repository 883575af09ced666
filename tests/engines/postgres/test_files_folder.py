"""The default folder for attachments of a Postgres database; it is created with the first attachment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import palaver
from palaver.conversations.opening import default_folder


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


async def test_an_attachment_goes_into_a_folder_with_the_name_of_the_database(here: Path, postgres_url: str) -> None:
    async with palaver.open(postgres_url) as store:
        talk = await store.conversation("k")
        file = await talk.attach(b"bytes", filename="a.txt")
        await talk.append("user", "look", attachments=[file])
        await talk.verify()
    name = postgres_url.rpartition("/")[2]
    assert await asyncio.to_thread(found, here) == [f"{name}-files"]
    async with palaver.open(postgres_url) as store:
        assert await (await store.find("k")).read_attachment(file.id) == b"bytes"


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("postgresql://ada:secret@db.example/chat", "chat-files"),
        ("postgresql://ada:secret@db.example:6432/chat?pgbouncer=true&sslmode=require", "chat-files"),
        ("postgresql://db.example", "palaver-files"),
        ("postgresql://db.example/", "palaver-files"),
        ("postgresql://db.example/..%2F..%2Fetc", "..%2F..%2Fetc-files"),
        ("postgresql://db.example//etc/chat", "%2Fetc%2Fchat-files"),
    ],
)
def test_the_folder_has_no_secret_in_its_name_and_leads_nowhere_else(url: str, name: str) -> None:
    assert default_folder(url) == Path(name)
