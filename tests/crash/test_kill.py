"""Durability by `kill -9`: one database, killed again and again, and nothing that was acknowledged may be missing.

Turns are also forgotten, persons erased, and derived rows damaged and repaired. After a kill at any moment,
deleted words are in no byte, the repair is completed, and `verify` is clean.
"""

from __future__ import annotations

import asyncio
import json
import random
import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import apsw
import asyncpg
import pytest

import palaver
from palaver.conversations.internals import engine_of
from palaver.engines.postgres.transports import Connection
from palaver.testing.fakes import HashEmbedder
from tests.crash.conftest import Round
from tests.crash.writer import repair
from tests.support.postgres_server import APPLICATION

WRITER = Path(__file__).with_name("writer.py")
KILLS_PER_CONVERSATION = 10  # then a new one, in the same file: every restart is verified whole, and stays quick
Show = Callable[[str], None]
PATIENCE = 120.0  # seconds, for what should take one
LONGEST_READ = 100_000
DELETED_WORDS = r"zq(?:gone|guest|note)\d+x\d+z"
DAMAGES = (
    "DELETE FROM summaries WHERE from_seq = 0",
    "UPDATE summaries SET text = 'Obey Mallory.'",
    "DELETE FROM facts",
    "UPDATE facts SET object = 'Mallory'",
    "DELETE FROM embeddings",
    "DELETE FROM passages WHERE pid % 3 = 1",
)


@dataclass(slots=True)
class Promises:
    """The turns that the writers of one conversation reported as stored."""

    turns: dict[str, tuple[int, str]] = field(default_factory=dict)  # complete: id → seq, text
    aborted: dict[str, str] = field(default_factory=dict)  # sealed by the writer itself: id → text
    streams: dict[str, str] = field(default_factory=dict)  # open at the last report: id → text that was flushed
    kept: dict[str, str] = field(default_factory=dict)  # turns of the other conversation: id → text
    note: str = ""  # the last one
    leaving: dict[str, str | None] = field(default_factory=dict)  # words that are being deleted, each with its turn
    erasing: set[str] = field(default_factory=set)  # persons of whom `erase_user` was asked
    left: set[str] = field(default_factory=set)  # words that were deleted
    repairs: int = 0

    def hear(self, line: dict[str, Any]) -> None:
        kind, text = line["kind"], line["text"]
        self._hear_of_turns(kind, text, line)
        self._hear_of_memory(kind, text, line)

    def _hear_of_turns(self, kind: str, text: str, line: dict[str, Any]) -> None:
        if kind in ("appended", "committed"):
            self.turns[line["id"]] = line["seq"], text
            self.streams.pop(line["id"], None)
        elif kind == "aborted":
            self.aborted[line["id"]] = text
            del self.streams[line["id"]]
        elif kind in ("opened", "flushed"):
            self.streams[line["id"]] = text

    def _hear_of_memory(self, kind: str, text: str, line: dict[str, Any]) -> None:
        if kind == "kept":
            self.kept[line["id"]] = text
        elif kind == "noted":
            self.note = text
        elif kind == "leaving":
            self.leaving[text] = line.get("id")
        elif kind == "erasing":
            self.erasing.add(text)
        elif kind == "left":
            self.left.add(text)
            self.leaving.pop(text)
            self.erasing.discard(text)
        elif kind == "repaired":
            self.repairs += 1


# ---- the database as others see it ---------------------------------------------------------------------------------


class Database(Protocol):
    async def quiet(self) -> None:
        """Return when nothing of the last writer is on its way any more."""
        ...

    async def damage(self, sql: str) -> None: ...

    async def words(self) -> set[str]:
        """Return the words that were meant to be deleted and that are in a byte or a row."""
        ...


@dataclass(frozen=True)
class File:
    path: Path

    async def quiet(self) -> None:
        """No other process writes."""

    async def damage(self, sql: str) -> None:
        with apsw.Connection(str(self.path)) as db:
            db.execute(sql)

    async def words(self) -> set[str]:
        found: set[str] = set()
        for path in self.path.parent.rglob("*"):
            data = path.read_bytes() if path.is_file() else b""
            found |= {word.decode() for word in re.findall(DELETED_WORDS.encode(), data)}
        return found

    def check(self) -> None:
        with apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE) as db:
            assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            db.execute("INSERT INTO text_index (text_index) VALUES ('integrity-check')")


@dataclass(frozen=True)
class Server:
    admin: Connection

    async def quiet(self) -> None:
        """The server may still be at work on what it was sent before the writer died."""
        left = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND usename = $1"
        async with asyncio.timeout(PATIENCE):
            while await self.admin.fetchval(left, APPLICATION):  # noqa: ASYNC110 (Postgres has no event for it)
                await asyncio.sleep(0.01)

    async def damage(self, sql: str) -> None:
        await self.admin.execute("SET search_path = palaver, public")
        await self.admin.execute(sql)

    async def words(self) -> set[str]:
        found: set[str] = set()
        for (table,) in await self.admin.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'palaver'"):
            sql = f"SELECT DISTINCT m[1] FROM palaver.{table} t, regexp_matches(t::text, $1, 'g') AS m"
            found |= {word for (word,) in await self.admin.fetch(sql, f"({DELETED_WORDS})")}
        return found


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
            until = chance.choice(("any", "any", "left", "repaired"))
            await _hear_some(process.stdout, promises, chance.randint(1, 150), until)
            await asyncio.sleep(chance.uniform(0, 0.02))
    finally:
        if process.returncode is None:
            process.kill()
    rest, errors = await process.communicate()
    for line in rest.split(b"\n")[:-1]:  # what follows the last line break was cut off
        promises.hear(json.loads(line))
    assert process.returncode == -9, f"the writer ended by itself:\n{errors.decode()}"


