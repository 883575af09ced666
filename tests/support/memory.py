"""Helpers for the tests of memory: a thread to talk in, and summarisers that can be watched."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from palaver import Conversation, Summary, Turn
from tests.support import postgres_server

BATCH = 1_000


ELSEWHERE: dict[Path, str] = {}  # folders of tests whose database is a Postgres, and its superuser's address


def url(folder: Path) -> str:
    if folder in ELSEWHERE:
        return postgres_server.as_application(ELSEWHERE[folder])
    return f"sqlite:///{folder}/chat.db?synchronous=NORMAL"


async def talk_on(talk: Conversation, turns: int, text: str = "Turn {n} goes on and on.") -> list[Turn]:
    """Append turns, by a user and an assistant alternately."""
    start = (await talk.refresh()).next_seq
    stored: list[Turn] = []
    for first in range(start, start + turns, BATCH):
        numbers = range(first, min(first + BATCH, start + turns))
        stored += await talk.append_many(
            {"role": "assistant" if n % 2 else "user", "content": text.format(n=n)} for n in numbers
        )
    return stored


def spans(summaries: Sequence[Summary], level: int = 0) -> list[tuple[int, int]]:
    return [(one.from_seq, one.through_seq) for one in summaries if one.level == level]


def traces(folder: Path, word: str) -> list[str]:
    """The files that hold a byte of this word; on Postgres, the tables with a row that does."""
    if folder in ELSEWHERE:
        with ThreadPoolExecutor(1) as beside:  # a loop runs here already
            return beside.submit(asyncio.run, _tables_with(ELSEWHERE[folder], word)).result()
    return [path.name for path in folder.rglob("*") if path.is_file() and word.encode() in path.read_bytes()]


async def _tables_with(url: str, word: str) -> list[str]:
    import asyncpg

    connection = await asyncpg.connect(url)
    try:
        tables = await connection.fetch("SELECT tablename AS name FROM pg_tables WHERE schemaname = 'palaver'")
        holding = "SELECT EXISTS (SELECT 1 FROM palaver.{} AS row WHERE strpos(row::text, $1) > 0)"
        return [one["name"] for one in tables if await connection.fetchval(holding.format(one["name"]), word)]
    finally:
        await connection.close()


class Watched:
    """A summariser that says which positions it read, and remembers how often it was asked."""

    name = "watched"

    def __init__(self) -> None:
        self.read: list[tuple[int, int]] = []
        self.merged: list[int] = []

    async def summarize(self, turns: Sequence[Turn], budget: int) -> str:
        self.read.append((turns[0].position, turns[-1].position + 1))
        return f"SUMMARY of {turns[0].position} to {turns[-1].position}: {turns[0].text[:200]}"

    async def merge(self, summaries: Sequence[Summary], budget: int) -> str:
        self.merged.append(len(summaries))
        return f"SUMMARY of {summaries[0].from_seq} to {summaries[-1].through_seq - 1}, from {len(summaries)}"


class Broken:
    """A summariser whose provider is down, with an error that nobody foresaw."""

    name = "broken"

    async def summarize(self, turns: Sequence[Turn], budget: int) -> str:
        raise RuntimeError("the provider said: " + turns[0].text)

    async def merge(self, summaries: Sequence[Summary], budget: int) -> str:
        raise RuntimeError("no")


class Stuck:
    """A summariser that never answers."""

    name = "stuck"

    async def summarize(self, turns: Sequence[Turn], budget: int) -> str:
        await asyncio.Event().wait()
        return ""

    async def merge(self, summaries: Sequence[Summary], budget: int) -> str:
        await asyncio.Event().wait()
        return ""


class Gate:
    """A summariser that waits until it is let through, so that something else can happen before it."""

    name = "gate"

    def __init__(self) -> None:
        self.asked, self.open = asyncio.Event(), asyncio.Event()

    async def summarize(self, turns: Sequence[Turn], budget: int) -> str:
        self.asked.set()
        await self.open.wait()
        return " / ".join(turn.text for turn in turns)

    async def merge(self, summaries: Sequence[Summary], budget: int) -> str:
        return " / ".join(one.text for one in summaries)
