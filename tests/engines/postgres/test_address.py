"""The parameters of a Postgres URL, and the settings of its connections."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

import palaver
from palaver.engines.postgres.address import Address, parse_address
from palaver.errors import EngineUnavailable, InvalidInput
from tests.support.postgres_server import connections_of_the_application

HERE = "postgresql://ada:secret@db.example:5432/chats"


def test_a_plain_url_has_the_defaults() -> None:
    assert parse_address(HERE) == Address(HERE)
    assert parse_address(HERE.replace("postgresql", "postgres")).dsn == HERE


def test_parameters_are_settings_and_the_drivers_own_stay() -> None:
    url = (
        f"{HERE}?pool_size=4&sslmode=require&command_timeout=2.5&connect_timeout=3&application_name=shop&pgbouncer=true"
    )
    assert parse_address(url) == Address(
        f"{HERE}?sslmode=require",
        pgbouncer=True,
        pool_size=4,
        connect_timeout=3.0,
        command_timeout=2.5,
        application_name="shop",
    )


def test_an_option_overrides_the_url() -> None:
    assert parse_address(f"{HERE}?pool_size=4", pool_size=7, command_timeout=None).pool_size == 7


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("max_size=4", "unknown parameter 'max_size'.*use pool_size.*known parameters: pgbouncer, pool_size"),
        ("channel_binding=require", "channel_binding.*verify-full"),
        ("pool_sise=4", "pool_sise"),
        ("pool_size=0", "pool_size must be between"),
        ("pool_size=many", "pool_size must be a number"),
        ("command_timeout=-1", "command_timeout must be seconds"),
        ("command_timeout=nan", "command_timeout must be seconds"),
        ("connect_timeout=", "connect_timeout must be a number"),
        ("pgbouncer=yes", "pgbouncer must be true or false"),
        ("application_name=", "application_name must be"),
    ],
)
def test_what_is_wrong_with_a_url_is_named(query: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says) as problem:
        parse_address(f"{HERE}?{query}")
    assert "secret" not in str(problem.value)


@pytest.mark.parametrize(
    "options", [{"pool_size": True}, {"pool_size": 2.0}, {"command_timeout": "60"}, {"application_name": "a\nb"}]
)
def test_an_option_is_checked_too(options: dict[str, Any]) -> None:
    (name,) = options
    with pytest.raises(InvalidInput) as problem:
        parse_address(HERE, **options)
    assert problem.value.field == name


async def test_an_unknown_parameter_is_refused_at_open(postgres_url: str) -> None:
    with pytest.raises(InvalidInput, match="known parameters"):
        async with palaver.open(f"{postgres_url}?max_size=4"):
            pass


async def test_every_connection_has_the_name_and_there_are_no_more_than_asked_for(
    postgres_url: str, postgres_database: str
) -> None:
    async with palaver.open(f"{postgres_url}?application_name=shop", pool_size=2) as store:
        talk = await store.conversation("k")
        for n in range(20):
            await talk.append("user", f"turn {n}")
        names = [name for _, name in await connections_of_the_application(postgres_database)]
    assert set(names) == {"shop"}
    assert len(names) <= 2 + 2, "the pool, one that listens and one that notifies"


async def test_a_pool_of_the_application_is_used_and_stays_open(postgres_url: str, postgres_database: str) -> None:
    async with asyncpg.create_pool(
        postgres_url, min_size=1, max_size=3, server_settings={"application_name": "its own"}
    ) as pool:
        async with palaver.open(postgres_url, pool=pool, worker=False) as store:
            talk = await store.conversation("k")
            await talk.append("user", "hello")
            assert [turn.text for turn in await talk.history()] == ["hello"]
            await talk.verify()
            assert "its own" in [name for _, name in await connections_of_the_application(postgres_database)]
        assert await pool.fetchval("SELECT 1") == 1


@pytest.mark.parametrize(
    "password",
    [
        "a#b-secret", "a/b-secret", "a?b-secret", "a[b-secret", "p@ss/w:rd-secret", "12?b-secret", "12/3?b-secret",
        "1?a&b-secret",
    ],
)  # fmt: skip
async def test_a_password_that_cuts_the_url_in_two_is_refused_with_the_way_out(password: str) -> None:
    """Not a traceback, and no part of the password in the message."""
    url = f"postgresql://ada:{password}@127.0.0.1:1/chats"
    with pytest.raises(InvalidInput, match="percent-encoded: # is %23") as problem:
        async with palaver.open(url):
            pass
    assert "secret" not in str(problem.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ada:p%23s%2Fw@db/chats",
        "postgresql:///chats?host=%2Frun%2Fpostgresql",
        "postgresql://ada:x@one:5432,two:5433/chats?target_session_attrs=read-write",
        "postgresql://ada:x@[::1]:5432/chats",
    ],
)
def test_a_url_of_every_form_is_read(url: str) -> None:
    assert urlsplit(parse_address(url).dsn) == urlsplit(url)


async def test_an_unknown_host_and_a_server_without_tls_are_named(postgres_url: str) -> None:
    with pytest.raises(EngineUnavailable, match=r"host name is unknown.*percent-encoded"):
        async with palaver.open("postgresql://ada:x@db.invalid/chats"):
            pass
    with pytest.raises(EngineUnavailable, match="does not use TLS, but sslmode"):
        async with palaver.open(f"{postgres_url}?sslmode=require"):
            pass
