"""`verify` finds every change that a superuser makes to the rows of Postgres, and names the row."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import palaver
from palaver import Scope, Store
from palaver.conversations.internals import conversation_of
from tests.audit.test_tampering import fill

PROVED = ("turns", "events", "conversations")
OF_THIS_DATABASE = "a number of this database, or a figure that is made from the rows: a copy elsewhere has others"
# Columns that `verify` does not vouch for, each with its reason.
NOT_VOUCHED = {
    ("turns", "tid"): OF_THIS_DATABASE,
    ("turns", "preview"): "the first line of the words, which are proved; the list shows the conversation's",
    ("conversations", "title_made"): "whether a job wrote the title, which is proved; it only decides when that goes",
    **{
        ("conversations", name): OF_THIS_DATABASE
        for name in (
            "revision", "marked", "summarized_position", "summarized_turns", "summarized_tokens", "passage_count",
            "passage_terms", "compact_turns", "compact_tokens", "to_embed",
        )
    },
}  # fmt: skip
# Columns whose change hides the row from the caller, who then gets an error that it does not exist.
HIDES = {("conversations", "tenant"), ("conversations", "id"), ("conversations", "gone")}


@dataclass
class Scene:
    """A conversation with rows in every table, and a superuser's connection that tampers with them."""

    store: Store
    id: str
    cid: int
    villain: asyncpg.Connection[Any]

    async def verdict(self, id: str | None = None) -> palaver.VerificationFailed | None:
        """Return what `verify` reports, even when the conversation's own row cannot be read."""
        now = datetime.now(UTC)
        info = palaver.ConversationInfo(id=id or self.id, tenant="acme", owner="ada", created=now, updated=now)
        try:
            await conversation_of(self.store.scoped(Scope.of("acme", None)), info).verify()
        except palaver.VerificationFailed as problem:
            return problem
        return None

    @asynccontextmanager
    async def undone(self, *tables: str) -> AsyncIterator[None]:
        """Restore these tables at the end of the block."""
        kept = {
            table: [row[0] for row in await self.villain.fetch(f"SELECT o::text FROM palaver.{table} o")]
            for table in tables
        }
        try:
            yield
        finally:
            for table, rows in kept.items():
                again = f"SELECT (r::palaver.{table}).* FROM unnest($1::text[]) AS r"
                await self.villain.execute(f"DELETE FROM palaver.{table}")
                await self.villain.execute(f"INSERT INTO palaver.{table} {again}", rows)


@pytest.fixture
async def scene(postgres_database: str, tmp_path: Path) -> AsyncIterator[Scene]:
    options: dict[str, Any] = {"files": tmp_path, "stream_lease": 3_600, "worker": False}
    villain = await asyncpg.connect(postgres_database)
    await villain.execute("SET session_replication_role = replica")  # disables foreign keys
    async with palaver.open(postgres_database, tenant="acme", user="ada", **options) as store:
        talk = await store.conversation("k", title="Title", workspace="w", agent="bot", model="m", metadata={"a": 1})
        await talk.update(participants=["bob"], settings={"facts": True}, ttl=10**7)
        await fill(talk)
        await talk.verify()
        cid = await villain.fetchval("SELECT cid FROM palaver.conversations WHERE id = $1", talk.id)
        yield Scene(store, talk.id, cid, villain)
        await talk.verify()  # everything was restored
    await villain.close()


def others(value: Any) -> list[Any]:
    """Return values that differ as little as possible."""
    match value:
        case bool():
            return [not value]
        case None:
            return [1, "x", b"x"]
        case int():
            return [value + 1, None]
        case bytes():
            return [bytes([value[0] ^ 1]) + value[1:], None]
        case str():
            return [value[:-1] + chr(ord(value[-1]) ^ 1) if value else "x", None]
    return [[*value, "eve"]]


async def columns(scene: Scene, table: str) -> list[str]:
    sql = "SELECT attname FROM pg_attribute WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped"
    return [row[0] for row in await scene.villain.fetch(sql, f"palaver.{table}")]


@pytest.mark.parametrize("table", PROVED)
async def test_a_change_of_any_column_of_any_row_is_found(scene: Scene, table: str) -> None:
    missed, tried = [], set()
    key = {"turns": "seq", "events": "n", "conversations": "cid"}[table]
    for column in await columns(scene, table):
        if (table, column) in NOT_VOUCHED:
            continue
        sql = f"SELECT {key}, {column} FROM palaver.{table} WHERE tenant = 'acme' AND cid = {scene.cid}"
        for row, value in await scene.villain.fetch(sql):
            for other in others(value):
                found = await changed(scene, table, column, f"{key} = {row}", other)
                if found is not None:
                    tried.add(column)
                    if not found:
                        missed.append((column, row, other))
    assert missed == []
    assert tried == {column for column in await columns(scene, table) if (table, column) not in NOT_VOUCHED}


async def changed(scene: Scene, table: str, column: str, row: str, value: Any) -> bool | None:
    """Return whether a change is found; None where the schema itself refuses it."""
    where = f"tenant = 'acme' AND cid = {scene.cid} AND {row}"
    async with scene.undone(table):
        try:
            await scene.villain.execute(f"UPDATE palaver.{table} SET {column} = $1 WHERE {where}", value)
        except (asyncpg.IntegrityConstraintViolationError, asyncpg.DataError):
            return None
        try:
            problem = await scene.verdict()
        except (palaver.NotFound, palaver.Gone):
            return (table, column) in HIDES
        if problem is None:
            return False
        assert problem.conversation == scene.id
        if table == "events" and column not in ("cid", "n", "tenant"):
            assert problem.row == f"event {row.split()[-1]}", "the first bad row is named"
        return problem.row.split()[0] in ("turn", "event", "conversation", "attachment", "attachments")


