"""Durability by `kill -9`: one database, killed again and again, and nothing that was acknowledged may be missing."""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
import pytest

import palaver
from palaver.engines.postgres.transports import open_connection
from tests.support.postgres_server import APPLICATION

WRITER = Path(__file__).with_name("writer.py")
KILLS_PER_CONVERSATION = 10  # then a new one, in the same file: every restart is verified whole, and stays quick
PATIENCE = 30.0  # seconds, for what should take one
LONGEST_READ = 100_000


@dataclass(slots=True)
class Promises:
    """The turns that the writers of one conversation reported as stored."""

    turns: dict[str, tuple[int, str]] = field(default_factory=dict)  # complete: id → seq, text
    aborted: dict[str, str] = field(default_factory=dict)  # sealed by the writer itself: id → text
    streams: dict[str, str] = field(default_factory=dict)  # open at the last report: id → text that was flushed
    lines: int = 0

    def hear(self, line: dict[str, Any]) -> None:
        self.lines += 1
        kind, text = line["kind"], line["text"]
        if kind in ("appended", "committed"):
            self.turns[line["id"]] = line["seq"], text
            self.streams.pop(line["id"], None)
        elif kind == "aborted":
            self.aborted[line["id"]] = text
            del self.streams[line["id"]]
        elif kind in ("opened", "flushed"):
            self.streams[line["id"]] = text


# ---- killing -------------------------------------------------------------------------------------------------------


