"""A database of every earlier release opens in this one, with everything in it. And nothing drifts from the files.

Each schema that was ever in use has its rows in `sqlite/NNNN.sql` and `postgres/NNNN.sql`, written by the code of that
time (see make.py). A new migration makes these tests fail until the rows of the schema before it are there.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from typer.testing import CliRunner

import palaver
from palaver.cli import app
from palaver.conversations.internals import engine_of, worker_of
from palaver.engines.migrate import Migration, migrations
from palaver.engines.postgres import migrate, transports
from palaver.engines.sqlite import embeddings
from palaver.engines.sqlite.connection import APPLICATION_ID
from palaver.testing import HashEmbedder
from tests.support import postgres_server
from tests.support.postgres_server import Server
from tests.upgrades.make import KEPT, KEY, OWNER, make_postgres

Vectors = Callable[[], Awaitable[dict[str, int]]]
HERE = Path(__file__).parent
SQLITE = migrations("palaver.engines.sqlite.migrations")
POSTGRES = migrations("palaver.engines.postgres.migrations")
UNFINISHED = f"""
CREATE FUNCTION palaver.schema_finished() RETURNS integer LANGUAGE sql IMMUTABLE RETURN {migrate.FIRST_WITH_RANGE - 1};
"""


# The schemas of releases: their files and databases open in every later version.
RELEASES = {"0.1.0": {"sqlite": 7, "postgres": 3}}


@pytest.mark.parametrize("release", RELEASES)
def test_the_rows_of_every_release_are_here(release: str) -> None:
    """Those tests below that open each earlier schema include the one of the release."""
    for engine, schema in RELEASES[release].items():
        assert rows_of(engine, schema)
        assert schema in earlier(SQLITE if engine == "sqlite" else POSTGRES)


def rows_of(engine: str, schema: int) -> str:
    file = HERE / engine / f"{schema:04}.sql"
    assert file.exists(), f"schema {schema} has a successor now: write its rows with make.py and the code that had it"
    return file.read_text()


def earlier(steps: list[Migration]) -> list[int]:
    return [step.number for step in steps[:-1]]


async def everything_is_there(url: str) -> None:
    """The rows that make.py wrote, through the methods of today."""
    async with palaver.open(url, tenant="acme", user=OWNER) as store:
        talk = await store.find(KEY)
        await talk.verify()
        assert (talk.info.title, talk.info.participants, talk.info.metadata) == (
            "Food and allergies",
            ("bob",),
            {"plan": "pro"},
        )
        turns = await talk.history(limit=100)
        assert turns[0].text == KEPT
        assert [turn.role for turn in turns] == "user user assistant assistant tool assistant user".split()
        assert len(await talk.history(limit=100, include_superseded=True)) == 9, "the forgotten one is a stub"
        assert (await talk.append("user", KEPT, idempotency_key="first")).id == turns[0].id
        await store.settle()
        assert (await talk.recall("what am I allergic to?", k=1))[0].turn.id == turns[0].id
        assert [found.conversation.id for found in await store.search("peanuts")] == [talk.id]
        assert [found.conversation.id for found in await store.search("allergies")] == [talk.id], "by its title"
        assert "allergic" in (await talk.build_context(token_budget=1_000, query="allergic")).text
        assert await store.search("secret") == []
        with pytest.raises(palaver.NotFound):
            await store.find("gone")
        await talk.append("user", "And it goes on: I moved to Lisbon.")
        await talk.forget(turns[0])
        await store.settle()
        assert await store.search("peanuts") == []
        assert (await talk.recall("Lisbon", k=1))[0].turn.text.endswith("Lisbon.")
        await talk.verify()


# ---- SQLite --------------------------------------------------------------------------------------------------------


def sqlite_at(path: Path, schema: int, rows: str = "") -> None:
    db = apsw.Connection(str(path))
    db.execute("PRAGMA journal_mode = WAL").fetchall()
    with db:
        for step in SQLITE:
            if step.number <= schema:
                db.execute(step.sql).fetchall()
        db.execute(rows).fetchall()
        db.execute(f"PRAGMA user_version = {schema}")
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    db.close()


def sqlite_schema(path: Path) -> list[Any]:
    db = apsw.Connection(str(path))
    return sorted(db.execute("SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_schema").fetchall())


@pytest.mark.parametrize("schema", earlier(SQLITE))
async def test_a_file_of_an_earlier_release_opens_with_everything_in_it(tmp_path: Path, schema: int) -> None:
    sqlite_at(tmp_path / "old.db", schema, rows_of("sqlite", schema))
    await everything_is_there(f"sqlite:///{tmp_path}/old.db")
    async with palaver.open(f"sqlite:///{tmp_path}/new.db"):
        pass
    assert sqlite_schema(tmp_path / "old.db") == sqlite_schema(tmp_path / "new.db")


@pytest.mark.parametrize("schema", earlier(SQLITE))
async def test_what_is_counted_of_an_earlier_file_is_what_is_there(tmp_path: Path, schema: int) -> None:
    """Counts that a later schema stores are right for rows that are older than the counts."""
    sqlite_at(tmp_path / "old.db", schema, rows_of("sqlite", schema))
    async with palaver.open(f"sqlite:///{tmp_path}/old.db", tenant="acme", user=OWNER) as store:
        await store.settle()
    db = apsw.Connection(str(tmp_path / "old.db"))
    kept, counted = db.execute(
        """SELECT json_array(c.passage_count, c.passage_terms),
          (SELECT json_array(count(*), sum(size)) FROM passages p WHERE p.cid = c.cid AND p.tid IS NOT NULL)
        FROM conversations c WHERE c.key = ?""",
        (KEY,),
    ).fetchall()[0]
    assert kept == counted


def sqlite_vectors(path: Path) -> dict[str, int]:
    db = apsw.Connection(str(path))
    return dict(db.execute("SELECT model, count(*) FROM embeddings GROUP BY model").fetchall())


OLD_VECTORS = {"minilm-l6-int8": 5}  # what make.py has, but for the last turn


async def searchable_while_it_is_embedded_again(url: str, vectors: Vectors) -> None:
    """At once by words, then by meaning too; no vector of the earlier encoder is left, or was ever compared."""
    async with palaver.open(url, tenant="acme", user=OWNER, embedder="local", worker=False) as store:
        talk = await store.find(KEY)
        assert await vectors() == OLD_VECTORS
        assert [found.conversation.id for found in await store.search("peanuts")] == [talk.id]
        (hit, *_) = await talk.recall("allergic to peanuts", k=1)
        assert hit.turn.text == KEPT
        assert hit.parts["lexical"] > 0
        assert hit.parts["dense"] == 0, "there is no vector of this encoder yet"
        await store.settle()
        assert await vectors() == {"recall-minilm-l6-int8-v1": 6}
        (hit, *_) = await talk.recall("an intolerance of groundnuts", k=1)
        assert (hit.turn.text, hit.parts["lexical"]) == (KEPT, 0)
        assert hit.parts["dense"] > 0
        await talk.verify()


@pytest.mark.costly
async def test_a_file_with_vectors_of_the_earlier_encoder_gets_new_ones(tmp_path: Path) -> None:
    """The rows were written by commit 8d44085, the last one with that encoder."""
    sqlite_at(tmp_path / "old.db", 7, rows_of("sqlite", 7))

    async def vectors() -> dict[str, int]:
        return sqlite_vectors(tmp_path / "old.db")

    await searchable_while_it_is_embedded_again(f"sqlite:///{tmp_path}/old.db", vectors)
    ran = await asyncio.to_thread(CliRunner().invoke, app, ["doctor", "--json", "--db", f"sqlite:///{tmp_path}/old.db"])
    assert ran.exit_code == 0, ran.output
    found = json.loads(ran.stdout)
    assert found["database"]["problem"] is None
    assert found["embedder"] == {"name": "recall-minilm-l6-int8-v1", "installed": True, "problem": None}


async def test_the_worker_of_an_open_store_replaces_them_by_itself(tmp_path: Path) -> None:
    sqlite_at(tmp_path / "old.db", 7, rows_of("sqlite", 7))
    async with palaver.open(f"sqlite:///{tmp_path}/old.db", embedder="local"):
        async with asyncio.timeout(120):
            while sqlite_vectors(tmp_path / "old.db") != {"recall-minilm-l6-int8-v1": 6}:  # noqa: ASYNC110
                await asyncio.sleep(0.05)


@pytest.mark.parametrize("embedder", ["none", HashEmbedder()], ids=["none", "another"])
async def test_an_embedder_that_does_not_supersede_them_leaves_them(tmp_path: Path, embedder: Any) -> None:
    """They may have cost money, and a store may be opened without its embedder by mistake."""
    sqlite_at(tmp_path / "old.db", 7, rows_of("sqlite", 7))
    async with palaver.open(f"sqlite:///{tmp_path}/old.db", embedder=embedder, worker=False) as store:
        await store.settle()
    assert sqlite_vectors(tmp_path / "old.db")["minilm-l6-int8"] == 5


async def test_replacing_them_may_stop_anywhere(tmp_path: Path) -> None:
    """Half are dropped and the process ends: the next one drops the rest."""
    path = tmp_path / "old.db"
    sqlite_at(path, 7, rows_of("sqlite", 7))
    async with palaver.open(f"sqlite:///{path}", embedder="local", worker=False) as store:
        await worker_of(store).embed()
        old = ["minilm-l6-int8"]
        await engine_of(store).writer.submit(lambda tx: embeddings.drop_vectors(tx, old, batch=2))  # type: ignore[attr-defined]
        assert sqlite_vectors(path)["minilm-l6-int8"] == 3
        assert await engine_of(store).embedding_backlog("minilm-l6-int8") > 0, "it would start again"
    async with palaver.open(f"sqlite:///{path}", embedder="local", worker=False) as store:
        await store.settle()
    assert sqlite_vectors(path) == {"recall-minilm-l6-int8-v1": 6}


async def test_what_a_migration_asks_for_has_not_waited_since_1970(tmp_path: Path) -> None:
    """A server that has just been upgraded is ready."""
    async with palaver.open(f"sqlite:///{tmp_path}/x.db", worker=False) as store:
        job = "INSERT INTO jobs (cid, kind, run_at, created) VALUES (1, 'files', 0, 0)"
        await engine_of(store).writer.submit(lambda tx: tx.run(job))  # type: ignore[attr-defined]
        found = await engine_of(store).health()
        assert (found.waiting, found.lag) == (1, 0.0)


# ---- Postgres ------------------------------------------------------------------------------------------------------


async def postgres_at(connection: Any, schema: int, rows: str = "") -> None:
    """Make a database of an earlier schema, as it is while its online steps have yet to run."""
    steps = [step.sql for step in POSTGRES if step.number <= schema]
    finished = UNFINISHED if schema >= migrate.FIRST_WITH_RANGE else ""
    async with connection.transaction():
        await connection.execute("\n".join([*steps, migrate.version_functions(schema), finished, rows]))


@pytest.mark.parametrize("schema", earlier(POSTGRES))
async def test_a_database_of_an_earlier_release_opens_with_everything_in_it(empty_database: str, schema: int) -> None:
    async with transports.open_connection(empty_database) as connection:
        await postgres_at(connection, schema, rows_of("postgres", schema))
        assert await migrate.migrate(connection) == (schema, migrate.known_version())
    await everything_is_there(empty_database)


async def test_a_database_with_vectors_of_the_earlier_encoder_gets_new_ones(empty_database: str) -> None:
    """The same on Postgres, for the tenant that is opened."""
    async with transports.open_connection(empty_database) as connection:
        await postgres_at(connection, 3, rows_of("postgres", 3))
        await migrate.migrate(connection)

        async def vectors() -> dict[str, int]:
            return dict(await connection.fetch("SELECT model, count(*) FROM palaver.embeddings GROUP BY model"))

        await searchable_while_it_is_embedded_again(empty_database, vectors)
        assert dict(await connection.fetch("SELECT model, count(*) FROM palaver.embedded GROUP BY model")) == {
            "recall-minilm-l6-int8-v1": 1
        }


async def test_a_worker_for_all_tenants_replaces_them_in_each(empty_database: str) -> None:
    async with transports.open_connection(empty_database) as connection:
        await postgres_at(connection, 3, rows_of("postgres", 3))
        await migrate.migrate(connection)
        old = "SELECT count(*) FROM palaver.embeddings WHERE model = 'minilm-l6-int8'"
        async with palaver.open(empty_database, tenant="another", embedder="local"):
            async with asyncio.timeout(120):
                while await connection.fetchval(old):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
        assert await connection.fetchval("SELECT count(*) FROM palaver.embeddings WHERE tenant = 'acme'") == 6


async def test_rows_of_this_release_can_be_kept_for_later_ones(postgres_database: str, empty_database: str) -> None:
    """The output of make.py for a database of today fills an empty one, as a fixture for the next release."""
    rows = await make_postgres(postgres_database)
    async with transports.open_connection(empty_database) as connection:
        await migrate.migrate(connection)
        await connection.execute("\n".join(rows))
    await everything_is_there(empty_database)


SUPABASE = ("authenticated", "anon", "service_role", "authenticator")
CATALOGUE = """
SELECT 'column', c.relname, a.attnum::text || ' ' || a.attname, concat_ws(' ', format_type(a.atttypid, a.atttypmod),
  a.attnotnull::text, pg_get_expr(d.adbin, d.adrelid))
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relnamespace = 'palaver'::regnamespace AND a.attnum > 0 AND c.relkind IN ('r', 'v', 'c', 'p')
UNION ALL SELECT 'relation', relname, relkind::text, concat_ws(' ', relrowsecurity::text, relforcerowsecurity::text,
  relacl::text, reloptions::text) FROM pg_class WHERE relnamespace = 'palaver'::regnamespace
