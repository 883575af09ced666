"""When the database is down, slow, full or read-only: a clear error, nothing half done, nothing done twice."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import asyncpg
import pytest

import palaver
from palaver.engines.postgres import migrate, transports
from palaver.errors import DatabaseFull, DatabaseReadOnly, EngineUnavailable, StoreClosed
from palaver.testing.kit import eventually
from tests.support import postgres_server
from tests.support.postgres_server import DURABLE, Server, connections_of_the_application

WRITERS = 4


@asynccontextmanager
async def locked(admin_url: str) -> AsyncIterator[Any]:
    """Hold a lock on every conversation, so that an append waits."""
    admin = await asyncpg.connect(admin_url)
    try:
        async with admin.transaction():
            await admin.execute("SELECT 1 FROM palaver.conversations FOR UPDATE")
            yield admin
    finally:
        await admin.close()


async def waiting(admin: Any) -> int:
    """Wait for a backend that waits for the lock, and return its process id."""
    query = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    async with asyncio.timeout(30):
        while (pid := await admin.fetchval(query)) is None:  # noqa: ASYNC110 (Postgres has no event for it)
            await asyncio.sleep(0.01)
    return int(pid)


async def test_a_connection_that_is_cut_in_the_middle_of_an_append_leaves_nothing_and_a_retry_stores_once(
    postgres_database: str, postgres_url: str
) -> None:
    # The append is repeated once, and then waits for the lock.
    async with palaver.open(f"{postgres_url}?command_timeout=2", worker=False) as store:
        talk = await store.conversation("k")
        await talk.append("user", "before")
        async with locked(postgres_database) as admin:
            cut = asyncio.create_task(talk.append("user", "once", idempotency_key="key"))
            await admin.fetchval("SELECT pg_terminate_backend($1)", await waiting(admin))
            with pytest.raises(EngineUnavailable):
                await cut
        turns = [await talk.append("user", "once", idempotency_key="key") for _ in range(2)]
        assert turns[0].id == turns[1].id
        assert [turn.text for turn in await talk.history()] == ["before", "once"]
        await talk.verify()


async def test_a_statement_that_takes_too_long_is_a_clear_error(postgres_database: str, postgres_url: str) -> None:
    async with palaver.open(f"{postgres_url}?statement_timeout=300", worker=False) as store:
        talk = await store.conversation("k")
        async with locked(postgres_database):
            with pytest.raises(EngineUnavailable, match="longer") as problem:
                await talk.append("user", "too slow")
        assert problem.value.sqlstate == "57014"
        assert await talk.history() == []
        await talk.append("user", "in time")


async def test_a_server_that_only_answers_questions_answers_them(postgres_database: str, postgres_url: str) -> None:
    async with palaver.open(postgres_url, worker=False) as store:
        talk = await store.conversation("k")
        await talk.append("user", "kept")
    name = postgres_database.rpartition("/")[2]
    await postgres_server.execute(postgres_database, f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    async with palaver.open(postgres_url, worker=False) as store:
        talk = await store.find("k")
        assert [turn.text for turn in await talk.history()] == ["kept"]
        await talk.verify()
        with pytest.raises(DatabaseReadOnly) as problem:
            await talk.append("user", "refused")
        assert problem.value.sqlstate == "25006"


async def test_a_full_disk_is_named_and_nothing_is_written(postgres_database: str, postgres_url: str) -> None:
    """A trigger raises the error of a full disk in the middle of an append."""
    async with palaver.open(postgres_url, worker=False) as store:
        talk = await store.conversation("k")
        await postgres_server.execute(
            postgres_database,
            """CREATE FUNCTION public.full() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION 'no space' USING ERRCODE = '53100'; END $$""",
            "GRANT EXECUTE ON FUNCTION public.full() TO PUBLIC",
            "CREATE TRIGGER full_disk AFTER INSERT ON palaver.events EXECUTE FUNCTION public.full()",
        )
        with pytest.raises(DatabaseFull):
            await talk.append("user", "lost")
        await postgres_server.execute(postgres_database, "DROP TRIGGER full_disk ON palaver.events")
        assert (await talk.append("user", "kept")).seq == 0
        await talk.verify()


async def test_a_server_that_is_not_there_is_out_of_reach(postgres_url: str) -> None:
    parts = urlsplit(postgres_url)
    away = parts._replace(netloc=f"{parts.netloc.rpartition(':')[0]}:1").geturl()
    with pytest.raises(EngineUnavailable, match="cannot be reached"):
        async with palaver.open(away):
            pass


@pytest.fixture(scope="module")
def own_server(postgres: Server) -> Iterator[Server]:
    """A migrated server for tests that stop its processes, which would make tests on the shared one wait."""
    if postgres.pid is None:
        pytest.skip("the processes of another server are not ours to stop")
    with postgres_server.running() as server:
        asyncio.run(postgres_server.migrate_for_tests(server.url))
        yield server


async def test_a_server_that_does_not_respond_is_an_error_in_time(own_server: Server) -> None:
    """The processes of the server are stopped, as if the machine were frozen or the network were cut."""
    stopped: list[int] = []
    url = postgres_server.as_application(own_server.url)
    async with palaver.open(f"{url}?command_timeout=1", worker=False) as store:
        talk = await store.conversation("slow")
        await talk.append("user", "before")
        try:
            stopped = [pid for pid, _ in await connections_of_the_application(own_server.url)]
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)
            async with asyncio.timeout(60):
                with pytest.raises(EngineUnavailable, match="did not respond in time"):
                    await talk.append("user", "once", idempotency_key="key")
        finally:
            for pid in stopped:
                os.kill(pid, signal.SIGCONT)
        again = await talk.append("user", "once", idempotency_key="key")
        assert [turn.id for turn in await talk.history()][1:] == [again.id]
        await talk.verify()


async def test_a_frozen_server_does_not_keep_a_store_from_closing(own_server: Server) -> None:
    stopped: list[int] = []
    try:
        async with asyncio.timeout(60):
            async with palaver.open(postgres_server.as_application(own_server.url), worker=False) as store:
                await (await store.conversation("k")).append("user", "before")
                stopped = [pid for pid, _ in await connections_of_the_application(own_server.url)]
                for pid in stopped:
                    os.kill(pid, signal.SIGSTOP)
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)


async def until_acknowledged(turns: Mapping[str, str], goal: int) -> None:
    async def is_reached() -> bool:
        return len(turns) >= goal

    await eventually(is_reached)


TERMINATE = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND usename = $1"


async def test_backends_that_are_terminated_all_the_time_cost_typed_errors_and_no_turn(
    postgres_database: str, postgres_url: str
) -> None:
    """Sixteen writers, half of them with idempotency keys, while every connection is cut again and again."""
    admin = await asyncpg.connect(postgres_database)
    acknowledged: dict[str, str] = {}
    failures: list[BaseException] = []
    rounds = 12

    async with palaver.open(postgres_url, worker=False) as store:
        talks = [await store.conversation(f"k/{n}") for n in range(4)]
        ended = asyncio.Event()

        async def write(name: int) -> None:
            number = 0
            while not ended.is_set():
                number += 1
                text = f"{name} {number}"
                try:
                    key = {"idempotency_key": text} if name % 2 else {}
                    acknowledged[text] = (await talks[name % 4].append("user", text, **key)).id
                    await talks[name % 4].history(limit=3)
                except BaseException as problem:
                    failures.append(problem)
                    await asyncio.sleep(0)

        async with asyncio.TaskGroup() as tasks:
            for name in range(16):
                tasks.create_task(write(name))
            for _ in range(rounds):
                goal = len(acknowledged) + 16
                await admin.fetch(TERMINATE, postgres_server.APPLICATION)
                await until_acknowledged(acknowledged, goal)
            ended.set()
        assert [problem for problem in failures if not isinstance(problem, EngineUnavailable)] == []
        stored = [turn for talk in talks for turn in await talk.history(limit=100_000)]
        keyed = [turn.text for turn in stored if int(turn.text.split()[0]) % 2]
        assert len(keyed) == len(set(keyed)), "what has a key is stored once"
        assert acknowledged.items() <= {turn.text: turn.id for turn in stored}.items()
        assert len(acknowledged) > 50
        for talk in talks:
            await talk.verify()
    await admin.close()


async def test_a_connection_that_died_in_the_pool_fails_no_call_that_can_be_repeated(
    postgres_database: str, postgres_url: str
) -> None:
    admin = await asyncpg.connect(postgres_database)
    async with palaver.open(postgres_url, worker=False) as store:
        talk = await store.conversation("k")
        for n in range(12):
            await admin.fetch(TERMINATE, postgres_server.APPLICATION)
            if n % 3 == 0:
                await talk.append("user", f"turn {n}", idempotency_key=f"key {n}")
            elif n % 3 == 1:
                await store.conversation("k")
            else:
                await talk.history()
        assert len(await talk.history()) == 4
        await talk.verify()
    await admin.close()


async def test_a_closed_store_says_so(postgres_url: str) -> None:
    async with palaver.open(postgres_url) as store:
        talk = await store.conversation("k")
    with pytest.raises(StoreClosed):
        await talk.history()


async def test_what_was_acknowledged_survives_a_server_that_is_killed(postgres: Server) -> None:
    """A server with fsync on is killed in the middle of appends, and started again on its data."""
    if postgres.pid is None:
        pytest.skip("somebody else's server is not ours to end")
    server = postgres_server.start(DURABLE)
    try:
        async with transports.open_connection(server.url) as connection:
            await migrate.migrate(connection)
        acknowledged = await appended_until_the_end_of(server)
        assert server.data is not None
        password = unquote(urlsplit(server.url).password or "")
        server = postgres_server.start_on(Path(server.data), password, DURABLE)
        async with palaver.open(server.url, worker=False) as store:
            talk = await store.find("k")
            stored = {turn.id for turn in await talk.history(100_000)}
            assert set(acknowledged) <= stored
            assert len(stored) <= len(acknowledged) + WRITERS, "at most what was in flight"
            await talk.verify()
    finally:
        postgres_server.remove(server)


async def appended_until_the_end_of(server: Server) -> list[str]:
    """Append until the server is gone, and return the turns that were acknowledged."""
    acknowledged: list[str] = []
    async with palaver.open(server.url, worker=False) as store:
        talk = await store.conversation("k")

        async def write(name: int) -> None:
            for n in range(100_000):
                acknowledged.append((await talk.append("user", f"{name} {n}")).id)

        writers = [asyncio.create_task(write(name)) for name in range(WRITERS)]
        async with asyncio.timeout(60):
            while len(acknowledged) < 50:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        postgres_server.stop(server, signal.SIGQUIT)
        for problem in await asyncio.gather(*writers, return_exceptions=True):
            assert isinstance(problem, EngineUnavailable), problem
        with pytest.raises(EngineUnavailable):
            await talk.append("user", "nobody there")
    return acknowledged
