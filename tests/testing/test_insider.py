"""The insider finds no way, and would find one if there were any."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from palaver.engines.postgres import transports
from palaver.testing.__main__ import main
from palaver.testing.insider import probe
from tests.support import postgres_server
from tests.support.postgres_server import Server

# Functions whose arguments become rows that others read.
WRITING = {"append", "put_facts", "put_request", "put_working_memory"}


@pytest.fixture
async def database(postgres: Server) -> AsyncIterator[str]:
    """The superuser's URL of a migrated database with Supabase's roles."""
    async with postgres_server.copied_database(postgres, "with roles", postgres_server.migrate_with_roles) as url:
        yield url


async def break_function(url: str, name: str, old: str, new: str) -> None:
    """Change the source of a function."""
    async with transports.open_connection(url) as connection:
        source = await connection.fetchval(
            "SELECT pg_get_functiondef(oid) FROM pg_proc WHERE pronamespace = 'palaver'::regnamespace AND proname = $1",
            name,
        )
        assert old in source
        await connection.execute(source.replace(old, new))


async def test_functions_that_store_rows_hold(database: str) -> None:
    report = await probe(database, only=WRITING)
    assert report.breaches == ()
    assert report.attempts > 1_000
    assert report.changes > 20, "proper values are stored"


@pytest.mark.slow
async def test_every_function_holds(database: str) -> None:
    report = await probe(database)
    assert report.breaches == ()
    assert report.attempts > 10_000


async def test_missing_checks_are_found(database: str) -> None:
    for function, old, new in (
        ("check_draft", "t.role = 'system'", "t.role = 'nothing'"),
        ("check_draft", "IN ('authenticated', 'anon')", "IN ('nobody')"),
        ("is_plain", "actor = writer", "actor = writer OR true"),
        ("check_turn", "check_json('metadata', t.metadata, 'object', 65536)", "1"),
    ):
        await break_function(database, function, old, new)
    report = await probe(database, only={"append"})
    for problem in ("system turn without the right", "in the name of another user", "cannot read it any more"):
        assert any(problem in breach.problem for breach in report.breaches), problem


async def test_a_function_that_lets_readers_write_is_found(database: str) -> None:
    async with transports.open_connection(database) as connection:
        source = await connection.fetchval("SELECT pg_get_functiondef('palaver_api.add_job'::regproc)")
        await connection.execute(source.replace("enter(who, 'write')", "enter(who, 'read')"))
    report = await probe(database, only={"add_job"})
    assert {breach.stranger for breach in report.breaches} == {"a participant, through the application, read"}
    assert report.breaches[0].problem == "it changed rows without the right to write"


async def test_the_command_runs_each_part(database: str, capsys: pytest.CaptureFixture[str]) -> None:
    only = ("--only", "add_job", "--only", "a_tenant_counts_only_its_own")
    assert await main([database, *only])
    said = capsys.readouterr().out
    for part in ("17 strangers, 1 functions", "15 insiders, 1 functions, 0 views", "1 of 1 guarantees held"):
        assert part in said
    assert await main([database, "--conformance", *only])
    assert "strangers" not in capsys.readouterr().out
