"""`verify` finds every change made behind Palaver's back, and names the row."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import apsw
import pytest

import palaver
from palaver import Conversation, Scope, Store
from palaver.conversations.internals import conversation_of
from palaver.engines.migrate import migrations

# Columns that `verify` does not vouch for, each with its reason.
NOT_VOUCHED = {
    ("conversations", "title_pid"): "a number of this file that leads into the text index, which is made from the rows",
    ("turns", "tid"): "a number of this file; what hangs on it, a turn's files, is found by those (tested below)",
    ("conversations", "title_made"): "whether a job wrote the title, which is proved; it only decides when that goes",
    **{
        ("conversations", name): "a figure of this file's memory or index, which are made from the rows"
        for name in (
            "revision", "marked", "summarized_position", "summarized_turns", "summarized_tokens", "passage_count",
            "passage_terms", "fact_count", "vector_count", "has_memory",
        )
    },
}  # fmt: skip
# Columns whose change hides the conversation from its owner: verify reports that it does not exist.
HIDES = {
    (
        "conversations",
        "tenant",
    ): "it is in another tenant now; an import puts it into one as well, so no hash covers it",
    ("conversations", "id"): "nobody asks for it by its new id; asked for by that, it fails (tested below)",
    ("conversations", "gone"): "it counts as deleted",
}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A conversation with everything in it, and its id. Tests change a copy."""
    return asyncio.run(_fill_original(tmp_path_factory.mktemp("original")))


async def _fill_original(folder: Path) -> tuple[Path, str]:
    async with opened(folder, embedder=None) as store:
        talk = await store.conversation("k", title="Title", workspace="w", agent="bot", model="m", metadata={"a": 1})
        await talk.update(participants=["bob"], settings={"facts": True}, ttl=10**7)
        await fill(talk)
        other = await store.conversation("other")
        await other.append("user", "elsewhere")
        await talk.verify()
        return folder, talk.id


async def fill(talk: Conversation) -> None:
    file = await talk.attach(b"bytes of a file", filename="a.txt")
    await talk.attach(b"never used", filename="b.txt")
    first = await talk.append("user", "one", metadata={"m": 1}, attachments=[file], idempotency_key="key")
    call = [{"id": "c1", "name": "look", "arguments": {"q": "x"}}]
    await talk.append("assistant", "", tool_calls=call, tokens={"prompt": 3, "completion": 4}, model="m", adapter="a")
    await talk.append("tool", "", tool_results=[{"id": "c1", "content": "found"}])
    await talk.append("user", [{"type": "text", "text": "parts"}], sources=[{"title": "s"}], finish_reason="stop")
    await talk.append("user", "one, better", replaces=first)
    branch = await talk.append("user", "five")
    await talk.append("user", "six")
    await talk.append("user", "five again", replaces=branch, discard_after=True)
    await talk.switch(branch)
    done = await talk.append_open("assistant", metadata={"n": 2})
    await talk.append_chunk(done, 0, "streamed ")
    await talk.append_chunk(done, 1, "to the end")
    await talk.append_commit(done, model="m2")
    cut = await talk.append_open("assistant")
    await talk.append_chunk(cut, 0, "cut here")
    await talk.append_abort(cut)
    secret = await talk.append("user", "secret", idempotency_key="secret")
    await talk.forget(secret)
    pending = await talk.append_open("user", actor="ada", metadata={"p": 1}, idempotency_key="open")
    await talk.append_chunk(pending, 0, "still being ")
    await talk.append_chunk(pending, 1, "written")


def opened(folder: Path, **options: Any) -> Any:
    url = f"sqlite:///{folder}/c.db?synchronous=NORMAL"
    return palaver.open(url, tenant="acme", user="ada", stream_lease=3_600, **options)


def writing(folder: Path) -> apsw.Connection:
    """A connection that bypasses Palaver."""
    db = apsw.Connection(f"{folder}/c.db")
    db.execute("PRAGMA foreign_keys = OFF")
    db.execute("PRAGMA ignore_check_constraints = ON")
    return db


def copied(original: tuple[Path, str], tmp_path: Path, name: str = "copy") -> Path:
    folder = tmp_path / name
    shutil.copytree(original[0], folder)
    return folder


