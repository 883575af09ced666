"""Upgrades without downtime: code of 0.1.0 serves while the schema changes, together with code of this version.

The code of 0.1.0 comes from the history of this repository. Without it (a shallow clone) the
tests are skipped.
"""

from __future__ import annotations

import asyncio
import io
import os
import subprocess
import sys
import tarfile
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest

import palaver
from palaver.engines.postgres import migrate, transports
from tests.support import postgres_server
from tests.support.postgres_server import Server

ROOT = Path(__file__).parents[2]
LOAD = Path(__file__).with_name("load.py")
RELEASED = "8d44085"  # stands for 0.1.0
PATIENCE = 120  # seconds
ROUNDS = [2, pytest.param(12, marks=pytest.mark.slow)]  # of all tasks together, before and after each step


@pytest.fixture(scope="session")
def old_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source of 0.1.0."""
    archive = subprocess.run(["git", "archive", RELEASED, "src"], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"the commit {RELEASED} is not in this checkout: its history is needed (git fetch --unshallow)")
    folder = tmp_path_factory.mktemp("released")
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(folder, filter="data")
    return folder / "src"


def environment(source: Path | None) -> dict[str, str]:
    """The variables for a program that imports Palaver from another source; None: this version."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("COV_")}
    return kept if source is None else {**kept, "PYTHONPATH": str(source)}


async def run(source: Path | None, *command: str) -> str:
    """Run a program of a version to its end, and return what it printed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *command,
        env=environment(source),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    printed = (await process.communicate())[0].decode()
    assert process.returncode == 0, printed
    return printed


class Load:
    """A program that uses the database until its input ends."""

    def __init__(self, process: subprocess.Popen[bytes], printed: Path) -> None:
        self.process, self.printed = process, printed

    @property
    def lines(self) -> list[str]:
        return self.printed.read_text().splitlines()

    @property
    def failures(self) -> list[str]:
        return [line for line in self.lines if line != "round"]

    async def rounds(self, wanted: int) -> None:
        """Wait for this number of rounds from now on."""
        wanted += self.lines.count("round")
        async with asyncio.timeout(PATIENCE):
            while self.lines.count("round") < wanted:
                assert self.process.poll() is None, self.failures
                await asyncio.sleep(0.05)

    async def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        assert await asyncio.to_thread(self.process.wait, PATIENCE) == 0, self.failures


@contextmanager
def load(source: Path | None, url: str, folder: Path, name: str) -> Iterator[Load]:
    printed = folder / f"{name}.txt"
    with open(printed, "wb") as out:
        command = [sys.executable, str(LOAD), url, str(folder / "files"), name]
        process = subprocess.Popen(
            command, env=environment(source), stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT
        )
    try:
        yield Load(process, printed)
    finally:
        process.kill()
        process.wait()


async def skip_where_the_release_cannot_be_installed(url: str) -> None:
    async with transports.open_connection(url) as connection:
        if connection.get_server_version() < (16,):
            pytest.skip("0.1.0 cannot be installed on Postgres 15, so there is nothing to upgrade from")


async def verified(url: str, folder: Path) -> int:
    """Verify the shared conversation and the newest others with this version's code, and return how many there are."""
    async with palaver.open(url, tenant="acme", user="ada", files=folder, worker=False) as store:
        await (await store.find("shared")).verify()
        page = await store.conversations(limit=12)
        for info in page.items:
            await (await store.get(info.id)).verify()
        return len(page.items)


