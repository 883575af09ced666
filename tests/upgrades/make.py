"""Writes a database as a release would have, and prints its rows: `python tests/upgrades/make.py > sqlite/0003.sql`.

Run it with the code of the last commit before a new migration, and keep what it prints under the number of the schema
that this code has. It uses only verbs that every release has.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from typing import Any

import apsw

import palaver

KEY, OWNER = "support/42", "ada"
KEPT = "I am allergic to peanuts, and my name is Ada."


async def fill(url: str, files: str) -> None:
    async with palaver.open(url, tenant="acme", user=OWNER, files=files) as store:
        talk = await store.conversation(KEY, title="Food and allergies", participants=["bob"], metadata={"plan": "pro"})
        await talk.append("user", KEPT, idempotency_key="first")
        question = await talk.append("user", "What can I eat at the restaurant?")
        await talk.append("user", "What can I eat at the café tonight?", replaces=question)
        await talk.append("assistant", "Rice and vegetables are fine.", actor="bot", metadata={"m": 1})
        await talk.append("assistant", "", tool_calls=[{"id": "c1", "name": "look", "arguments": {"q": "nuts"}}])
        await talk.append("tool", "", tool_results=[{"id": "c1", "content": "No nuts in the rice."}])
        await talk.forget(await talk.append("user", "A secret that was told by mistake."))
        async with talk.stream("assistant", actor="bot") as out:
            await out.write("Enjoy ")
            await out.write("your meal.")
        cut = await talk.append_open("assistant", actor="bot")
        await talk.append_chunk(cut, 0, "This was cut ")
        await talk.append_abort(cut)
        other = await store.conversation("gone")
        await other.append("user", "Nothing of this remains.")
        await other.forget()
        await store.search("rice")  # so that the index is up to date
        await store.settle()
        await talk.append("user", "This came after the index was written.")
        await fill_memory(await store.conversation("remembered"))
        await store.settle()


async def fill_memory(talk: palaver.Conversation) -> None:
    """A conversation with summaries, notes, facts and the text of a file."""
    for n in range(6):
        await talk.append("user", f"Please always write in British English. Day {n}: I live in Lisbon and like trains.")
        await talk.append("assistant", f"Noted for day {n}: you live in Lisbon.", actor="bot")
    file = await talk.attach(b"The contract ends in May.", filename="contract.txt", media_type="text/plain")
    await talk.append("user", "Here is the contract.", attachments=[file])
    await talk.remember("requirements", "Ada prefers the aisle seat.")
    await talk.extract_facts()
    await talk.compact(keep_tokens=40)


# ---- SQLite --------------------------------------------------------------------------------------------------------


def sqlite_columns(db: apsw.Connection) -> dict[str, list[str]]:
    """Those of each table that holds rows."""
    tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
    return {
        table: [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        for (table,) in db.execute(tables).fetchall()
        if table != "sqlite_sequence"
    }


def sqlite_rows(path: str, known: dict[str, list[str]]) -> list[str]:
    """INSERT statements for a file with these tables and columns, and nothing in them."""
    db = apsw.Connection(path)
    lines = []
    for table, names in known.items():
        lines.append(f"DELETE FROM {table};")  # a migration puts some rows in
        columns = ", ".join(f"quote({name})" for name in names)
        for row in db.execute(f"SELECT {columns} FROM {table}"):
            lines.append(f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join(map(str, row))});")
    db.close()
    return lines


def make_sqlite() -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(fill(f"sqlite:///{folder}/c.db", f"{folder}/files"))
        return sqlite_rows(f"{folder}/c.db", sqlite_columns(apsw.Connection(f"{folder}/c.db")))


# ---- Postgres ------------------------------------------------------------------------------------------------------


async def postgres_rows(admin: Any) -> list[str]:
    """The same for a database of Postgres; `admin` is a connection of a role that bypasses the policies."""
    lines = ["SET session_replication_role = replica;"]  # in any order
    found = await admin.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'palaver' ORDER BY 1")
    for (table,) in found:
        columns = await admin.fetch(
            "SELECT attname FROM pg_attribute WHERE attrelid = $1::text::regclass AND attnum > 0 AND NOT attisdropped",
            f"palaver.{table}",
        )
        names = [f'"{row[0]}"' for row in columns]
        quoted = " || ', ' || ".join(f"quote_nullable({name}::text)" for name in names)
        for (row,) in await admin.fetch(f"SELECT {quoted} FROM palaver.{table}"):
            lines.append(f"INSERT INTO palaver.{table} ({', '.join(names)}) VALUES ({row});")
    for name, value in await admin.fetch(
        "SELECT sequencename, coalesce(last_value, 1) FROM pg_sequences WHERE schemaname = 'palaver'"
    ):
        lines.append(f"SELECT setval('palaver.{name}', {value});")
    return [*lines, "RESET session_replication_role;"]


async def make_postgres(url: str) -> list[str]:
    import asyncpg

    with tempfile.TemporaryDirectory() as folder:
        await fill(url, folder)
    admin = await asyncpg.connect(url)
    try:
        return await postgres_rows(admin)
    finally:
        await admin.close()


if __name__ == "__main__":
    print("\n".join(make_sqlite() if len(sys.argv) < 2 else asyncio.run(make_postgres(sys.argv[1]))))
