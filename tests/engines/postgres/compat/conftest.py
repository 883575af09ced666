"""Databases with the tables of older systems, and programs that use them in SQL as those systems do."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
import pytest

from palaver.engines.postgres import compat
from tests.support import postgres_server
from tests.support.postgres_server import Server, migrate_for_tests

SUPABASE_ROLES = """
DO $$
DECLARE name text;
BEGIN
  FOREACH name IN ARRAY ARRAY['anon', 'authenticated', 'service_role BYPASSRLS'] LOOP
    BEGIN
      EXECUTE 'CREATE ROLE ' || name || ' NOLOGIN NOINHERIT';
    EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL;
    END;
  END LOOP;
END $$;
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT ALL ON TABLES TO anon, authenticated, service_role;
"""


async def migrate_with_compat(url: str) -> None:
    """Migrate a database with the roles of a Supabase project and their grants in `public`."""
    await postgres_server.execute(url, SUPABASE_ROLES)
    await migrate_for_tests(url)
    connection = await asyncpg.connect(url)
    try:
        await compat.apply(connection, ["hal", "librarian"])
    finally:
        await connection.close()


@pytest.fixture
async def database(postgres: Server) -> AsyncIterator[str]:
    """The superuser's URL of a database with all compatibility tables."""
    async with postgres_server.copied_database(postgres, "compat", migrate_with_compat) as url:
        yield url


@pytest.fixture
def url(database: str) -> str:
    """The same database, as an application opens it."""
    return postgres_server.as_application(database)


class Program:
    """A connection of a program that knows nothing of Palaver. Each call is one transaction, as PostgREST does it."""

    def __init__(self, connection: asyncpg.Connection[Any], settings: dict[str, str]) -> None:
        self.connection, self.settings = connection, settings

    async def rows(self, sql: str, *args: Any) -> list[dict[str, Any]]:
        async with self.connection.transaction():
            for name, value in self.settings.items():
                await self.connection.execute("SELECT set_config($1, $2, true)", name, value)
            return [dict(row) for row in await self.connection.fetch(sql, *args)]

    async def one(self, sql: str, *args: Any) -> dict[str, Any]:
        (row,) = await self.rows(sql, *args)
        return row

    async def value(self, sql: str, *args: Any) -> Any:
        (found,) = (await self.one(sql, *args)).values()
        return found


def application(tenant: str, **more: str) -> dict[str, str]:
    """Return the settings with which the application's own program identifies itself."""
    known = {"palaver.tenant": tenant, "palaver.sight": "tenant", "palaver.rights": "read,write,system,admin"}
    return known | {f"palaver.{name}": value for name, value in more.items()}


def signed_in(tenant: str, user: str, **app_metadata: str) -> dict[str, str]:
    """Return the settings that PostgREST makes for a caller with a token."""
    claims = {"sub": user, "role": "authenticated", "app_metadata": {"tenant": tenant, **app_metadata}}
    return {"role": "authenticated", "request.jwt.claims": json.dumps(claims)}


def anonymous() -> dict[str, str]:
    return {"role": "anon", "request.jwt.claims": json.dumps({"role": "anon"})}


def server_key() -> dict[str, str]:
    return {"role": "service_role", "request.jwt.claims": json.dumps({"role": "service_role"})}


async def bind(database: str, **tenants: str) -> None:
    """Bind the public key (`anon`) or the server key (`service`) to a tenant."""
    connection = await asyncpg.connect(database)
    try:
        await compat.apply(connection, ["hal", "librarian"], compat.Bindings(**tenants))
    finally:
        await connection.close()


Opener = Callable[..., Any]


@pytest.fixture
def program(database: str, url: str) -> Opener:
    """Open a program: as the application, or as PostgREST opens one for its callers."""

    @asynccontextmanager
    async def opened(settings: dict[str, str] | None = None) -> AsyncIterator[Program]:
        settings = application("acme") if settings is None else settings
        connection = await asyncpg.connect(database if "role" in settings else url)
        try:
            yield Program(connection, settings)
        finally:
            await connection.close()

    return opened
