"""A token that may only read changes nothing through the tables of older systems, and insiders find no way there."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import asyncpg
import pytest

from palaver.testing.insider import probe
from tests.engines.postgres.compat.conftest import Opener, Program, signed_in

VIEWS = {
    "conversation_messages": ("session_id, role, content", [uuid4(), "user", "hello"]),
    "hal_conversation_messages": ("project_id, agent, role, content", ["web", "pm", "user", "hello"]),
    "hal_conversation_summaries": ("project_id, agent, summary_text, through_sequence", ["web", "pm", "short", 0]),
    "hal_conversation_working_memory": ("project_id, agent, summary, through_sequence", ["web", "pm", "short", 0]),
}
CHANGES = {
    "conversation_messages": "content = 'changed'",
    "hal_conversation_messages": "content = 'changed'",
    "hal_conversation_summaries": "summary_text = 'changed'",
    "hal_conversation_working_memory": "summary = 'changed'",
}


async def everything(url: str) -> dict[str, str]:
    connection = await asyncpg.connect(url)
    try:
        tables = await connection.fetch(
            """SELECT c.oid::regclass::text AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE c.relkind = 'r' AND n.nspname IN ('palaver', 'palaver_compat')"""
        )
        digest = "SELECT md5(string_agg(o::text, '' ORDER BY o::text)) FROM {} o"
        return {row["name"]: await connection.fetchval(digest.format(row["name"])) for row in tables}
    finally:
        await connection.close()


def insert(view: str) -> tuple[str, list[Any]]:
    columns, values = VIEWS[view]
    places = ", ".join(f"${n}" for n in range(1, len(values) + 1))
    return f"INSERT INTO {view} ({columns}) VALUES ({places}) RETURNING 1", values


async def outcome(by: Program, statement: str, args: list[Any]) -> object:
    """Return the rows of a statement, or the SQLSTATE with which it was refused."""
    try:
        return await by.rows(statement, *args)
    except asyncpg.PostgresError as problem:
        return problem.sqlstate


async def test_a_token_that_may_read_changes_nothing(program: Opener, database: str) -> None:
    async with (
        program(signed_in("acme", "ada", palaver_rights="read,write")) as writer,
        program(signed_in("acme", "ada", palaver_rights="read")) as reader,
    ):
        for view in VIEWS:
            sql, values = insert(view)
            await writer.rows(sql, *values)
        before = await everything(database)
        for view, change in CHANGES.items():
            assert await reader.rows(f"SELECT 1 FROM {view}"), "it sees the rows"
            sql, values = insert(view)
            for statement, args in (
                (sql, values),
                (f"UPDATE {view} SET {change} RETURNING 1", []),
                (f"DELETE FROM {view} RETURNING 1", []),
            ):
                assert await outcome(reader, statement, args) in ([], "PV021", "42501"), statement
        assert await everything(database) == before


@pytest.mark.parametrize("rights", ["read,write", "read,write,admin"])
async def test_a_system_row_needs_its_right(program: Opener, rights: str) -> None:
    async with program(signed_in("acme", "ada", palaver_rights=rights)) as by:
        for view in ("conversation_messages", "hal_conversation_messages"):
            sql, values = insert(view)
            with pytest.raises(asyncpg.PostgresError) as problem:
                await by.rows(sql, *["system" if value == "user" else value for value in values])
            assert problem.value.sqlstate == "PV021"


async def test_insiders_find_no_way_through_the_functions_for_these_tables(database: str) -> None:
    report = await probe(database, only={"kept_file", "put_words", "to_index", "append"})
    assert report.breaches == ()
    assert set(report.functions) == {"kept_file", "put_words", "to_index", "append"}


async def test_insiders_find_no_way_through_the_tables_themselves(database: str) -> None:
    report = await probe(database, only=VIEWS)
    assert report.breaches == ()
    assert set(report.views) == set(VIEWS)
    assert report.attempts > 400
    assert report.changes > 40, "proper values are stored"


async def test_a_table_that_stores_more_than_is_allowed_is_found(database: str) -> None:
    connection = await asyncpg.connect(database)
    try:
        for function in ("palaver.check_draft", "palaver_compat.checked"):
            source = await connection.fetchval("SELECT pg_get_functiondef($1::text::regproc)", function)
            assert "t.role = 'system'" in source
            await connection.execute(source.replace("t.role = 'system'", "t.role = 'nothing'"))
    finally:
        await connection.close()
    report = await probe(database, only={"conversation_messages"})
    assert any("system turn without the right" in breach.problem for breach in report.breaches)