@pytest.mark.parametrize(
    ("table", "column"),
    [
        *(("conversations", name) for name in ("participants", "metadata", "settings")),
        *(("turns", name) for name in ("content", "tool_calls", "tool_results", "attachments", "sources", "metadata")),
    ],
)
async def test_every_reader_names_damaged_json(scene: Scene, table: str, column: str) -> None:
    talk = await scene.store.get(scene.id)
    row = "TRUE" if table == "conversations" else "seq = 3"  # a turn in parts
    async with scene.undone(table):
        where = f"tenant = 'acme' AND cid = {scene.cid} AND {row}"
        await scene.villain.execute(f"UPDATE palaver.{table} SET {column} = 'z\"secret\":1}}' WHERE {where}")
        with pytest.raises(palaver.RowUnreadable, match="`palaver verify`") as told:
            await (scene.store.conversations() if table == "conversations" else talk.history())
        found = await scene.verdict()
        assert found is not None
        assert (told.value.conversation, told.value.row) == (scene.id, found.row)
        assert "secret" not in str(told.value)


async def test_a_row_that_is_gone_is_found_whichever_it_is(scene: Scene) -> None:
    for table, key in (("turns", "seq"), ("events", "n")):
        rows = await scene.villain.fetch(f"SELECT {key} FROM palaver.{table} WHERE cid = {scene.cid} ORDER BY 1")
        for (row,) in rows:
            where = f"tenant = 'acme' AND cid = {scene.cid} AND {key} = {row}"
            async with scene.undone(table):
                await scene.villain.execute(f"DELETE FROM palaver.{table} WHERE {where}")
                problem = await scene.verdict()
                assert problem is not None, (table, row)
                if table == "events" and row < len(rows):
                    assert problem.row == f"event {row + 1}"


async def test_a_log_that_was_cut_at_its_end_is_found_even_with_its_counters(scene: Scene) -> None:
    mine = f"tenant = 'acme' AND cid = {scene.cid}"
    last = await scene.villain.fetchval(f"SELECT max(n) FROM palaver.events WHERE {mine}")
    async with scene.undone("events", "conversations"):
        await scene.villain.execute(f"DELETE FROM palaver.events WHERE {mine} AND n = {last}")
        await scene.villain.execute(
            f"UPDATE palaver.conversations SET next_n = next_n - 1, tip_hash = "
            f"(SELECT hash FROM palaver.events WHERE {mine} AND n = {last - 1}) WHERE {mine}"
        )
        assert await scene.verdict() is not None


@pytest.mark.parametrize(
    ("table", "key", "column"),
    [("turns", "seq", "content"), ("turns", "seq", "id"), ("turns", "seq", "created"), ("events", "n", "hash")],
)
async def test_rows_that_changed_places_are_found(scene: Scene, table: str, key: str, column: str) -> None:
    one, two = (3, 4) if table == "events" else (0, 3)
    async with scene.undone(table):
        await scene.villain.execute(
            f"UPDATE palaver.{table} a SET {column} = b.{column} FROM palaver.{table} b WHERE a.tenant = b.tenant "
            f"AND a.cid = {scene.cid} AND b.cid = a.cid AND (a.{key}, b.{key}) IN (({one}, {two}), ({two}, {one}))"
        )
        problem = await scene.verdict()
        assert problem is not None
        assert problem.row.split()[0] == table.removesuffix("s")


async def test_a_turn_that_was_slipped_in_is_found(scene: Scene) -> None:
    mine = f"tenant = 'acme' AND cid = {scene.cid}"
    async with scene.undone("turns", "conversations"):
        await scene.villain.execute(
            f"""INSERT INTO palaver.turns SELECT (jsonb_populate_record(t, jsonb_build_object('id', 'FORGED',
              'tid', 999999, 'seq', c.next_seq, 'position', 999, 'idempotency_key', NULL))).*
            FROM palaver.turns t, palaver.conversations c
            WHERE t.tenant = 'acme' AND t.cid = {scene.cid} AND t.seq = 3 AND c.tenant = t.tenant AND c.cid = t.cid"""
        )
        await scene.villain.execute(
            f"UPDATE palaver.conversations SET next_seq = next_seq + 1, turn_count = turn_count + 1 WHERE {mine}"
        )
        problem = await scene.verdict()
        assert problem is not None
        assert "FORGED" in problem.row


async def test_a_changed_or_missing_row_of_a_file_is_found(scene: Scene) -> None:
    used = f"tenant = 'acme' AND cid = {scene.cid} AND tid IS NOT NULL"
    for change in (
        "filename = 'x'",
        "media_type = 'x'",
        "bytes = 3",
        "sha256 = 'x'",
        "path = 'x'",
        "id = 'x'",
        "tid = 3",
    ):
        async with scene.undone("attachments"):
            one = f"id = (SELECT min(id) FROM palaver.attachments WHERE {used})"
            await scene.villain.execute(f"UPDATE palaver.attachments SET {change} WHERE {used} AND {one}")
            problem = await scene.verdict()
            assert problem is not None, change
            assert problem.row.startswith("attachment"), change
    async with scene.undone("attachments"):
        await scene.villain.execute(f"DELETE FROM palaver.attachments WHERE {used}")
        assert await scene.verdict() is not None