async def verdict(folder: Path, id: str) -> palaver.VerificationFailed | None:
    """Return what `verify` finds. It need not be able to read the conversation's own row to ask."""
    async with opened(folder) as store:
        info = palaver.ConversationInfo(
            id=id, tenant="acme", owner="ada", created=datetime.now(UTC), updated=datetime.now(UTC)
        )
        try:
            await conversation_of(store.scoped(Scope.of("acme", None)), info).verify()
        except palaver.VerificationFailed as problem:
            return problem
        return None


async def tampered(original: tuple[Path, str], tmp_path: Path, change: Callable[[apsw.Connection], Any]) -> str:
    """Return the message of `verify` on a copy after `change`; empty when it finds nothing."""
    folder = copied(original, tmp_path)
    db = writing(folder)
    change(db)
    db.close()
    problem = await verdict(folder, original[1])
    return str(problem) if problem else ""


# ---- every column of every row -------------------------------------------------------------------------------------


def columns(table: str) -> list[str]:
    """Return the columns of a table after all migrations."""
    db = apsw.Connection(":memory:")
    for step in migrations("palaver.engines.sqlite.migrations"):
        db.execute(step.sql)
    return [row[1] for row in db.execute(f"PRAGMA table_info({table})")]


def other_values(value: Any) -> list[Any]:
    """Values that differ by as little as possible."""
    if value is None:
        return [1, "x", b"x"]
    if isinstance(value, int):
        return [value + 1, value + 1_000, None]
    if isinstance(value, bytes):
        return [bytes([value[0] ^ 1]) + value[1:], None]
    flipped = value[:-1] + chr(ord(value[-1]) ^ 1) if value else "x"
    return [flipped, value + " ", None]


def attempts(db: apsw.Connection, table: str, column: str) -> list[tuple[int, Any]]:
    """Every row's number with every value that this column would accept there."""
    rowid = "n" if table == "events" else "rowid"
    where = "WHERE cid = 1"
    rows = db.execute(f"SELECT {rowid}, {column} FROM {table} {where}").fetchall()
    return [(row, other) for row, value in rows for other in other_values(value)]


def change(db: apsw.Connection, table: str, column: str, row: int, value: Any) -> bool:
    """False where the schema itself refuses."""
    key = "cid = 1 AND n = ?" if table == "events" else "rowid = ?"
    try:
        db.execute(f"UPDATE {table} SET {column} = ? WHERE {key}", (value, row))
    except (apsw.ConstraintError, apsw.MismatchError):
        return False
    return db.changes() == 1


COLUMNS = [(table, column) for table in ("turns", "events", "conversations") for column in columns(table)]


def test_every_exception_is_a_column() -> None:
    assert NOT_VOUCHED.keys() | HIDES.keys() <= set(COLUMNS)


@pytest.mark.costly
@pytest.mark.parametrize(
    ("table", "column"), [one for one in COLUMNS if one not in NOT_VOUCHED], ids=lambda value: value
)
async def test_a_change_of_any_column_of_any_row_is_found(
    original: tuple[Path, str], tmp_path: Path, table: str, column: str
) -> None:
    folder = copied(original, tmp_path)
    before = (folder / "c.db").read_bytes()
    reader = writing(folder)
    wanted = attempts(reader, table, column)
    reader.close()
    missed = []
    tried = 0
    for row, value in wanted:
        (folder / "c.db").write_bytes(before)
        db = writing(folder)
        changed = change(db, table, column, row, value)
        db.close()
        if not changed:
            continue
        tried += 1
        if not await noticed(folder, original[1], table, column, row):
            missed.append((row, value))
    assert tried, "the schema refuses every change: then say so here"
    assert missed == []


async def noticed(folder: Path, id: str, table: str, column: str, row: int) -> bool:
    try:
        problem = await verdict(folder, id)
    except (palaver.NotFound, palaver.Gone):
        return (table, column) in HIDES
    if problem is None:
        return False
    assert problem.conversation == id
    assert problem.row.split()[0] in ("turn", "event", "conversation", "attachment", "attachments"), problem.row
    if table == "events" and column not in ("cid", "n"):
        assert problem.row == f"event {row}", "the first bad row is named"
    return True


async def test_a_conversation_under_another_id_does_not_verify(original: tuple[Path, str], tmp_path: Path) -> None:
    folder = copied(original, tmp_path)
    db = writing(folder)
    db.execute("UPDATE conversations SET id = 'another' WHERE cid = 1")
    db.close()
    assert await verdict(folder, "another") is not None


# ---- rows that come, go and change places --------------------------------------------------------------------------


