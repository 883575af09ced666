"""Recall finds a turn that is committed after newer ones were read."""

from __future__ import annotations

import palaver
from palaver.conversations.internals import clock_of, components_of
from palaver.core.identity import new_id
from palaver.core.turn_draft import DraftBuilder
from palaver.engines.postgres import rows, transports
from palaver.engines.postgres.rpc import RpcClient
from palaver.engines.postgres.transports import as_json
from palaver.models.tokens import BpeCounter
from palaver.ports.recall import RecallScope


async def test_a_turn_that_is_committed_late_is_found(postgres_database: str, postgres_url: str) -> None:
    async with palaver.open(postgres_url, user="ada", embedder=None, worker=False) as store:
        slow, quick = await store.conversation("slow"), await store.conversation("quick")
        recaller, where = components_of(store).contexts.recall, RecallScope(owner="ada")
        await quick.append("user", "first")
        assert len((await recaller.rank(store.scope, where, "x", 5)).profile) == 1
        who = RpcClient(None, clock_of(store)).scope_params(store.scope)  # type: ignore[arg-type]
        drafts = as_json([rows.draft_json(DraftBuilder(BpeCounter()).draft(new_id(), "user", "late", actor="ada"))])
        async with transports.open_connection(postgres_database) as connection, connection.transaction():
            append = "SELECT * FROM palaver_api.append(who => $1, conversation => $2, drafts => $3)"
            await connection.fetch(append, who, slow.id, drafts)
            await quick.append("user", "second")
            profile = (await recaller.rank(store.scope, where, "x", 5)).profile
            assert len(profile) == 2
        found = (await recaller.rank(store.scope, where, "x", 5)).profile
        assert len(found) == 3
        late = set(found.tid.tolist()) - set(profile.tid.tolist())
        assert late < set(range(max(profile.tid.tolist()))), "its number is lower than one that was known"
