"""A project for each test: a database with Supabase's roles behind a PostgREST-compatible server."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import pytest

import palaver
from palaver.conversations.store import Store
from palaver.engines.postgres import compat, migrate
from palaver.engines.postgres.transports import open_connection
from tests.support import postgres_server, supabase_server
from tests.support.postgres_server import Server, migrate_for_tests
from tests.support.supabase_server import Lite

pytest.register_assert_rewrite("palaver.testing.guarantees", "palaver.testing.kit")


@pytest.fixture(scope="session")
def lite(postgres: Server) -> Iterator[Lite]:
    """PostgREST-compatible, not PostgREST."""
    login = postgres.at("postgres", supabase_server.AUTHENTICATOR, supabase_server.AUTHENTICATOR_PASSWORD)
    try:
        server = supabase_server.start(login)
    except supabase_server.NoSupabase as reason:
        warnings.warn(f"Supabase is not tested here: {reason}", stacklevel=1)  # a skipped test is easily overlooked
        pytest.skip(str(reason))
    yield server
    os.kill(server.pid, signal.SIGTERM)
    os.waitpid(server.pid, 0)


async def _migrate(url: str) -> None:
    await postgres_server.execute(url, *supabase_server.ROLES, supabase_server.USERS, supabase_server.STORAGE)
    await migrate_for_tests(url)
    await postgres_server.execute(url, migrate.storage_script())


@pytest.fixture
async def supabase_database(postgres: Server) -> AsyncIterator[str]:
    """The superuser's URL of a migrated database with the roles of a Supabase project."""
    async with postgres_server.copied_database(postgres, "supabase", _migrate) as url:
        yield url


async def _migrate_with_compat(url: str) -> None:
    await _migrate(url)
    await postgres_server.execute(
        url,
        "GRANT USAGE ON SCHEMA public TO anon, authenticated, service_role",
        "ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT ALL ON TABLES TO anon, authenticated, service_role",
    )
    await apply_compat(url)


async def apply_compat(url: str, **tenants: str) -> None:
    """Create the tables of older systems, and bind the public key (`anon`) or the server key (`service`)."""
    async with open_connection(url) as connection:
        await compat.apply(connection, list(compat.TABLES), compat.Bindings(**tenants))


@dataclass(frozen=True, slots=True)
class OldProject:
    """A project in which older programs use tables that they know, with nothing but its URL and a key."""

    url: str
    lite: Lite
    database: str

    def opened(self, tenant: str) -> AbstractAsyncContextManager[Store]:
        """Open the same data with the library."""
        return palaver.open(postgres_server.as_application(self.database), tenant=tenant, worker=False)

    async def bind(self, **tenants: str) -> None:
        await apply_compat(self.database, **tenants)


@pytest.fixture
async def old_project(lite: Lite, postgres: Server) -> AsyncIterator[OldProject]:
    async with postgres_server.copied_database(postgres, "supabase-compat", _migrate_with_compat) as url:
        yield OldProject(f"{lite.address}{urlsplit(url).path}~compat", lite, url)


@dataclass(frozen=True, slots=True)
class Project:
    """The URL and keys of a project, as an application has them."""

    url: str
    lite: Lite
    database: str  # the superuser's URL, to inspect rows

    def open(self, **options: Any) -> AbstractAsyncContextManager[Store]:
        return palaver.open(self.url, **{"key": self.lite.publishable_key, **options})

    def as_user(self, user: str, tenant: str = "acme", **options: Any) -> AbstractAsyncContextManager[Store]:
        return self.open(token=self.lite.token(user, tenant), **options)


@pytest.fixture
def project(lite: Lite, supabase_database: str) -> Project:
    return Project(lite.project(urlsplit(supabase_database).path[1:]), lite, supabase_database)
