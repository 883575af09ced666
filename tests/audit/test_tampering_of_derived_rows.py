"""`verify` finds every change of what is derived from turns, and of requests; and no context uses a changed row.

Tables and columns are read from the schema, so that a new one has to be found or listed here with its reason.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import apsw
import asyncpg
import pytest

import palaver
from palaver import Conversation, Store
from palaver.conversations.internals import engine_of, worker_of
from palaver.core.identity import new_id
from palaver.memory.worker.jobs.repair import repair_conversation
from palaver.model import ItemSource, MemoryItem, Request, Scope, Tip
from palaver.ports.subjects import ItemsDraft
from tests.support.memory import url

pytestmark = pytest.mark.both_engines

ELSEWHERE = "its columns are changed one by one in test_tampering.py"
INDEX = "an index, made from the rows that are proved: it decides what is found, never which words are shown"
WORK = "work that is to be done, or is being done; it holds no words"
# Tables without a column whose change `verify` of a conversation finds, and why that does no harm to a prompt.
HARMLESS_TABLES = {
    **dict.fromkeys(("turns", "events", "conversations", "participants"), ELSEWHERE),
    **dict.fromkeys(("passages", "embeddings", "embedded", "marks", "embed_places"), INDEX),
    **dict.fromkeys(("turn_metadata", "conversation_metadata"), INDEX),
    **dict.fromkeys(("jobs", "streams", "answer_places", "doomed_blobs"), WORK),
    "request_quotes": "decides which bodies of requests are deleted with a turn; it holds no words",
    "derived_counts": "how many rows there should be; a number that is too high starts a repair",
    "set_aside": "damaged rows that were taken out of use",
    "counter_bounds": "how a provider counts tokens, measured again with each request",
    "meta": "how far the index of this file is",
    "seals": "signatures over logs, which are checked with their key",
    "api_keys": "are no part of a conversation",
    "key_events": "have a hash chain of their own",
    **dict.fromkeys(("budgets", "budget_use", "leases"), "are no part of a conversation"),
    **dict.fromkeys(("erasures", "erased_items"), "digests of erased names; they hold no words"),
}
VANISHES = "then it is not there any more: an item vanishes with the last turn that says it, without an event"
NUMBER = "a number of this database, which only orders rows"
HARMLESS = {
    ("attachments", "aid"): NUMBER,
    ("attachments", "owner"): "who uploaded it; the turn that has the file is proved",
    ("attachments", "created"): "when it was uploaded; the turn that has the file is proved",
    ("summaries", "sid"): NUMBER,
    ("working_memory", "updated"): "when it was written; the event says so, too",
    ("facts", "fid"): NUMBER,
    ("facts", "vector"): INDEX,
    ("facts", "model"): "of its vector",
    ("file_passages", "fid"): NUMBER,
    ("requests", "rid"): NUMBER,
    ("items", "iid"): NUMBER,
    **dict.fromkeys([("items", "cid"), ("item_sources", "cid")], VANISHES),
}
ONLY_POSTGRES = {
    **dict.fromkeys([("items", "tenant"), ("item_sources", "tenant")], VANISHES),
    ("item_sources", "source_cid"): "where the turn is looked for when it is deleted; its id is proved",
}
# A body is deleted with any turn that it may quote, also of another conversation: that one is missing is not found.
MAY_BE_CLEARED = {("requests", "body")}


class Villain(Protocol):
    """Changes rows without Palaver."""

    async def tables(self) -> list[str]: ...

    async def columns(self, table: str) -> dict[str, bool]:
        """Return the columns, and whether each is part of the key."""
        ...

    async def rows(self, table: str) -> list[dict[str, Any]]: ...

    async def update(self, table: str, where: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
        """Return whether the schema allows it."""
        ...

    async def run(self, sql: str) -> None: ...

    async def drop_triggers(self) -> None: ...


class SqliteVillain:
    def __init__(self, path: Path) -> None:
        self.db = apsw.Connection(str(path))
        self.db.execute("PRAGMA foreign_keys = OFF; PRAGMA busy_timeout = 10000")

    async def drop_triggers(self) -> None:
        """Deleting a request deletes the salts of its hashes: not if it is to be put back."""
        self.db.execute("DROP TRIGGER request_goes")

    async def tables(self) -> list[str]:
        sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
        names = [row[0] for row in self.db.execute(sql)]
        return [name for name in names if not name.startswith("text_index")]  # the tables of FTS5: an index

    async def columns(self, table: str) -> dict[str, bool]:
        return {row[1]: bool(row[5]) for row in self.db.execute(f"PRAGMA table_info({table})").fetchall()}

    async def rows(self, table: str) -> list[dict[str, Any]]:
        names = list(await self.columns(table))
        found = self.db.execute(f"SELECT {', '.join(names)} FROM {table}").fetchall()
        return [dict(zip(names, row, strict=True)) for row in found]

    async def update(self, table: str, where: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
        sets = ", ".join(f"{name} = ?" for name in values)
        key = " AND ".join(f"{name} IS ?" for name in where)
        try:
            self.db.execute(f"UPDATE {table} SET {sets} WHERE {key}", (*values.values(), *where.values()))
        except (apsw.ConstraintError, apsw.MismatchError):
            return False
        return self.db.changes() == 1

    async def run(self, sql: str) -> None:
        self.db.execute(sql.replace("palaver.", "")).fetchall()


class PostgresVillain:
    def __init__(self, connection: Any) -> None:
        self.connection = connection

    async def drop_triggers(self) -> None:
        """Do nothing: its session has none."""

    async def tables(self) -> list[str]:
        found = await self.connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'palaver'")
        return [row[0] for row in found]

    async def columns(self, table: str) -> dict[str, bool]:
        sql = """SELECT a.attname, a.attnum = ANY (i.indkey) FROM pg_attribute a
          JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
          WHERE a.attrelid = $1::text::regclass AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""
        return {row[0]: row[1] for row in await self.connection.fetch(sql, f"palaver.{table}")}

    async def rows(self, table: str) -> list[dict[str, Any]]:
        return [dict(row) for row in await self.connection.fetch(f"SELECT * FROM palaver.{table}")]

    async def update(self, table: str, where: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
        sets = ", ".join(f'"{name}" = ${at}' for at, name in enumerate(values, 1))
        key = " AND ".join(f'"{name}" = ${at}' for at, name in enumerate(where, len(values) + 1))
        sql = f"UPDATE palaver.{table} SET {sets} WHERE {key}"
        try:
            return bool((await self.connection.execute(sql, *values.values(), *where.values())) == "UPDATE 1")
        except (asyncpg.IntegrityConstraintViolationError, asyncpg.DataError, asyncpg.UndefinedFunctionError):
            return False

    async def run(self, sql: str) -> None:
        await self.connection.execute(sql)


@dataclass
class Scene:
    """A conversation with every kind of derived row, and a connection that changes them."""

    store: Store
    talk: Conversation
    villain: Villain

    async def verdict(self) -> str:
        """Return which row `verify` names; empty when it finds nothing."""
        try:
            await self.talk.verify()
        except palaver.VerificationFailed as problem:
            return problem.row
        except palaver.AttachmentNotFound:  # the bytes of a file are not at the path that its row says
            return "attachment"
        return ""


async def fill(talk: Conversation, store: Store) -> None:
    for n in range(4):
        await talk.append("user", f"Please always write in British English. Day {n}: I live in Lisbon and like trains.")
        await talk.append("assistant", f"Noted for day {n}: you live in Lisbon.", actor="bot")
    file = await talk.attach(b"The contract ends in May.", filename="contract.txt", media_type="text/plain")
    turn = await talk.append("user", "Here is the contract.", attachments=[file])
    await talk.remember("requirements", "Ada prefers the aisle seat.")
    await talk.extract_facts()
    await talk.compact(keep_tokens=40)
    await store.settle()
    sent = Request(
        id=new_id(),
        conversation=talk.id,
        turn=turn.id,
        purpose="generate",
        at=turn.created,
        model="m",
        adapter="a",
        body={"messages": ["hello"]},
        explanation={"n": 1},
        response={"id": "r"},
    )
    await engine_of(store).put_request(store.scope, talk.id, sent, None)
    item = MemoryItem(
        id=new_id(),
        kind="fact",
        subject="ada",
        predicate="lives in",
        object="Lisbon",
        valid_from=turn.created,
        learnt_at=turn.created,
        origin="said",
        sources=(ItemSource(conversation=talk.id, turn=turn.id, said=turn.created),),
    )
    await engine_of(store).put_items(store.scope, talk.id, ItemsDraft(event="learn", new=(item,)))


@pytest.fixture
async def scene(request: pytest.FixtureRequest, engine: str, store: Store, tmp_path: Path) -> AsyncIterator[Scene]:
    talk = await store.conversation("k", participants=["bob"])
    await fill(talk, store)
    found = await talk.verify()
    assert (found.derived, found.unproven) == (8, 0), "summary, notes, fact, file, request, body, item, source"
    if engine == "sqlite":
        yield Scene(store, talk, SqliteVillain(Path(url(tmp_path).removeprefix("sqlite:///").partition("?")[0])))
    else:
        connection = await asyncpg.connect(request.getfixturevalue("postgres_database"))
        await connection.execute("SET session_replication_role = replica")  # disables foreign keys and triggers
        yield Scene(store, talk, PostgresVillain(connection))
        await connection.close()
    await talk.verify()  # everything was put back


def other_values(value: Any) -> list[Any]:
    """Return values that differ by as little as possible."""
    match value:
        case bool():
            return [not value]
        case None:
            return [1, "x", b"x"]
        case int():
            return [value + 1, None]
        case float():
            return [value / 2, None]
        case bytes():
            return [bytes([value[0] ^ 1]) + value[1:] if value else b"x", None]
    return [value[:-1] + chr(ord(value[-1]) ^ 1) if value else "x", None]


async def missed_changes(scene: Scene, table: str, column: str, keys: list[str]) -> tuple[int, list[Any]]:
    """Change one column of every row in turn. Returns how many changes the schema allowed, and which were not found."""
    tried, missed = 0, []
    for row in await scene.villain.rows(table):
        for value in other_values(row[column]):
            if value is None and (table, column) in MAY_BE_CLEARED:
                continue
            if not await scene.villain.update(table, {name: row[name] for name in keys}, {column: value}):
                continue
            tried += 1
            if not await scene.verdict():
                missed.append((row[column], value))
            now = {name: value if name == column else row[name] for name in keys}
            assert await scene.villain.update(table, now, {column: row[column]})
    return tried, missed


async def test_a_change_of_any_column_of_any_table_is_found_or_harmless(scene: Scene) -> None:
    missed, untried = {}, []
    for table in await scene.villain.tables():
        if table in HARMLESS_TABLES:
            continue
        columns = await scene.villain.columns(table)
        for column in columns:
            if (table, column) in HARMLESS or (table, column) in ONLY_POSTGRES:
                continue
            tried, found = await missed_changes(scene, table, column, [name for name in columns if columns[name]])
            if found:
                missed[table, column] = found
            if not tried:
                untried.append((table, column))
    assert missed == {}
    assert untried == [], "no row has it, or the schema refuses every change: then say so here"


async def test_every_harmless_column_is_a_column(scene: Scene, engine: str) -> None:
    known = {(table, one) for table in await scene.villain.tables() for one in await scene.villain.columns(table)}
    only_sqlite = {("summaries", "sid"), ("file_passages", "fid")}
    assert set(HARMLESS) - only_sqlite <= known if engine == "postgres" else set(HARMLESS) <= known


DERIVED = {
    "summaries": "summary 0/0",
    "working_memory": "working memory",
    "facts": "fact",
    "file_passages": "the text of attachment",
    "requests": "request",
}


@pytest.mark.parametrize("table", DERIVED)
async def test_a_deleted_row_is_named(scene: Scene, table: str) -> None:
    rows = await scene.villain.rows(table)
    await scene.villain.drop_triggers()
    await scene.villain.run(f"CREATE TABLE palaver.kept_rows AS SELECT * FROM palaver.{table}")
    await scene.villain.run(f"DELETE FROM palaver.{table}")
    assert rows
    assert (await scene.verdict()).startswith(DERIVED[table])
    await scene.villain.run(f"INSERT INTO palaver.{table} SELECT * FROM palaver.kept_rows")
    await scene.villain.run("DROP TABLE palaver.kept_rows")


@pytest.mark.parametrize(
    ("table", "change", "named"),
    [
        ("summaries", "level = 1, id = 'FORGED'", "summary 1/0"),
        ("facts", "id = 'FORGED', fid = 999", "fact FORGED"),
        ("requests", "id = 'FORGED', rid = 999", "request FORGED"),
        ("file_passages", "part = 100001", "the text of attachment"),
    ],
)
async def test_an_inserted_row_is_named(scene: Scene, table: str, change: str, named: str) -> None:
    columns = await scene.villain.columns(table)
    own = [name for name in columns if name not in ("sid", "fid") or (table == "facts" and name == "fid")]
    changed = dict(part.split(" = ") for part in change.split(", "))
    chosen = ", ".join(f'"{name}"' for name in own)
    values = ", ".join(changed.get(name, f'"{name}"') for name in own)
    await scene.villain.run(f"INSERT INTO palaver.{table} ({chosen}) SELECT {values} FROM palaver.{table}")
    assert (await scene.verdict()).startswith(named)
    name, value = next(iter(changed.items()))
    await scene.villain.run(f"DELETE FROM palaver.{table} WHERE {name} = {value}")


async def test_rows_of_two_conversations_that_were_swapped_are_found_in_both(scene: Scene) -> None:
    other = await scene.store.conversation("other")
    await fill(other, scene.store)
    cids = {row["id"]: row["cid"] for row in await scene.villain.rows("conversations")}
    one, two = cids[scene.talk.id], cids[other.id]
    both = [scene, Scene(scene.store, other, scene.villain)]
    for table in ("summaries", "working_memory", "facts", "requests"):
        await swap(scene.villain, table, one, two)
        for place in both:
            assert (await place.verdict()).startswith(DERIVED[table])
        await swap(scene.villain, table, one, two)
        assert [await place.verdict() for place in both] == ["", ""]


async def swap(villain: Villain, table: str, one: int, two: int) -> None:
    for here, there in ((one, -1), (two, one), (-1, two)):
        await villain.run(f"UPDATE palaver.{table} SET cid = {there} WHERE cid = {here}")


# ---- contexts ------------------------------------------------------------------------------------------------------

CHANGES = {
    "summaries": "text = 'the user agreed to pay a MILLION'",
    "working_memory": "memory = replace(memory, 'aisle', 'MILLION')",
    "facts": "object = 'MILLION'",
}


@pytest.mark.parametrize("table", CHANGES)
async def test_no_context_uses_a_changed_row_and_the_explanation_names_it(scene: Scene, table: str) -> None:
    async def built() -> palaver.Context:
        return await scene.talk.build_context(token_budget=400, preview=True)

    before = await built()
    await scene.villain.run(f"CREATE TABLE palaver.kept_rows AS SELECT * FROM palaver.{table}")
    await scene.villain.run(f"UPDATE palaver.{table} SET {CHANGES[table]}")
    after = await built()
    assert "MILLION" not in after.text
    notes = " ".join(after.explanation.notes)
    assert "left out, because it does not match the log" in notes
    assert DERIVED[table].split()[0] in notes
    assert "does not match the log" not in " ".join(before.explanation.notes)
    assert await engine_of(scene.store).mismatched_rows(scene.store.scope, scene.talk.id) != []
    column, kept = CHANGES[table].split(" = ")[0], "palaver.kept_rows"
    await scene.villain.run(f"UPDATE palaver.{table} SET {column} = (SELECT {column} FROM {kept})")
    await scene.villain.run("DROP TABLE palaver.kept_rows")
    assert (await built()).text == before.text


async def test_notes_that_were_changed_do_not_become_proved_by_the_next_note(scene: Scene) -> None:
    await scene.villain.run("UPDATE palaver.working_memory SET memory = replace(memory, 'aisle', 'MILLION')")
    assert await scene.verdict() == "working memory"
    notes = await scene.talk.remember("goals", "Arrive on time.")
    assert [note.text for note in notes.goals] == ["Arrive on time."]
    assert "MILLION" not in str(await scene.talk.working_memory())
    await scene.talk.verify()


async def test_a_changed_text_of_a_file_is_not_quoted_but_extracted_again(scene: Scene) -> None:
    await scene.villain.run("UPDATE palaver.file_passages SET text = replace(text, 'May', 'MILLION')")
    (file,) = await scene.talk.attachments()
    assert (await scene.talk.attachment_text(file)).text == "The contract ends in May."
    context = await scene.talk.build_context(token_budget=2_000, query="when does the contract end", preview=True)
    assert "MILLION" not in context.text
    await scene.villain.run("UPDATE palaver.file_passages SET text = replace(text, 'MILLION', 'May')")


# ---- what removes rows keeps the log in agreement ------------------------------------------------------------------


async def test_forgetting_and_starting_over_keep_the_log_in_agreement(scene: Scene) -> None:
    talk = scene.talk
    first, *_ = await talk.history(limit=100)
    await talk.forget(first)
    await talk.verify()
    await scene.store.settle()
    await talk.verify()
    await talk.forget_fact((await talk.facts())[0]) if await talk.facts() else None
    last = (await talk.history(limit=1))[0]
    await talk.append("user", "Something else.", replaces=last, discard_after=True)
    await talk.verify()
    await talk.reset()
    assert (await talk.verify()).derived == 0
    assert [row for row in await scene.villain.rows("proofs") if row["key"]] == [], "the salts are gone"


async def test_the_log_has_no_hash_that_a_forgotten_text_can_be_compared_with(scene: Scene) -> None:
    """The salt of a deleted row is deleted with it."""
    before = {row["key"] for row in await scene.villain.rows("proofs")}
    for fact in await scene.talk.facts():
        await scene.talk.forget_fact(fact)
    for turn in await scene.talk.history(limit=100):
        await scene.talk.forget(turn)
    left = {row["key"] for row in await scene.villain.rows("proofs")}
    assert {key.partition("/")[0] for key in before} == {
        "summary", "notes", "fact", "file", "request", "body", "item", "source",
    }  # fmt: skip
    assert {key.partition("/")[0] for key in left} <= {"summary", "notes", "request"}, (
        "stale, without words, or no words"
    )
    await scene.talk.verify()


async def test_archiving_keeps_what_the_log_says(scene: Scene) -> None:
    tip = (await scene.talk.audit())[-1]
    engine, scope = engine_of(scene.store), Scope.of(scene.store.scope.tenant, None)
    await engine.archive_log(scope, Tip(conversation=scene.talk.id, n=tip.n, hash=tip.hash), 0)
    found = await scene.talk.verify()
    assert (found.archived, found.derived) == (tip.n, 8)
    await scene.villain.run("UPDATE palaver.facts SET object = 'MILLION'")
    assert (await scene.verdict()).startswith("fact")
    await scene.villain.run("UPDATE palaver.facts SET object = 'Lisbon'")


# ---- databases of earlier versions ---------------------------------------------------------------------------------


async def test_rows_from_before_are_brought_in_once(scene: Scene) -> None:
    """The conversation looks as if an earlier version had written it: no event says anything of derived rows."""
    other = await scene.store.conversation("older")
    await fill(other, scene.store)
    engine, scope = engine_of(scene.store), scene.store.scope
    cid = next(row["cid"] for row in await scene.villain.rows("conversations") if row["id"] == other.id)
    await scene.villain.run(f"DELETE FROM palaver.proofs WHERE cid = {cid}")
    await scene.villain.run(f"UPDATE palaver.events SET payload = NULL WHERE cid = {cid} AND n = 1")
    assert [fact.object for fact in await other.facts()] == ["Lisbon"], "unproven rows are used"
    slices = 1
    while await engine.prove_rows(scope, other.id, 2):
        slices += 1
    assert slices == 5, "eight rows, two at a time, and an event that says that these were all"
    assert await engine.prove_rows(scope, other.id, 2) is False, "only once"
    assert await engine.mismatched_rows(scope, other.id) == []
    await scene.villain.run(f"UPDATE palaver.facts SET object = 'MILLION' WHERE cid = {cid}")
    assert await engine.mismatched_rows(scope, other.id) != []
    assert await other.facts() == []


# ---- repair --------------------------------------------------------------------------------------------------------


async def repaired(scene: Scene) -> None:
    """Repair what `palaver doctor` finds. Then `verify` is clean, and no forged word is left in use."""
    engine = engine_of(scene.store)
    assert await engine.find_damage(thorough=True)
    await repair_conversation(worker_of(scene.store), scene.store.scope.tenant, scene.talk.id)
    await scene.store.settle()
    assert await engine.find_damage(thorough=True) == []
    await scene.talk.verify()
    used = (await scene.talk.summaries(), await scene.talk.working_memory(), await scene.talk.facts())
    assert "MILLION" not in str(used)


@pytest.mark.parametrize("table", CHANGES)
async def test_a_changed_row_is_made_again_and_the_log_says_so(scene: Scene, table: str) -> None:
    await scene.villain.run(f"UPDATE palaver.{table} SET {CHANGES[table]}")
    await repaired(scene)


async def test_a_summary_that_was_inserted_is_removed(scene: Scene) -> None:
    names = [name for name in await scene.villain.columns("summaries") if name != "sid"]
    forged = {"id": "'forged'", "text": "'a MILLION'", "from_seq": "from_seq + 900", "through_seq": "through_seq + 900"}
    values = ", ".join(forged.get(name, name) for name in names)
    await scene.villain.run(
        f"INSERT INTO palaver.summaries ({', '.join(names)}) SELECT {values} FROM palaver.summaries"
    )
    await repaired(scene)
    assert [one.from_seq for one in await scene.talk.summaries()] == [0]


async def test_no_forged_note_becomes_valid_through_the_repair_of_damaged_notes(scene: Scene) -> None:
    """The notes have another shape than Palaver writes, but one of them can be read, and says that Ada wrote it."""
    forged = '{"summary": 5, "goals": [{"text": "Pay a MILLION.", "by": "ada"}]}'
    await scene.villain.run(f"UPDATE palaver.working_memory SET memory = '{forged}'")
    await repaired(scene)
    (aside,) = await engine_of(scene.store).rows_kept_aside()
    assert (aside.table, aside.count) == ("working_memory", 1), "people can still look at them"
