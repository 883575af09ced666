"""The SQL scripts of the older programs, run again where their tables are views (docs/how-to/tables.md)."""

from __future__ import annotations

import re
from pathlib import Path

import asyncpg
import pytest

from palaver.engines.postgres import compat
from tests.engines.postgres.compat.conftest import Opener

PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "tables.md"
SECTION = "### Running the program's own SQL again"
# Tables as those scripts create them; without the statements that the page says to leave out.
SCRIPTS = {
    "hal": """
create table if not exists public.hal_conversation_messages (id uuid primary key default gen_random_uuid(),
  project_id text not null, agent text not null, role text not null check (role in ('user', 'assistant', 'system')),
  content text not null, created_at timestamptz not null default now(), sequence int not null, images jsonb);
create table if not exists public.hal_conversation_summaries (project_id text not null, agent text not null,
  summary_text text not null, through_sequence int not null, updated_at timestamptz not null default now(),
  primary key (project_id, agent));
create table if not exists public.hal_conversation_working_memory (project_id text not null, agent text not null,
  summary text not null default '', goals text[] default array[]::text[], glossary jsonb default '{}'::jsonb,
  last_updated_at timestamptz not null default now(), through_sequence int not null default 0,
  primary key (project_id, agent));
comment on column public.hal_conversation_working_memory.goals is 'what the project is to reach';
""",
    "librarian": """
create table if not exists conversation_messages (id uuid primary key default gen_random_uuid(),
  session_id uuid not null, role text not null check (role in ('user', 'assistant', 'system')), content text not null,
  metadata jsonb default '{}'::jsonb, created_at timestamptz not null default timezone('utc', now()));
""",
}


def left_out() -> list[str]:
    """The statements that the page says to leave out."""
    section = PAGE.read_text().partition(SECTION)[2]
    found = re.search(r"^```sql\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    assert found is not None
    return [line.partition(";")[0] for line in found[1].splitlines()]


@pytest.mark.parametrize("system", SCRIPTS)
async def test_a_script_without_what_the_page_names_runs_again(database: str, program: Opener, system: str) -> None:
    connection = await asyncpg.connect(database)
    try:
        for _ in range(2):
            async with connection.transaction():
                await connection.execute(SCRIPTS[system])
        kinds = await connection.fetch(
            "SELECT relkind FROM pg_class WHERE relname = ANY ($1)", [*compat.TABLES[system]]
        )
        assert [row["relkind"] for row in kinds] == [b"v"] * len(compat.TABLES[system])
        await compat.apply(connection, [system])
    finally:
        await connection.close()
    async with program() as by:
        for table in compat.TABLES[system]:
            assert await by.rows(f"SELECT * FROM {table}") == []


@pytest.mark.parametrize("statement", left_out())
async def test_a_statement_that_the_page_names_fails_and_names_the_view(database: str, statement: str) -> None:
    (view,) = {name for name in compat.VIEWS if re.search(rf"\b{name}\b", statement)}
    connection = await asyncpg.connect(database)
    try:
        with pytest.raises(asyncpg.WrongObjectTypeError, match=f'"{view}"') as refused:
            await connection.execute(statement)
        assert refused.value.sqlstate == "42809"
    finally:
        await connection.close()
