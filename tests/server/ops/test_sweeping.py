"""The server and the worker delete what has outlived its time, without being asked."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Callable
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

import palaver
from palaver.conversations.internals import engine_of
from palaver.errors import DatabaseFull, InvalidInput
from palaver.server.settings import ServerSettings, read_settings
from palaver.testing import FakeClock
from tests.cli.conftest import running as command
from tests.server.conftest import ON_BOTH, PATIENCE, Running, ok, running

SECRET = "the heron nests at midnight"


def eventually(check: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not check():
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.05)


def in_files(folder: Path, words: str) -> bool:
    return any(words.encode() in one.read_bytes() for one in folder.rglob("*") if one.is_file())


def expiring(client: httpx.Client, ttl: float = 0.2) -> str:
    """A conversation with a turn, which gets its time to live last: a slow machine takes longer to write the turn."""
    talk: str = ok(client.post("/api/conversations", json={}))["id"]
    ok(client.post(f"/api/conversations/{talk}/turns", json={"role": "user", "content": SECRET}))
    ok(client.patch(f"/api/conversations/{talk}", json={"ttl": ttl}))
    return talk


def is_expired(client: httpx.Client, talk: str) -> bool:
    return bool(ok(client.get(f"/api/conversations/{talk}/audit"))["items"][-1]["kind"] == "expire")


def test_what_has_expired_leaves_the_files_by_itself(settings: Any, tmp_path: Path) -> None:
    with running(settings(sweep_every=0.2)) as server, server.client() as client:
        talk = ok(client.post("/api/conversations", json={}))["id"]
        ok(client.post(f"/api/conversations/{talk}/turns", json={"role": "user", "content": SECRET}))
        assert in_files(tmp_path, SECRET)
        ok(client.patch(f"/api/conversations/{talk}", json={"ttl": 2}))
        eventually(lambda: not in_files(tmp_path, SECRET))


@ON_BOTH
def test_every_tenant_is_swept_and_old_turns_go(settings: Any) -> None:
    secret = "a-secret-of-at-least-thirty-two-bytes"
    with running(settings(sweep_every=0.2, retention_minutes=60, require_auth=True, jwt_secret=secret)) as server:
        for tenant in ("acme", "other"):
            with server.client(server.key(tenant)) as client:
                short = expiring(client)
                old = server.do(_old_turn(server, tenant))
                eventually(lambda client=client, talk=short: is_expired(client, talk))
                eventually(lambda talk=old, tenant=tenant: server.do(_turns(server, tenant, talk)) == 0)


async def _old_turn(server: Running, tenant: str) -> str:
    talk = await server.app.state.services.store.scoped(palaver.Scope.of(tenant, None)).conversation()
    await talk.append("user", "Long ago.", created=datetime.now(UTC) - timedelta(days=1))
    return str(talk.id)


async def _turns(server: Running, tenant: str, talk: str) -> int:
    store = server.app.state.services.store.scoped(palaver.Scope.of(tenant, None))
    return len(await (await store.get(talk)).history())


@ON_BOTH
def test_several_processes_sweep_the_same_database(settings: Any) -> None:
    with ExitStack() as stack:
        servers = [stack.enter_context(running(settings(sweep_every=0.05))) for _ in range(2)]
        client = stack.enter_context(servers[0].client())
        talks = [expiring(client) for _ in range(10)]
        eventually(lambda: all(is_expired(client, talk) for talk in talks))
        for talk in talks:
            kinds = [one["kind"] for one in ok(client.get(f"/api/conversations/{talk}/audit"))["items"]]
            assert kinds.count("expire") == 1


def test_a_sweep_that_fails_is_logged_by_its_type_and_done_later(
    settings: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with running(settings(sweep_every=0.1)) as server, server.client() as client:
        engine = engine_of(server.app.state.services.store)
        real = engine.expire

        async def fail(*_: Any) -> Any:
            raise DatabaseFull("no space left")

        with caplog.at_level(logging.WARNING, "palaver.sweeper"), monkeypatch.context() as patch:
            patch.setattr(engine, "expire", fail)
            talk = expiring(client)
            eventually(lambda: "DatabaseFull" in caplog.text)
        assert engine.expire == real
        assert SECRET not in caplog.text
        eventually(lambda: is_expired(client, talk))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_worker_sweeps(folder: Path) -> None:
    with palaver.sync.open("sqlite:///chat.db", worker=False, embedder="none") as store:
        talk = store.conversation("short")
        talk.append("user", SECRET)
        talk.update(ttl=2)
    assert in_files(folder, SECRET)
    with command("worker", "--db", "chat.db", "--sweep-every", "0.2"):
        eventually(lambda: not in_files(folder, SECRET))


def test_settings_of_the_sweeper() -> None:
    assert ServerSettings().sweep_every == 30  # a time to live of seconds is over within a minute
    found = read_settings({"PALAVER_SWEEP_EVERY": "60", "PALAVER_RETENTION_MINUTES": "43200"}, None)
    assert (found.sweep_every, found.retention_minutes) == (60.0, 43_200.0)
    for wrong in ({"PALAVER_SWEEP_EVERY": "-1"}, {"PALAVER_RETENTION_MINUTES": "0"}):
        with pytest.raises(InvalidInput):
            read_settings(wrong, None)


SWEEP_ONCE = """
import asyncio, sys
import palaver
from palaver.conversations.sweeper import Sweeper

async def main(url):
    async with palaver.open(url, worker=False, embedder="none") as store:
        print("ready", flush=True)
        sys.stdin.readline()
        print(await Sweeper(store, 3_600.0, every_tenant=True).sweep())

asyncio.run(main(sys.argv[1]))
"""


async def test_of_two_processes_one_sweeps_each_tenant(database_url: str) -> None:
    tenants = ("one", "two", "three")
    async with palaver.open(database_url, worker=False) as store:
        for name in tenants:
            await store.scoped(palaver.Scope.of(name, None)).conversation()
    children = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", SWEEP_ONCE, database_url, stdin=PIPE, stdout=PIPE)
        for _ in range(2)
    ]
    for child in children:
        assert child.stdout is not None
        assert await child.stdout.readline() == b"ready\n"
    swept = [int((await one)[0]) for one in [asyncio.ensure_future(child.communicate(b"go\n")) for child in children]]
    assert sum(swept) == len(tenants)


async def test_a_lease_ends_and_one_from_the_future_does_not_last(database_url: str) -> None:
    clock = FakeClock()
    async with palaver.open(database_url, clock=clock, worker=False) as store:
        engine, hour = engine_of(store), 3_600_000_000
        assert await engine.take_lease("default", "sweep", hour)
        assert not await engine.take_lease("default", "sweep", hour)
        assert await engine.take_lease("other", "sweep", hour)
        clock.advance(3_601)
        assert await engine.take_lease("default", "sweep", hour)
        clock.advance(-30 * 86_400)  # the clock was ahead
        assert await engine.take_lease("default", "sweep", hour)