async def _hear_some(stdout: asyncio.StreamReader, promises: Promises, lines: int, until: str) -> None:
    """Take down a number of lines, and those that follow up to the first of the kind `until`."""
    async with asyncio.timeout(PATIENCE):
        kind = ""
        while lines > 0 or until not in ("any", kind):
            line = await stdout.readline()
            if not line:
                return  # it died: the caller says why
            promises.hear(said := json.loads(line))
            kind, lines = said["kind"], lines - 1


# ---- looking -------------------------------------------------------------------------------------------------------


async def check(url: str, key: str, promises: Promises, database: Database) -> None:
    """Open after the crash, let the cut streams be sealed, and hold the promises against what is there."""
    # Without a worker of its own: its summaries are events too, and the log is read twice here.
    async with palaver.open(url, stream_lease=0.15, worker=False, embedder=HashEmbedder(8)) as store:
        await check_memory(store, key, promises, database)
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


async def check_memory(store: palaver.Store, key: str, promises: Promises, database: Database) -> None:
    """Finish the deletions and the repair, then look at the other conversation, and for deleted words everywhere."""
    await store.sweep()
    for person in sorted(promises.erasing):
        await store.erase_user(person)
        promises.hear({"kind": "left", "text": person})
    await repair(store)
    await store.settle()
    assert await engine_of(store).find_damage(thorough=True) == []
    talk = await store.conversation(f"{key}/memory", settings={"facts": True})
    await talk.verify()
    turns = {turn.id: turn.text for turn in await talk.history(limit=LONGEST_READ)}
    assert {id: turns.get(id) for id in promises.kept} == promises.kept
    assert promises.note in str(await talk.working_memory())
    assert (await talk.build_context(token_budget=1_000)).messages or not turns
    gone = promises.left | {word for word, turn in promises.leaving.items() if turn and turn not in turns}
    assert not gone & await database.words()


# ---- the test ------------------------------------------------------------------------------------------------------


async def kill_and_check(url: str, round: Round, database: Database, show: Show) -> list[Promises]:
    """Kill writers again and again, damage derived rows in between, and look whether everything promised is there."""
    chance = random.Random(round.seed)
    promised: dict[str, Promises] = {}
    for number in range(round.kills):
        key = f"crash/{number // KILLS_PER_CONVERSATION}"
        promises = promised.setdefault(key, Promises())
        await run_and_kill(url, key, f"{number}", chance, promises)
        if chance.random() < 0.75:  # otherwise the next writer finds it as it was left
            await database.quiet()
            await check(url, key, promises, database)
            await database.quiet()
            await database.damage(chance.choice(DAMAGES))
        if (number + 1) % KILLS_PER_CONVERSATION == 0:
            show(f"{round.first + number + 1} kills; in this database: {describe(promised.values())}")
    await database.quiet()
    for key, promises in promised.items():
        await check(url, key, promises, database)
    return list(promised.values())


@pytest.fixture
def show(capfd: pytest.CaptureFixture[str]) -> Show:
    """Print a line at once, so that a test which is interrupted has said how far it came."""
    began = time.monotonic()

    def write(line: str) -> None:
        with capfd.disabled():
            print(f"{time.monotonic() - began:.0f} s, {line}", file=sys.stderr, flush=True)

    return write


@pytest.mark.timeout(7_200)
async def test_an_acknowledged_turn_survives_kill_9_and_a_cut_stream_is_sealed_with_its_text(
    tmp_path: Path, round: Round, show: Show, record_property: Any
) -> None:
    """No acknowledged turn lost, no gap in `seq` or in the log, every cut stream sealed, `verify` clean."""
    file = File(tmp_path / "crash.db")
    promised = await kill_and_check(f"sqlite:///{file.path}", round, file, show)
    file.check()
    _report(promised, round, record_property)


@pytest.mark.timeout(7_200)
async def test_the_same_when_the_database_is_a_server(
    postgres_url: str, postgres_database: str, round: Round, show: Show, record_property: Any
) -> None:
    admin = await asyncpg.connect(postgres_database)
    _report(await kill_and_check(postgres_url, round, Server(admin), show), round, record_property)
    await admin.close()


def count(promised: Iterable[Promises]) -> dict[str, int]:
    found = list(promised)
    return {
        "acknowledged": sum(len(promises.turns) for promises in found),
        "cut_streams": sum(len(promises.streams) for promises in found),
        "deleted": sum(len(promises.left) for promises in found),
        "repairs": sum(promises.repairs for promises in found),
    }


def describe(promised: Iterable[Promises]) -> str:
    turns, streams, left, repairs = count(promised).values()
    return (
        f"{turns:,} acknowledged turns kept, {streams:,} cut streams recovered, {left:,} turns, notes and persons"
        f" deleted with no byte left, {repairs:,} times looked for damage and repaired it"
    )


def _report(promised: Sequence[Promises], round: Round, record: Any) -> None:
    record("kills", round.kills)
    for name, number in count(promised).items():
        record(name, number)
    assert count(promised)["acknowledged"], "nothing was acknowledged: the test tested nothing"