UNION ALL SELECT 'constraint', conrelid::regclass::text, conname, pg_get_constraintdef(oid) FROM pg_constraint
WHERE connamespace = 'palaver'::regnamespace
UNION ALL SELECT 'index', tablename, indexname, indexdef FROM pg_indexes WHERE schemaname = 'palaver'
UNION ALL SELECT 'policy', tablename, policyname, concat_ws(' ', permissive, roles::text, cmd, qual, with_check)
FROM pg_policies WHERE schemaname = 'palaver'
UNION ALL SELECT 'trigger', tgrelid::regclass::text, tgname, pg_get_triggerdef(oid) FROM pg_trigger
WHERE NOT tgisinternal
UNION ALL SELECT 'function', oid::regprocedure::text, proowner::regrole::text,
  concat_ws(' ', pg_get_functiondef(oid), (SELECT string_agg(a::text, ',' ORDER BY a::text) FROM unnest(proacl) AS a))
FROM pg_proc WHERE pronamespace IN ('palaver'::regnamespace, 'palaver_api'::regnamespace)
UNION ALL SELECT 'schema', nspname, nspowner::regrole::text,
  (SELECT string_agg(a::text, ',' ORDER BY a::text) FROM unnest(nspacl) AS a)
FROM pg_namespace WHERE nspname LIKE 'palaver%'
"""


async def catalogue(connection: Any) -> set[tuple[Any, ...]]:
    return {tuple(row) for row in await connection.fetch(CATALOGUE)}


async def in_place(connection: Any, way: str) -> set[tuple[Any, ...]]:
    """The catalogue of a schema that was made in one of the ways."""
    await connection.execute("DROP SCHEMA IF EXISTS palaver, palaver_api CASCADE")
    if way == "pasted":
        await connection.execute(migrate.editor_script())
    elif way != "from nothing":
        await postgres_at(connection, int(way.removeprefix("from ")))
    await migrate.migrate(connection)
    return await catalogue(connection)


@pytest.fixture
def quiet_server(postgres: Server) -> Iterator[str]:
    """A server of one's own: rights go to roles that are there, and other tests make roles."""
    try:
        server = postgres_server.start()
    except postgres_server.NoPostgres as reason:
        pytest.skip(str(reason))
    yield server.url
    postgres_server.remove(server)


