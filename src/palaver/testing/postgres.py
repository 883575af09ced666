"""Databases for the conformance kit on a Postgres server: one per guarantee, removed afterwards."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit, urlunsplit

from palaver.engines.postgres import migrate
from palaver.engines.postgres.transports import open_connection
from palaver.errors import EngineError, InvalidInput
from palaver.testing.kit import Database, DatabaseAt, Factory

DENIED = "42501"


@asynccontextmanager
async def databases_on(url: str) -> AsyncIterator[Factory]:
    """Make a migrated template on the server of an administrator's URL, and a factory of copies of it."""
    template = f"palaver_kit_{secrets.token_hex(6)}"
    try:
        await _run(url, f"CREATE DATABASE {template} TEMPLATE template0 ENCODING 'UTF8'")
    except EngineError as problem:
        if problem.sqlstate != DENIED:
            raise
        raise InvalidInput("url", "must be that of a role that may create databases: the kit makes its own") from None
    try:
        async with open_connection(_at(url, template)) as connection:
            await migrate.migrate(connection)
        yield lambda: _copy(url, template)
    finally:
        await _run(url, f"DROP DATABASE IF EXISTS {template} WITH (FORCE)")


@asynccontextmanager
async def _copy(url: str, template: str) -> AsyncIterator[Database]:
    name = f"{template}_{secrets.token_hex(4)}"
    await _run(url, f"CREATE DATABASE {name} TEMPLATE {template}")
    try:
        with TemporaryDirectory(prefix="palaver-") as folder:
            yield DatabaseAt(_at(url, name), Path(folder))
    finally:
        await _run(url, f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


def _at(url: str, database: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{database}"))


async def _run(url: str, statement: str) -> None:
    async with open_connection(url) as connection:
        await connection.execute(statement)