async def run_and_kill(url: str, key: str, run: str, chance: random.Random, promises: Promises) -> None:
    """Start a writer, kill it at some moment, and take down every line that it got out before."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(WRITER), url, key, run, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        if chance.random() < 0.15:
            await asyncio.sleep(chance.uniform(0, 0.5))  # while it opens the file, or migrates it, or seals a stream
        else:
            await _hear_some(process.stdout, promises, chance.randint(1, 150))
            await asyncio.sleep(chance.uniform(0, 0.02))
    finally:
        if process.returncode is None:
            process.kill()
    rest, errors = await process.communicate()
    for line in rest.split(b"\n")[:-1]:  # what follows the last line break was cut off
        promises.hear(json.loads(line))
    assert process.returncode == -9, f"the writer ended by itself:\n{errors.decode()}"


async def _hear_some(stdout: asyncio.StreamReader, promises: Promises, lines: int) -> None:
    async with asyncio.timeout(PATIENCE):
        for _ in range(lines):
            line = await stdout.readline()
            if not line:
                return  # it died: the caller says why
            promises.hear(json.loads(line))


# ---- looking -------------------------------------------------------------------------------------------------------


async def check(url: str, key: str, promises: Promises) -> None:
    """Open after the crash, let the cut streams be sealed, and hold the promises against what is there."""
    # Without a worker of its own: its summaries are events too, and the log is read twice here.
    async with palaver.open(url, stream_lease=0.15, worker=False) as store:
        talk = await store.conversation(key)
        async with asyncio.timeout(PATIENCE):
            events = await _until_nothing_is_open(talk)
        turns = {turn.id: turn for turn in await talk.history(limit=LONGEST_READ, include_superseded=True)}
        active = {turn.id for turn in await talk.history(limit=LONGEST_READ)}
        assert [event.n for event in events] == list(range(1, len(events) + 1))
        assert [turn.seq for turn in turns.values()] == list(range(len(turns)))
        check_complete(promises, turns, active)
        check_cut(promises, turns, active)
        await check_index(talk, promises)
        verified = await talk.verify()
        assert (verified.events, verified.turns) == (len(events), len(turns))


async def _until_nothing_is_open(talk: palaver.Conversation) -> list[palaver.Event]:
    """The whole log, as soon as every stream in it has come to an end."""
    events = await talk.audit(limit=LONGEST_READ)
    open_streams: set[str | None] = set()
    for event in events:
        _follow(event, open_streams)
    if open_streams:
        async for event in talk.subscribe(after=events[-1].n):
            events.append(event)
            _follow(event, open_streams)
            if not open_streams:
                break
    return events


def _follow(event: palaver.Event, open_streams: set[str | None]) -> None:
    if event.kind == "open":
        open_streams.add(event.turn)
    elif event.kind in ("commit", "abort"):
        open_streams.remove(event.turn)


def check_complete(promises: Promises, turns: dict[str, palaver.Turn], active: set[str]) -> None:
    lost = promises.turns.keys() - turns.keys()
    assert not lost, f"{len(lost)} of {len(promises.turns)} acknowledged turns are lost"
    for id, (seq, text) in promises.turns.items():
        turn = turns[id]
        assert (turn.status, turn.seq, turn.text) == ("complete", seq, text)
    assert promises.turns.keys() <= active


def check_cut(promises: Promises, turns: dict[str, palaver.Turn], active: set[str]) -> None:
    """A stream that was cut is sealed with its text; one whose commit was on its way may be complete instead."""
    assert not {turn.status for turn in turns.values()} - {"complete", "aborted"}
    for id, flushed in [*promises.streams.items(), *promises.aborted.items()]:
        assert turns[id].text.startswith(flushed)
        assert turns[id].status == "aborted" or id in promises.streams
    for turn in turns.values():
        assert (turn.id in active) == (turn.status == "complete")


async def check_index(talk: palaver.Conversation, promises: Promises) -> None:
    """The text index came through as well: the last turns can be found by the word that only they hold."""
    for id, (_, text) in list(promises.turns.items())[-3:]:
        assert id in {match.turn.id for match in await talk.search(text.split()[1])}


def check_file(path: Path) -> None:
    with apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE) as db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        db.execute("INSERT INTO text_index (text_index) VALUES ('integrity-check')")


# ---- the test ------------------------------------------------------------------------------------------------------


async def kill_and_check(url: str, kills: int, seed: int, quiet: Callable[[], Awaitable[None]]) -> list[Promises]:
    """Writers are killed again and again; `quiet` returns when nothing of the last one is on its way any more."""
    chance = random.Random(seed)
    promised: dict[str, Promises] = {}
    for number in range(kills):
        key = f"crash/{number // KILLS_PER_CONVERSATION}"
        promises = promised.setdefault(key, Promises())
        await run_and_kill(url, key, f"{number}", chance, promises)
        if chance.random() < 0.75:  # otherwise the next writer finds it as it was left
            await quiet()
            await check(url, key, promises)
    await quiet()
    for key, promises in promised.items():
        await check(url, key, promises)
    return list(promised.values())


@pytest.mark.timeout(3_600)
async def test_an_acknowledged_turn_survives_kill_9_and_a_cut_stream_is_sealed_with_its_text(
    tmp_path: Path, kills: int, seed: int, record_property: Any
) -> None:
    """No acknowledged turn lost, no gap in `seq` or in the log, every cut stream sealed, `verify` clean."""

    async def quiet() -> None:
        """No other process wrote."""

    promised = await kill_and_check(f"sqlite:///{tmp_path / 'crash.db'}", kills, seed, quiet)
    check_file(tmp_path / "crash.db")
    _report(promised, kills, record_property)


@pytest.mark.timeout(3_600)
async def test_the_same_when_the_database_is_a_server(
    postgres_url: str, postgres_database: str, kills: int, seed: int, record_property: Any
) -> None:
    async with open_connection(postgres_database) as admin:

        async def quiet() -> None:
            """The server may still be at work on what it was sent before the writer died."""
            left = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND usename = $1"
            async with asyncio.timeout(PATIENCE):
                while await admin.fetchval(left, APPLICATION):  # noqa: ASYNC110 (Postgres has no event for it)
                    await asyncio.sleep(0.01)

        _report(await kill_and_check(postgres_url, kills, seed, quiet), kills, record_property)


def _report(all_promises: Iterable[Promises], kills: int, record: Any) -> None:
    turns = sum(len(promises.turns) for promises in all_promises)
    streams = sum(len(promises.streams) for promises in all_promises)
    print(f"\n{kills} kills: {turns:,} acknowledged turns kept, {streams:,} cut streams recovered")
    record("acknowledged", turns)
    record("cut_streams", streams)
    assert kills == 0 or turns, "nothing was acknowledged: the test tested nothing"
