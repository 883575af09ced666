"""Counts of a database that only a few logins may connect to."""

from __future__ import annotations

from urllib.parse import urlsplit

import palaver
from tests.support import postgres_server


async def test_counts_do_not_need_the_right_of_everyone_to_connect(postgres_url: str, postgres_database: str) -> None:
    """As docs/how-to/postgres.md advises. The functions run as palaver_app, which then may not connect."""
    parts = urlsplit(postgres_url)
    name = parts.path[1:]
    await postgres_server.execute(
        postgres_database,
        f"REVOKE CONNECT ON DATABASE {name} FROM PUBLIC",
        f"GRANT CONNECT ON DATABASE {name} TO {parts.username}",
    )
    async with palaver.open(postgres_url, worker=False) as store:
        await (await store.conversation("k")).append("user", "hello")
        found = await store.stats()
        assert found.turns == 1
        assert found.storage["bytes"] > 100_000