@pytest.mark.costly
@pytest.mark.parametrize("rounds", ROUNDS)
async def test_code_of_the_release_serves_while_the_schema_is_migrated(
    empty_database: str, old_source: Path, tmp_path: Path, rounds: int
) -> None:
    """A pod of 0.1.0 under load; migrate; a pod of each version starts; the old one ends. No request fails."""
    await skip_where_the_release_cannot_be_installed(empty_database)
    await run(old_source, "-m", "palaver", "migrate", "--db", empty_database)
    await postgres_server.execute(empty_database, postgres_server.LOGIN)
    url = postgres_server.as_application(empty_database)
    with load(old_source, url, tmp_path, "before") as before:
        await before.rounds(rounds)
        printed = await run(None, "-m", "palaver", "migrate", "--db", empty_database)
        assert f"is at schema {migrate.known_version()}" in printed
        assert "up to date" in await run(old_source, "-m", "palaver", "migrate", "--db", empty_database)
        with load(None, url, tmp_path, "new") as new, load(old_source, url, tmp_path, "restarted") as restarted:
            for program in (before, new, restarted):
                await program.rounds(rounds)
            for program in (before, restarted, new):
                await program.end()
    assert before.failures + new.failures + restarted.failures == []
    assert await verified(url, tmp_path / "files") > 3


@pytest.mark.slow
async def test_every_guarantee_of_the_release_holds_on_the_new_schema(
    postgres: Server, empty_database: str, old_source: Path, tmp_path: Path
) -> None:
    await run(None, "-m", "palaver", "migrate", "--db", empty_database)
    await postgres_server.execute(empty_database, postgres_server.LOGIN)
    kit = str(Path(__file__).with_name("kit.py"))
    printed = await run(old_source, kit, postgres.url, empty_database.rpartition("/")[2], str(tmp_path))
    assert printed.strip().endswith(" guarantees, 0 failed"), printed


async def test_the_release_refuses_a_schema_that_no_longer_serves_it(empty_database: str, old_source: Path) -> None:
    await run(None, "-m", "palaver", "migrate", "--db", empty_database)
    newer = "CREATE OR REPLACE FUNCTION palaver.schema_version() RETURNS integer LANGUAGE sql IMMUTABLE RETURN 4"
    await postgres_server.execute(empty_database, newer)
    with pytest.raises(AssertionError, match="upgrade Palaver"):
        await run(old_source, "-m", "palaver", "stats", "--db", empty_database)
    await run(None, "-m", "palaver", "stats", "--db", empty_database)


async def test_a_file_of_this_version_is_refused_by_the_release_with_a_clear_error(
    old_source: Path, tmp_path: Path
) -> None:
    """On SQLite the versions do not mix: the earlier one says so and changes nothing."""
    file = f"{tmp_path}/chat.db"
    await run(None, "-m", "palaver", "append", "k", "user", "hello", "--db", file)
    with pytest.raises(AssertionError, match="upgrade Palaver"):
        await run(old_source, "-m", "palaver", "show", "k", "--db", file)
    assert "hello" in await run(None, "-m", "palaver", "show", "k", "--db", file)


# ---- the functions that it calls -----------------------------------------------------------------------------------

FUNCTIONS = (Path(__file__).parent / "postgres" / "functions-0.1.0.txt").read_text().splitlines()


@pytest.fixture
async def catalogue(postgres_database: str) -> AsyncIterator[Any]:
    async with transports.open_connection(postgres_database) as connection:
        yield connection


READ_BY_NAME = {"facts", "facts_where"}


async def test_every_function_of_the_release_is_still_called_in_the_same_way(catalogue: Any) -> None:
    """With all of its parameters and with only those that it needs, by name; with the same columns.

    Only where the release reads single columns by name, there may be more of them.
    """
    broken = {}
    for line in FUNCTIONS:
        name, parameters, optional, columns = line.split("|")
        given = [one.split(" ", 1) for one in parameters.split(", ")]
        for few in (given, given[: len(given) - int(optional)]):
            arguments = ", ".join(f'"{one}" => NULL::{kind}' for one, kind in few)
            try:
                statement = await catalogue.prepare(f"SELECT * FROM palaver_api.{name}({arguments})")
            except asyncpg.PostgresError as problem:
                broken[line] = str(problem)
                continue
            found = ", ".join(f"{one.name} {one.type.name}" for one in statement.get_attributes())
            if found != columns and not (name in READ_BY_NAME and found.startswith(f"{columns}, ")):
                broken[line] = found
    assert broken == {}
    assert len(FUNCTIONS) > 100
