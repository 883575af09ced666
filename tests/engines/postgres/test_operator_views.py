"""The views for database administrators: sizes of tables, and the work that waits in each tenant."""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest

import palaver
from tests.support import postgres_server


async def rows(database: str, view: str, *, role: str | None = None) -> list[Any]:
    connection = await asyncpg.connect(database)
    try:
        if role is not None:
            await connection.execute(f"SET ROLE {role}")
        return list(await connection.fetch(f"SELECT * FROM palaver.{view} ORDER BY 1"))
    finally:
        await connection.close()


async def fill(url: str) -> None:
    for tenant, turns in (("acme", 2), ("beta", 1)):
        async with palaver.open(url, tenant=tenant, worker=False) as store:
            talk = await store.conversation("k")
            for n in range(turns):
                await talk.append("user", f"a secret {n}")
            await talk.append_open("assistant")


@pytest.mark.parametrize("role", [None, "palaver_worker"])
async def test_an_administrator_sees_the_work_of_every_tenant(
    postgres_url: str, postgres_database: str, role: str | None
) -> None:
    await fill(postgres_url)
    found = {row["tenant"]: row for row in await rows(postgres_database, "tenant_work", role=role)}
    assert found.keys() == {"acme", "beta"}
    assert (found["acme"]["conversations"], found["acme"]["streams_pending"]) == (1, 1)
    assert found["acme"]["jobs_waiting"] >= 1
    assert found["acme"]["oldest_due"] is not None
    assert (found["beta"]["streams_abandoned"], found["beta"]["files_to_delete"]) == (0, 0)


@pytest.mark.parametrize("role", [None, "palaver_worker"])
async def test_sizes_are_those_of_every_table(postgres_url: str, postgres_database: str, role: str | None) -> None:
    await fill(postgres_url)
    await postgres_server.execute(postgres_database, "ANALYZE palaver.turns")
    found = {row["table"]: row for row in await rows(postgres_database, "table_sizes", role=role)}
    assert found.keys() >= {"turns", "events", "conversations", "requests"}
    assert found["turns"]["estimated_rows"] == 5
    assert found["turns"]["total_bytes"] >= found["turns"]["table_bytes"] + found["turns"]["index_bytes"] > 0


@pytest.mark.parametrize("view", ["tenant_work", "table_sizes"])
async def test_the_application_may_not_read_them(postgres_database: str, view: str) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await rows(postgres_database, view, role="palaver_app")
