"""Rows damaged so that they cannot be decoded: `verify` names them, and reads raise an error that names them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

import palaver
from palaver import Conversation, Store
from palaver.conversations.internals import conversation_of
from palaver.errors import PalaverError, RowUnreadable
from palaver.testing import FakeClock
from tests.audit.test_tampering import columns, copied, opened, verdict, writing
from tests.audit.test_tampering import original as original

DAMAGES = {"no JSON": "'z\"secret\":1}'", "no text": "CAST(x'736563726574e96c6c6f' AS TEXT)"}
# In the others any text can be read, and `verify` sees that it is another (see test_tampering).
JSON = {
    "conversations": ("participants", "metadata", "settings"),
    "turns": ("content", "tool_calls", "tool_results", "attachments", "sources", "metadata"),
}
# Columns whose change hides the conversation from its owner (see test_tampering).
HIDES = {("conversations", "tenant"), ("conversations", "id")}
SEQ = 3  # of the turn that is damaged: its content is a list of parts


def text_columns(table: str) -> list[str]:
    db = apsw.Connection(":memory:")
    db.execute((Path(palaver.__file__).parent / "engines/sqlite/migrations/0001_spine.sql").read_text())
    found = [row[1] for row in db.execute(f"PRAGMA table_info({table})") if row[2] == "TEXT"]
    assert set(found) < set(columns(table))
    return found


ALL = [
    (table, column, damage)
    for table in ("conversations", "turns")
    for column in text_columns(table)
    if (table, column) not in HIDES
    for damage in DAMAGES
    if damage == "no text" or column in JSON[table]
]


def damaged(folder: Path, table: str, column: str, damage: str) -> str:
    """Damage one row. Returns the name that `verify` should give it."""
    row = "cid = 1" + (f" AND seq = {SEQ}" if table == "turns" else "")
    db = writing(folder)
    db.execute(f"UPDATE {table} SET {column} = {DAMAGES[damage]} WHERE {row}")
    assert db.changes() == 1
    ((name,),) = db.execute(f"SELECT CAST(id AS BLOB) FROM {table} WHERE {row}").fetchall()
    db.close()
    return "conversation" if table == "conversations" else f"turn {name.decode(errors='replace')} (seq {SEQ})"


@asynccontextmanager
async def reading(folder: Path, id: str) -> AsyncIterator[tuple[Store, Conversation]]:
    """The store, and the conversation as one has it who got it before the damage."""
    async with opened(folder, worker=False) as store:
        (info,) = [one for one in (await store.conversations()).items if one.id == id]
        yield store, conversation_of(store, info)


async def told(read: Awaitable[Any]) -> PalaverError | None:
    """Return the message of a failed read. Anything but our own errors passes through, and fails the test."""
    try:
        await read
    except StopAsyncIteration:
        return None
    except PalaverError as problem:
        return problem
    return None


# ---- verify --------------------------------------------------------------------------------------------------------


@pytest.mark.costly
@pytest.mark.parametrize(("table", "column", "damage"), ALL)
async def test_verify_names_a_row_that_cannot_be_read(
    original: tuple[Path, str], tmp_path: Path, table: str, column: str, damage: str
) -> None:
    folder = copied(original, tmp_path)
    name = damaged(folder, table, column, damage)
    problem = await verdict(folder, original[1])
    assert problem is not None
    assert (problem.conversation, problem.row) == (original[1], name)
    assert "secret" not in str(problem).replace(name, "")


@pytest.mark.parametrize("column", ["kind", "turn", "actor", "payload"])
async def test_verify_names_an_event_that_cannot_be_read(
    original: tuple[Path, str], tmp_path: Path, column: str
) -> None:
    folder = copied(original, tmp_path)
    db = writing(folder)
    db.execute(f"UPDATE events SET {column} = {DAMAGES['no text']} WHERE cid = 1 AND n = 4")
    db.close()
    problem = await verdict(folder, original[1])
    assert problem is not None
    assert problem.row == "event 4"


async def test_verify_names_the_row_of_a_file_that_cannot_be_read(original: tuple[Path, str], tmp_path: Path) -> None:
    folder = copied(original, tmp_path)
    db = writing(folder)
    db.execute(f"UPDATE attachments SET filename = {DAMAGES['no text']} WHERE tid IS NULL")
    ((id,),) = db.execute("SELECT id FROM attachments WHERE tid IS NULL").fetchall()
    db.close()
    problem = await verdict(folder, original[1])
    assert problem is not None
    assert problem.row == f"attachment {id}"


async def test_verify_names_the_first_bad_row_before_one_that_cannot_be_read(
    original: tuple[Path, str], tmp_path: Path
) -> None:
    folder = copied(original, tmp_path)
    db = writing(folder)
    db.execute("UPDATE turns SET content = 'changed' WHERE cid = 1 AND seq = 1")
    db.close()
    damaged(folder, "turns", "content", "no text")
    problem = await verdict(folder, original[1])
    assert problem is not None
    assert problem.row.endswith("(seq 1)")


# ---- everything else -----------------------------------------------------------------------------------------------

READS: dict[str, Callable[[Store, Conversation], Awaitable[Any]]] = {
    "get": lambda store, talk: store.get(talk.id),
    "find": lambda store, talk: store.find("k"),
    "open": lambda store, talk: store.conversation("k"),
    "list": lambda store, talk: store.conversations(),
    "search": lambda store, talk: store.search("parts"),
    "history": lambda store, talk: talk.history(),
    "everything": lambda store, talk: talk.history(1_000, include_superseded=True),
    "branches": lambda store, talk: talk.branches(),
    "matches": lambda store, talk: talk.search("parts"),
    "recall": lambda store, talk: talk.recall("parts").__aiter__().__anext__(),
    "context": lambda store, talk: talk.build_context(token_budget=10_000),
    "audit": lambda store, talk: talk.audit(),
    "records": lambda store, talk: _exhausted(talk),
    "update": lambda store, talk: talk.update(title="Another"),
    "append": lambda store, talk: talk.append("user", "more", idempotency_key="key"),
    "reset": lambda store, talk: talk.reset(),
}


MEET = {"conversations": {"get", "find", "list"}, "turns": {"history", "everything", "context", "records"}}
# These look it up by the column, and find nothing; or have no use for it; or take it as it is stored.
SPARED = {
    ("key", "no text"): {"find"},
    ("tip_slot", "no text"): {"list"},
    **{(column, "no JSON"): {"records"} for column in JSON["turns"]},
}


async def _exhausted(talk: Conversation) -> None:
    async for _ in talk.records():
        pass


@pytest.mark.costly
@pytest.mark.parametrize(("table", "column", "damage"), [one for one in ALL if "owner" not in one])
async def test_reading_such_a_row_raises_an_error_of_ours(
    original: tuple[Path, str], tmp_path: Path, table: str, column: str, damage: str
) -> None:
    folder = copied(original, tmp_path)
    async with reading(folder, original[1]) as (store, talk):
        name = damaged(folder, table, column, damage)
        said = {verb: await told(read(store, talk)) for verb, read in READS.items()}
    for problem in filter(None, said.values()):
        assert "secret" not in str(problem).replace(name, "")
        assert problem.__cause__ is None, "what is chained to it may quote the row"
    for verb in MEET[table] - SPARED.get((column, damage), set()):
        problem = said[verb]
        assert isinstance(problem, RowUnreadable), (verb, problem)
        assert problem.row == name
        assert table == "turns" or problem.conversation == original[1]
        assert "palaver verify" in str(problem)


@pytest.mark.parametrize("value", ["'[]'", "'1'", "'null'", "'\"x\"'"])
@pytest.mark.parametrize("column", ["metadata", "settings"])
async def test_json_of_another_form_is_damage_too(
    original: tuple[Path, str], tmp_path: Path, column: str, value: str
) -> None:
    folder = copied(original, tmp_path)
    db = writing(folder)
    db.execute(f"UPDATE conversations SET {column} = {value} WHERE cid = 1")
    db.close()
    async with opened(folder) as store:
        with pytest.raises(RowUnreadable, match=original[1]):
            await store.conversations()


async def test_a_damaged_stream_without_a_writer_keeps_nobody_from_opening_the_file(tmp_path: Path) -> None:
    clock = FakeClock()
    async with opened(tmp_path, clock=clock) as store:
        damaged, whole = await store.conversation("damaged"), await store.conversation("whole")
        await damaged.append_open("assistant")
        cut = await whole.append_open("assistant")
    db = writing(tmp_path)
    db.execute(f"UPDATE turns SET actor = {DAMAGES['no text']} WHERE cid = 1")
    db.close()
    clock.advance(7_200)
    async with opened(tmp_path, clock=clock) as store:
        assert (await (await store.conversation("whole")).turn(cut)).status == "aborted"
        with pytest.raises(palaver.VerificationFailed):
            await (await store.conversation("damaged")).verify()