@pytest.mark.parametrize("roles", [(), SUPABASE], ids=["plain", "supabase"])
async def test_every_way_to_the_schema_leads_to_the_same_one(quiet_server: str, roles: tuple[str, ...]) -> None:
    """From nothing, from each earlier schema, pasted into an editor, and the functions once more over what is there."""
    async with transports.open_connection(quiet_server) as connection:
        for role in roles:
            await connection.execute(f"CREATE ROLE {role} NOLOGIN NOINHERIT")
        wanted = await in_place(connection, "from nothing")
        await connection.execute(migrate.script(migrate.known_version()))
        assert await catalogue(connection) == wanted, "the functions, once more"
        assert {row[0] for row in wanted} >= {"column", "constraint", "index", "policy", "function", "schema"}
        for way in ("pasted", *(f"from {schema}" for schema in earlier(POSTGRES))):
            assert await in_place(connection, way) == wanted, way


async def test_a_changed_schema_differs_from_the_files(postgres_database: str) -> None:
    async with transports.open_connection(postgres_database) as connection:
        wanted = await catalogue(connection)
        for drift in (
            "ALTER TABLE palaver.turns ADD COLUMN mood text",
            "DROP INDEX palaver.turns_inactive",
            "DROP POLICY palaver_app ON palaver.facts",
            "ALTER TABLE palaver.events NO FORCE ROW LEVEL SECURITY",
            "GRANT SELECT ON palaver.turns TO PUBLIC",
            "CREATE FUNCTION palaver_api.more() RETURNS text LANGUAGE sql RETURN 'x'",
            "GRANT EXECUTE ON FUNCTION palaver_api.stats(jsonb) TO PUBLIC",
        ):
            transaction = connection.transaction()
            await transaction.start()
            await connection.execute(drift)
            assert await catalogue(connection) != wanted, drift
            await transaction.rollback()
