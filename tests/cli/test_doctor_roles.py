"""`palaver doctor`, `palaver worker` and `palaver serve` report what does not work without one of the roles."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest
from typer.testing import CliRunner

from palaver.cli import app, worker
from palaver.engines.postgres import migrate, transports
from palaver.server.settings import ServerSettings
from tests.server.conftest import running
from tests.support import postgres_server
from tests.support.postgres_server import Server
from tests.upgrades.test_upgrades import postgres_at

PASSWORD = "not a secret"


async def doctor(url: str, *options: str) -> str:
    ran = await asyncio.to_thread(CliRunner(env={"COLUMNS": "300"}).invoke, app, ["doctor", "--db", url, *options])
    assert ran.exit_code == 0, ran.output
    return ran.stdout


@asynccontextmanager
async def login(database: str, role: str) -> AsyncIterator[tuple[str, list[str]]]:
    """Yield the URL of a login, and its roles."""
    name, roles = f"{role}_of_{database.rpartition('/')[2]}", sorted({"palaver_app", role})
    await postgres_server.execute(
        database, f"CREATE ROLE {name} LOGIN PASSWORD '{PASSWORD}' IN ROLE {', '.join(roles)}"
    )
    try:
        yield postgres_server.at(database, database.rpartition("/")[2], name, PASSWORD), roles
    finally:
        await postgres_server.execute(database, f"DROP ROLE {name}")


@pytest.mark.parametrize("role", ["palaver_app", "palaver_worker"])
async def test_a_login_without_the_role_of_the_worker_is_named(postgres_database: str, role: str) -> None:
    async with login(postgres_database, role) as (url, roles):
        assert json.loads(await doctor(url, "--json"))["database"]["roles"] == roles
        assert ("one tenant only: GRANT palaver_worker" in await doctor(url)) == (role == "palaver_app")


async def test_the_schema_of_an_older_version_is_reported(postgres: Server) -> None:
    """The next command may be `palaver migrate --sql --since` with this number."""
    database = await postgres_server.new_database(postgres)
    try:
        async with transports.open_connection(postgres.at(database)) as connection:
            await postgres_at(connection, 3)
        invoke = partial(asyncio.to_thread, CliRunner(env={"COLUMNS": "300"}).invoke, app)
        ran = await invoke(["doctor", "--db", postgres.at(database), "--json"])
        found = json.loads(ran.stdout)["database"]
        assert (found["schema"], found["schema_known"]) == (3, migrate.known_version())
        assert "has schema 3" in found["problem"]
        ran = await invoke(["doctor", "--db", postgres.at(database)])
        assert f"3 of {migrate.known_version()}" in ran.stdout
    finally:
        await postgres_server.drop_database(postgres, database)


@pytest.mark.parametrize("role", ["palaver_app", "palaver_worker"])
async def test_a_worker_that_serves_one_tenant_says_so(
    postgres_database: str, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(*_: object) -> None:
        pass

    monkeypatch.setattr(worker, "_working", work)
    async with login(postgres_database, role) as (url, _):
        ran = await asyncio.to_thread(CliRunner().invoke, app, ["worker", "--db", url, "--tenant", "acme"])
    assert ran.exit_code == 0, ran.output
    assert ("only the tenant 'acme'" in ran.stderr) == (role == "palaver_app")


@pytest.mark.parametrize("role", ["palaver_app", "palaver_worker"])
async def test_a_server_that_works_for_one_tenant_says_so(
    postgres_database: str, role: str, caplog: pytest.LogCaptureFixture
) -> None:
    def serve(url: str) -> None:
        with running(ServerSettings(url=url, tenant="acme", embedder="none")):
            pass

    async with login(postgres_database, role) as (url, _):
        await asyncio.to_thread(serve, url)
    assert ("only the tenant 'acme'" in caplog.text) == (role == "palaver_app")
