"""A sweep over many conversations succeeds while other transactions delete some of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

import palaver
from palaver import Conversation, Store
from palaver.conversations.internals import clock_of
from palaver.engines.postgres import transports
from palaver.engines.postgres.rpc import RpcClient
from palaver.testing import FakeClock
from palaver.testing.kit import eventually

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
async def store(postgres_url: str, tmp_path: Path) -> AsyncIterator[Store]:
    async with palaver.open(postgres_url, files=tmp_path, worker=False, clock=FakeClock(NOW)) as store:
        yield store


@asynccontextmanager
async def being_forgotten(store: Store, talk: Conversation, database: str) -> AsyncIterator[Any]:
    """Hold the lock of a conversation inside the block, and delete the conversation at its end."""
    who = RpcClient(None, clock_of(store)).scope_params(store.scope)  # type: ignore[arg-type]
    async with transports.open_connection(database) as connection, connection.transaction():
        forget = "SELECT * FROM palaver_api.forget_conversation(who => $1, conversation => $2)"
        await connection.fetch(forget, who, talk.id)
        yield connection


async def swept_beside_it(store: Store, talk: Conversation, database: str, **options: Any) -> palaver.Swept:
    async with being_forgotten(store, talk, database) as connection:
        sweeping = asyncio.create_task(store.sweep(**options))

        async def it_waits() -> bool:
            assert not sweeping.done()
            return bool(await connection.fetchval("SELECT 1 FROM pg_locks WHERE NOT granted"))

        await eventually(it_waits)
    return await sweeping


async def test_old_turns_of_others_go_while_a_conversation_is_deleted(store: Store, postgres_database: str) -> None:
    gone, other = await store.conversation("gone"), await store.conversation("other")
    for talk in (gone, other):
        await talk.append("user", "old", created=NOW - timedelta(days=2))
    swept = await swept_beside_it(store, gone, postgres_database, retention_minutes=60)
    assert swept.turns == 1
    assert await other.history() == []


async def test_loose_files_of_others_go_while_a_conversation_is_deleted(store: Store, postgres_database: str) -> None:
    gone, other = await store.conversation("gone"), await store.conversation("other")
    for talk in (gone, other):
        await talk.attach(b"loose")
    clock_of(store).advance(2 * 86_400)  # type: ignore[attr-defined]
    await swept_beside_it(store, gone, postgres_database)
    assert await other.attachments() == []
