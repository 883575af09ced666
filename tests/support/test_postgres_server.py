"""The Postgres that the tests start: whose it is, who can reach it, and that it ends."""

import asyncio
import os
import sys
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from tests.support import postgres_server
from tests.support.postgres_server import Server


async def test_a_database_is_copied_from_one_that_was_migrated_once(postgres: Server) -> None:
    calls: list[str] = []

    async def migrate(url: str) -> None:
        calls.append(url)
        await postgres_server.execute(url, "CREATE EXTENSION vector", "CREATE TABLE here (n int)")

    first = await postgres_server.migrated_template(postgres, "copied", migrate)
    assert await postgres_server.migrated_template(postgres, "copied", migrate) == first
    assert len(calls) <= 1  # none when another process of this run was first
    name = await postgres_server.new_database(postgres, first)
    await postgres_server.execute(postgres.at(name), "INSERT INTO here SELECT '[1,2]'::vector <-> '[1,4]'")
    await postgres_server.drop_database(postgres, name)


async def test_a_server_from_the_wheel_asks_for_its_password_and_is_not_roots(postgres: Server) -> None:
    if postgres.pid is None:
        pytest.skip("the server is somebody else's")
    with pytest.raises(asyncpg.InvalidPasswordError):
        await asyncpg.connect(postgres.at("postgres", "postgres", "wrong"))
    assert urlsplit(postgres.url).hostname == "127.0.0.1"
    assert os.stat(f"/proc/{postgres.pid}").st_uid != 0 if Path("/proc/self").exists() else True


def test_a_server_of_ones_own_is_gone_afterwards() -> None:
    try:
        with postgres_server.running() as server:
            assert server.pid is not None
            os.kill(server.pid, 0)
    except postgres_server.NoPostgres as reason:
        pytest.skip(str(reason))
    with pytest.raises(ProcessLookupError):
        os.kill(server.pid, 0)
    assert server.data is not None
    assert not Path(server.data).parent.exists()


IN_A_RUN_OF_ITS_OWN = """
import asyncio
from tests.support import postgres_server

async def nothing(url):
    pass

postgres_server.open_home()
print(asyncio.run(postgres_server.migrated_template(postgres_server.shared(), "left", nothing)))
postgres_server.close_home()
"""


async def test_a_run_leaves_no_database_on_a_server_that_was_given(postgres: Server) -> None:
    env = os.environ | {postgres_server.EXTERNAL: postgres.url}
    run = await asyncio.create_subprocess_exec(
        sys.executable, "-c", IN_A_RUN_OF_ITS_OWN, env=env, stdout=asyncio.subprocess.PIPE
    )
    name = (await run.communicate())[0].decode().strip()
    assert run.returncode == 0
    connection = await asyncpg.connect(postgres.url)
    assert name not in [row["datname"] for row in await connection.fetch("SELECT datname FROM pg_database")]
    await connection.close()
