"""Later migrations reach a distributed database: its tables on all nodes, and its functions."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import asyncpg
import pytest

import palaver
from palaver.engines.migrate import Migration, migrations
from palaver.engines.postgres import citus, migrate
from palaver.engines.postgres.transports import open_connection
from tests.support import citus_cluster
from tests.support.citus_cluster import Cluster

# A migration as they are written: a column, a table and its policy, new functions, and one that is no longer needed.
NEXT = """
ALTER TABLE palaver.turns ADD COLUMN mood text;
CREATE TABLE palaver.moods (
  tenant text NOT NULL,
  cid bigint NOT NULL,
  mid bigint NOT NULL DEFAULT nextval('palaver.numbers'),
  mood text NOT NULL,
  PRIMARY KEY (tenant, mid),
  FOREIGN KEY (tenant, cid) REFERENCES palaver.conversations
);
ALTER TABLE palaver.moods ENABLE ROW LEVEL SECURITY;
ALTER TABLE palaver.moods FORCE ROW LEVEL SECURITY;
CREATE POLICY palaver_app ON palaver.moods TO palaver_app
  USING (tenant = (SELECT nullif(current_setting('palaver.tenant', true), '')));
GRANT SELECT, INSERT ON palaver.moods TO palaver_app;
"""
FUNCTIONS = """
DROP FUNCTION palaver_api.drop_fact(jsonb, text, text);
CREATE OR REPLACE FUNCTION palaver.mood_of(c palaver.conversations) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, palaver, pg_temp AS $$
BEGIN
  RETURN (SELECT max(m.mood) FROM moods m WHERE m.tenant = c.tenant AND m.cid = c.cid);
END $$;
CREATE OR REPLACE FUNCTION palaver_api.cheer(who jsonb, conversation text) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, palaver, pg_temp AS $$
DECLARE
  me asker := enter(who, 'write');
  c palaver.conversations := open_thread(me, conversation);
BEGIN
  INSERT INTO moods (tenant, cid, mood) VALUES (me.tenant, c.cid, 'glad');
  RETURN mood_of(c);
END $$;
"""


@pytest.fixture
async def own_cluster() -> AsyncIterator[Cluster]:
    async with citus_cluster.scratch() as cluster:
        yield cluster


async def next_migration(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    known = migrations(f"{migrate.PACKAGE}.migrations")
    later = Migration(known[-1].number + 1, "moods", NEXT)
    written = migrate._functions()
    monkeypatch.setattr(migrate, "migrations", lambda package: [*known, later])
    monkeypatch.setattr(migrate, "_functions", lambda: [*written[:-1], FUNCTIONS, written[-1]])
    async with open_connection(url) as connection:
        await migrate.migrate(connection)


async def test_a_distributed_database_is_upgraded_like_any_other(
    own_cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_connection(own_cluster.url) as connection:
        await migrate.migrate(connection)
        url = await own_cluster.create_login()
        async with palaver.open(url, tenant="acme", worker=False) as store:  # rows from before it was distributed
            talk = await store.conversation("old")
            await talk.append("user", "Tea, please.")
        await citus.distribute(connection)
    for tenant in ("acme", "beta"):
        async with palaver.open(url, tenant=tenant, worker=False) as store:
            await (await store.conversation("old")).append("user", "More tea, please.")
    await next_migration(monkeypatch, own_cluster.url)
    for tenant in ("acme", "beta"):
        async with palaver.open(url, tenant=tenant, worker=False) as store:
            talk = await store.conversation("old")
            await talk.append("user", "Still tea.")
            assert (await talk.history())[-1].text == "Still tea."
            assert await talk.recall("tea")
            await talk.verify()
            application = await asyncpg.connect(url)
            who = json.dumps({"tenant": tenant, "sight": "tenant", "rights": "read,write"})
            assert await application.fetchval("SELECT * FROM palaver_api.cheer($1, $2)", who, talk.id) == "glad"
            with pytest.raises(asyncpg.PostgresError, match="is not set on this node"):
                await application.fetch("SELECT * FROM palaver.moods")
            await application.close()
    for node in own_cluster.nodes:
        connection = await asyncpg.connect(node)
        assert await connection.fetchval("SELECT palaver.schema_number()") == migrate.known_version()
        gone = "SELECT to_regprocedure('palaver_node.drop_fact(text, jsonb, text, text)')"
        assert await connection.fetchval(gone) is None
        await connection.close()
