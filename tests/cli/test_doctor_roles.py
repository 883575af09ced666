"""`palaver doctor` names the roles of the login, and what does not work without one of them."""

from __future__ import annotations

import asyncio
import json

import pytest
from typer.testing import CliRunner

from palaver.cli import app
from tests.support import postgres_server

PASSWORD = "not a secret"


async def doctor(url: str, *options: str) -> str:
    ran = await asyncio.to_thread(CliRunner(env={"COLUMNS": "300"}).invoke, app, ["doctor", "--db", url, *options])
    assert ran.exit_code == 0, ran.output
    return ran.stdout


@pytest.mark.parametrize("role", ["palaver_app", "palaver_worker"])
async def test_a_login_without_the_role_of_the_worker_is_named(postgres_database: str, role: str) -> None:
    login, roles = f"doctor_{role}", sorted({"palaver_app", role})
    await postgres_server.execute(
        postgres_database, f"CREATE ROLE {login} LOGIN PASSWORD '{PASSWORD}' IN ROLE {', '.join(roles)}"
    )
    try:
        url = postgres_server.at(postgres_database, postgres_database.rpartition("/")[2], login, PASSWORD)
        assert json.loads(await doctor(url, "--json"))["database"]["roles"] == roles
        assert ("one tenant only: GRANT palaver_worker" in await doctor(url)) == (role == "palaver_app")
    finally:
        await postgres_server.execute(postgres_database, f"DROP ROLE {login}")