async def test_a_deleted_turn_is_found_whichever_it_is(original: tuple[Path, str], tmp_path: Path) -> None:
    tids = [row[0] for row in writing(original[0]).execute("SELECT tid FROM turns WHERE cid = 1")]
    for tid in tids:
        gone = str(tid)
        said = await tampered(
            original, tmp_path / gone, lambda db, tid=tid: db.execute(f"DELETE FROM turns WHERE tid={tid}")
        )
        assert "turn" in said, tid


async def test_a_deleted_event_is_found_whichever_it_is(original: tuple[Path, str], tmp_path: Path) -> None:
    (last,) = writing(original[0]).execute("SELECT max(n) FROM events WHERE cid = 1").fetchall()[0]
    for n in range(1, last + 1):
        said = await tampered(
            original, tmp_path / str(n), lambda db, n=n: db.execute(f"DELETE FROM events WHERE cid = 1 AND n = {n}")
        )
        assert said, n
        if n < last:
            assert f"event {n + 1}" in said


async def test_a_log_that_was_cut_at_its_end_is_found_even_with_its_counters(
    original: tuple[Path, str], tmp_path: Path
) -> None:
    def cut(db: apsw.Connection) -> None:
        db.execute("DELETE FROM events WHERE cid = 1 AND n = (SELECT max(n) FROM events WHERE cid = 1)")
        db.execute(
            "UPDATE conversations SET next_n = next_n - 1, "
            "tip_hash = (SELECT hash FROM events WHERE cid = 1 ORDER BY n DESC LIMIT 1) WHERE cid = 1"
        )

    assert await tampered(original, tmp_path, cut)


@pytest.mark.parametrize("column", ["seq", "position", "id", "content"])
async def test_two_turns_that_changed_places_are_found(original: tuple[Path, str], tmp_path: Path, column: str) -> None:
    def swap(db: apsw.Connection) -> None:
        where = "cid = 1 AND role = 'user' AND status = 'complete' AND active = 1"
        rows = db.execute(f"SELECT tid, {column} FROM turns WHERE {where} ORDER BY seq LIMIT 2").fetchall()
        (one, first), (two, second) = rows
        spare = -1 if isinstance(first, int) else "spare"
        db.execute(f"UPDATE turns SET {column} = ? WHERE tid = ?", (spare, one))
        db.execute(f"UPDATE turns SET {column} = ? WHERE tid = ?", (first, two))
        db.execute(f"UPDATE turns SET {column} = ? WHERE tid = ?", (second, one))

    assert ", turn 0" in await tampered(original, tmp_path, swap)


async def test_two_events_that_changed_places_are_found(original: tuple[Path, str], tmp_path: Path) -> None:
    def swap(db: apsw.Connection) -> None:
        db.execute("UPDATE events SET n = -1 WHERE cid = 1 AND n = 4")
        db.execute("UPDATE events SET n = 4 WHERE cid = 1 AND n = 5")
        db.execute("UPDATE events SET n = 5 WHERE cid = 1 AND n = -1")

    assert "event 4" in await tampered(original, tmp_path, swap)


def insert_copy(db: apsw.Connection, table: str, where: str, **changes: Any) -> None:
    names = [row[1] for row in db.execute(f"PRAGMA table_info({table})") if row[1] != "tid"]
    values = ", ".join(f":{name}" if name in changes else name for name in names)
    db.execute(f"INSERT INTO {table} ({', '.join(names)}) SELECT {values} FROM {table} WHERE {where}", changes)


async def test_an_inserted_turn_is_found(original: tuple[Path, str], tmp_path: Path) -> None:
    def at_the_end(db: apsw.Connection) -> None:
        insert_copy(db, "turns", "cid = 1 AND seq = 3", seq=99, position=99, id="FORGED")

    def next_in_line(db: apsw.Connection) -> None:
        (seq,) = db.execute("SELECT next_seq FROM conversations WHERE cid = 1").fetchall()[0]
        insert_copy(db, "turns", "cid = 1 AND seq = 3", seq=seq, position=99, id="FORGED")
        db.execute("UPDATE conversations SET next_seq = next_seq + 1, turn_count = turn_count + 1 WHERE cid = 1")

    assert "FORGED" in await tampered(original, tmp_path / "a", at_the_end)
    assert "FORGED" in await tampered(original, tmp_path / "b", next_in_line)


