"""Behind pgbouncer in transaction mode (`?pgbouncer=true`), where every transaction may use another connection."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack, aclosing
from pathlib import Path

import pytest

import palaver
from palaver import Conversation, Event, Store
from palaver.engines.postgres import transports
from palaver.testing import GUARANTEES, DatabaseAt, Guarantee
from tests.support import pgbouncer, postgres_server
from tests.support.pgbouncer import Bouncer
from tests.support.postgres_server import Server

PATIENCE = 30
# Guarantees that depend on connections: consecutive transactions, streams, the log and its readers, snapshots, scopes.
TOPICS = {"turns", "streams", "log", "proof", "scopes", "conversations"}


@pytest.fixture(scope="module")
def bouncer(postgres: Server) -> Iterator[Bouncer]:
    with pgbouncer.running(postgres, size=3) as started:
        yield started


@pytest.fixture(scope="module")
def narrow(postgres: Server) -> Iterator[Bouncer]:
    """A pool with a single connection to the server."""
    with pgbouncer.running(postgres, size=1) as started:
        yield started


@pytest.mark.parametrize("guarantee", [one for one in GUARANTEES if one.topic in TOPICS], ids=str)
async def test_postgres_keeps_behind_pgbouncer(
    guarantee: Guarantee, bouncer: Bouncer, postgres_url: str, tmp_path: Path
) -> None:
    await guarantee.function(DatabaseAt(bouncer.in_front_of(postgres_url), files=tmp_path))


async def server_connections(admin_url: str) -> int:
    async with transports.open_connection(admin_url) as admin:
        sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND usename = $1"
        return int(await admin.fetchval(sql, postgres_server.APPLICATION))


async def test_two_tenants_over_one_connection_see_nothing_of_each_other(
    narrow: Bouncer, postgres_url: str, postgres_database: str
) -> None:
    url = narrow.in_front_of(postgres_url)
    async with (
        palaver.open(url, tenant="acme", user="ada", worker=False) as ours,
        palaver.open(url, tenant="evil", user="ada", worker=False) as theirs,
    ):
        here, there = await ours.conversation("k"), await theirs.conversation("k")
        found = await asyncio.gather(*(_both(n, here, there) for n in range(100)))
        assert await server_connections(postgres_database) == 1, "it was one connection, or this proves nothing"
        assert {text.split()[0] for mine, _ in found for text in mine} == {"ours"}
        assert {text.split()[0] for _, yours in found for text in yours} == {"theirs"}
        for store, talk, other in ((ours, here, there), (theirs, there, here)):
            assert (await talk.verify()).turns == 100
            assert (await store.stats()).turns == 100
            await nothing_of(store, other)


async def _both(n: int, here: Conversation, there: Conversation) -> tuple[list[str], list[str]]:
    """Run one append and one read of each, all concurrently."""
    await asyncio.gather(here.append("user", f"ours {n}"), there.append("user", f"theirs {n}"))
    mine, yours = await asyncio.gather(here.history(limit=20), there.history(limit=20))
    return [turn.text for turn in mine], [turn.text for turn in yours]


async def nothing_of(store: Store, other: Conversation) -> None:
    assert [one.id for one in (await store.conversations()).items] != [other.id]
    with pytest.raises(palaver.ConversationNotFound):
        await store.get(other.id)


async def test_nothing_of_a_caller_is_left_in_the_connection(
    narrow: Bouncer, postgres_url: str, postgres_database: str
) -> None:
    url = narrow.in_front_of(postgres_url)
    async with palaver.open(url, tenant="acme", user="ada", worker=False) as store:
        await (await store.conversation("k")).append("user", "hello")
        async with transports.open_connection(url) as connection, connection.transaction():
            assert await server_connections(postgres_database) == 1
            settings = "SELECT current_setting('palaver.tenant', true), current_setting('role')"
            assert tuple(await connection.fetchrow(settings) or ()) in (("", "none"), (None, "none"))
            await connection.execute("SET LOCAL ROLE palaver_app")
            assert await connection.fetchval("SELECT count(*) FROM palaver.turns") == 0


async def test_an_address_without_the_option_gets_an_error_that_names_it(bouncer: Bouncer, postgres_url: str) -> None:
    """The driver prepares a statement in one transaction, and runs it in another that has another connection."""
    url = bouncer.in_front_of(postgres_url).replace("?pgbouncer=true", "")
    problem: palaver.EngineError | None = None
    async with asyncio.timeout(PATIENCE):
        while problem is None:  # it depends on which connections the bouncer chooses
            try:
                async with palaver.open(url, tenant="acme", worker=False) as store:
                    await asyncio.gather(*(store.stats() for _ in range(20)))
            except palaver.EngineError as found:
                problem = found
    assert problem.sqlstate in ("26000", "42P05")
    assert "?pgbouncer=true" in str(problem)


async def listeners(admin_url: str) -> int:
    async with transports.open_connection(admin_url) as admin:
        sql = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'"
        return int(await admin.fetchval(sql))


@pytest.mark.parametrize("how", ["listening elsewhere", "looking again and again"])
async def test_a_subscriber_hears_what_another_process_writes(
    bouncer: Bouncer, postgres_url: str, postgres_database: str, how: str
) -> None:
    url = bouncer.in_front_of(postgres_url)
    listen_url = postgres_url if how == "listening elsewhere" else None
    async with AsyncExitStack() as stack:
        stores = [
            await stack.enter_async_context(palaver.open(url, tenant="acme", worker=False, listen_url=listen_url))
            for _ in range(2)
        ]
        talk = await stores[0].conversation("k")
        same = await stores[1].get(talk.id)
        events = await stack.enter_async_context(aclosing(talk.subscribe()))
        assert (await _next(events)).kind == "create"
        waiting = asyncio.ensure_future(_next(events))
        if listen_url:
            async with asyncio.timeout(PATIENCE):
                while not await listeners(postgres_database):  # noqa: ASYNC110 (Postgres has no event for it)
                    await asyncio.sleep(0.01)
        turn = await same.append("user", "from elsewhere")
        heard = await waiting
        assert (heard.kind, heard.turn) == ("append", turn.id)
        assert bool(await listeners(postgres_database)) == bool(listen_url)


async def _next(events: object) -> Event:
    async with asyncio.timeout(PATIENCE):
        found: Event = await anext(events)  # type: ignore[call-overload]
        return found
