"""Chooses the engine for a URL, and passes it the options that it supports."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from palaver.conversations.open_options import DatabaseOptions
from palaver.errors import InvalidInput, MissingExtra
from palaver.model import Scope
from palaver.ports.clock import Clock
from palaver.ports.engine import Engine

POSTGRES_OPTIONS = (
    "migrate_url", "listen_url", "read_url", "pool", "pool_size", "connect_timeout", "command_timeout",
    "application_name",
)  # fmt: skip
SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")


def scheme_of(url: str) -> str:
    """Return the scheme of a URL, of which the rest may be invalid: `urlsplit` raises for some passwords."""
    scheme, colon, _ = url.partition(":")
    return scheme.lower() if colon and SCHEME.fullmatch(scheme) else ""


def open_engine(url: str, clock: Clock, home: Scope, options: DatabaseOptions) -> AbstractAsyncContextManager[Engine]:
    """Open the engine that a URL names. `home` is the scope of an engine that may work for one only."""
    if not isinstance(url, str):
        raise InvalidInput("url", f"must be text, not {type(url).__name__}")
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    scheme = scheme_of(url)
    if scheme in ("supabase+https", "supabase+http"):
        _check_options(given, ("key", "token", "migrate_url"), "is for Postgres; a Supabase project has one address")
        try:
            from palaver.engines.postgres.supabase import open_supabase
        except ModuleNotFoundError as problem:
            raise MissingExtra("supabase", "The Supabase engine") from problem
        return open_supabase(url, clock, home=home, **{"key": None, "token": None, **given})
    if scheme in ("postgresql", "postgres"):
        _check_options(given, POSTGRES_OPTIONS, "is for Supabase")
        try:
            from palaver.engines.postgres.engine import open_postgres
        except ModuleNotFoundError as problem:
            raise MissingExtra("postgres", "The Postgres engine") from problem
        return open_postgres(url, clock, home=home.tenant, **given)
    if scheme != "sqlite":
        known = "sqlite:///file.db, memory:, postgresql://host/name or supabase+https://project.supabase.co"
        driver = " (leave out the driver after '+')" if "+" in scheme else ""
        fault = f"no engine for '{scheme}'" if scheme else "has no scheme"  # the rest may contain a password
        raise InvalidInput("url", f"{fault}: use {known}{driver}")
    _check_options(given, (), "is for a server; an SQLite file has one address")
    try:
        from palaver.engines.sqlite import open_sqlite
    except ModuleNotFoundError as problem:
        raise MissingExtra("all", "The SQLite engine") from problem
    return open_sqlite(url, clock)


def _check_options(given: Mapping[str, Any], known: Sequence[str], problem: str) -> None:
    for name in given:
        if name not in known:
            raise InvalidInput(name, problem)
