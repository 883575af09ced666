"""The Engine port over Postgres: one class per subject, one SQL function per method (functions/*.sql).

A method is one round trip and one transaction.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from palaver.core.concurrency import run_uncancelled
from palaver.engines.postgres.address import parse_address
from palaver.engines.postgres.answer_places import PostgresAnswerPlaces
from palaver.engines.postgres.append_batching import AppendBatcher
from palaver.engines.postgres.budgets import PostgresBudgets
from palaver.engines.postgres.conversations import PostgresConversations
from palaver.engines.postgres.deletion import PostgresDeletion
from palaver.engines.postgres.embeddings import PostgresEmbeddings
from palaver.engines.postgres.erasure import PostgresErasure
from palaver.engines.postgres.export_rows import PostgresExportRows
from palaver.engines.postgres.files import PostgresFiles
from palaver.engines.postgres.jobs import PostgresJobs
from palaver.engines.postgres.keys import PostgresKeys
from palaver.engines.postgres.log import PostgresLog
from palaver.engines.postgres.recall import PostgresRecall
from palaver.engines.postgres.repair import PostgresRepair
from palaver.engines.postgres.requests import PostgresRequests
from palaver.engines.postgres.stats import PostgresStats
from palaver.engines.postgres.streams import PostgresStreams
from palaver.engines.postgres.subjects import PostgresSubjects
from palaver.engines.postgres.transports import AsyncpgTransport, Transport, open_transport
from palaver.engines.postgres.turns import PostgresTurns
from palaver.engines.postgres.watch import CommitHub
from palaver.ports.clock import Clock


@asynccontextmanager
async def open_postgres(
    url: str,
    clock: Clock,
    *,
    home: str,
    migrate_url: str | None = None,
    listen_url: str | None = None,
    read_url: str | None = None,
    pool: Any = None,
    **connections: object,
) -> AsyncIterator[PostgresEngine]:
    """Open the engine for the tenant `home`; with `migrate_url`, bring the schema up to date first.

    `connections` are the settings of an `Address`, which override the parameters of the URL.
    """
    address = parse_address(url, **connections)
    transport = await open_transport(address, read_url=read_url, migrate_url=migrate_url, pool=pool)
    # LISTEN does not work through pgbouncer; it needs `listen_url` there
    listening = parse_address(listen_url, **connections) if listen_url else None if address.pgbouncer else address
    engine = PostgresEngine(transport, clock, CommitHub(listening), home)
    try:
        yield engine
    finally:
        await run_uncancelled(engine.close())


class PostgresEngine(
    PostgresConversations,
    PostgresTurns,
    PostgresStreams,
    PostgresAnswerPlaces,
    PostgresDeletion,
    PostgresErasure,
    PostgresFiles,
    PostgresLog,
    PostgresExportRows,
    PostgresRecall,
    PostgresSubjects,
    PostgresRequests,
    PostgresKeys,
    PostgresBudgets,
    PostgresJobs,
    PostgresEmbeddings,
    PostgresRepair,
    PostgresStats,
):
    """A Postgres database that holds everything."""

    def __init__(self, transport: Transport, clock: Clock, hub: CommitHub, home: str) -> None:
        super().__init__(transport, clock, hub, home)
        # Over HTTP every call carries one user's token, so appends of several users cannot share a call.
        if isinstance(transport, AsyncpgTransport):
            self.batcher = AppendBatcher(self, by_tenant=transport.distributed)

    async def close(self) -> None:
        if self.batcher is not None:
            await self.batcher.close()
        await self.hub.close()
        await self.transport.close()