async def test_an_inserted_event_is_found(original: tuple[Path, str], tmp_path: Path) -> None:
    def insert(db: apsw.Connection) -> None:
        (n,) = db.execute("SELECT next_n FROM conversations WHERE cid = 1").fetchall()[0]
        insert_copy(db, "events", "cid = 1 AND n = 5", n=n)
        db.execute("UPDATE conversations SET next_n = next_n + 1 WHERE cid = 1")

    said = await tampered(original, tmp_path, insert)
    assert "event" in said


async def test_a_turn_moved_to_another_conversation_is_found_in_both(
    original: tuple[Path, str], tmp_path: Path
) -> None:
    folder = copied(original, tmp_path)
    db = writing(folder)
    (other,) = db.execute("SELECT id FROM conversations WHERE cid = 2").fetchall()[0]
    db.execute("UPDATE turns SET cid = 2, seq = 1, position = 1 WHERE cid = 1 AND seq = 3")
    db.close()
    here, there = await verdict(folder, original[1]), await verdict(folder, other)
    assert here is not None
    assert there is not None
    assert "turn" in here.row
    assert "turn" in there.row


@pytest.mark.parametrize(
    "change",
    [
        "INSERT INTO participants (actor, cid) VALUES ('mallory', 1)",
        "UPDATE participants SET actor = 'mallory' WHERE cid = 1",
        "DELETE FROM participants WHERE cid = 1",
        "UPDATE participants SET cid = 2 WHERE cid = 1",
    ],
)
async def test_changed_participants_are_found(original: tuple[Path, str], tmp_path: Path, change: str) -> None:
    assert "participants may see it" in await tampered(original, tmp_path, lambda db: db.execute(change))


# ---- files ---------------------------------------------------------------------------------------------------------


def blob(folder: Path, content: bytes) -> Path:
    return next(path for path in (folder / "c.db-files").rglob("*.txt") if path.read_bytes() == content)


@pytest.mark.parametrize("content", [b"bytes of a file", b"never used"])
async def test_changed_or_missing_bytes_of_a_file_are_found(
    original: tuple[Path, str], tmp_path: Path, content: bytes
) -> None:
    folder = copied(original, tmp_path)
    file = blob(folder, content)
    file.write_bytes(content[:-1] + b"!")
    problem = await verdict(folder, original[1])
    assert problem is not None
    assert problem.row.startswith("attachment ")
    file.unlink()
    problem = await verdict(folder, original[1])
    assert problem is not None
    assert problem.row.startswith("attachment ")


@pytest.mark.parametrize("column", ["tid", "id", "filename", "media_type", "bytes", "sha256", "path"])
async def test_a_changed_row_of_a_turns_file_is_found(original: tuple[Path, str], tmp_path: Path, column: str) -> None:
    def touch(db: apsw.Connection) -> None:
        value = "3" if column in ("tid", "bytes") else "'x'"
        one = "SELECT min(id) FROM attachments WHERE tid IS NOT NULL"
        db.execute(f"UPDATE attachments SET {column} = {value} WHERE id = ({one})")

    assert "attachment" in await tampered(original, tmp_path, touch)


async def test_a_deleted_row_of_a_turns_file_is_found(original: tuple[Path, str], tmp_path: Path) -> None:
    said = await tampered(original, tmp_path, lambda db: db.execute("DELETE FROM attachments WHERE tid IS NOT NULL"))
    assert "attachment" in said


# ---- what a reset leaves -------------------------------------------------------------------------------------------


async def test_a_change_of_what_a_reset_left_is_found(tmp_path: Path) -> None:
    folder = tmp_path / "original"
    folder.mkdir()
    async with opened(folder) as store:
        id = await reset_conversation(store)
    for sql in (
        "role = 'system'",
        "actor = 'eve'",
        "created = created + 1",
        "idempotency_key = NULL",
        "content = 'words'",
        "metadata = '{}'",
        "token_count = 1",
        "salt = x'00'",
        "content_hash = NULL",
    ):
        one = f"UPDATE turns SET {sql} WHERE seq = 1"
        said = await tampered((folder, id), tmp_path / str(abs(hash(sql))), lambda db, one=one: db.execute(one))
        assert "turn" in said or "event" in said, sql


async def reset_conversation(store: Store) -> str:
    talk = await store.conversation("k")
    for n in range(3):
        await talk.append("user", f"words {n}", idempotency_key=f"key {n}")
    await talk.forget((await talk.history())[0])
    await talk.reset()
    await talk.append("user", "after")
    await talk.verify()
    return talk.id
