"""A test has the marks of what it uses, so that `make quick` can leave it out."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.server.conftest import running
from tests.support import postgres_server
from tests.support.marks import needs, started_by


def directly() -> None:
    subprocess.run([sys.executable], check=True)


async def in_a_loop() -> None:
    await asyncio.create_subprocess_exec(sys.executable)


@contextmanager
def by_a_helper() -> Iterator[None]:
    directly()
    yield


@asynccontextmanager
async def inside() -> AsyncIterator[None]:
    def then() -> None:
        directly()

    yield then()


def by_a_module() -> None:
    postgres_server.start()


def none_at_all() -> str:
    asyncio.run(postgres_server.new_database(postgres_server.Server("")))
    return postgres_server.as_application("postgresql://x/y")


@pytest.mark.parametrize("function", [directly, in_a_loop, by_a_helper, inside, by_a_module])
def test_a_way_to_a_process_is_found(function: object) -> None:
    assert started_by(function) == {"process"}


def test_a_helper_that_starts_nothing_is_no_process() -> None:
    assert started_by(none_at_all) == frozenset()


def test_a_server_is_found() -> None:
    assert started_by(running) == {"server"}


def test_the_engine_of_a_test_is_known(request: pytest.FixtureRequest, database_url: str) -> None:
    marks = {mark.name for mark in request.node.iter_markers()} & {"postgres", "browser", "process", "server"}
    assert marks == ({"postgres"} if database_url.startswith("postgres") else set())


@given(st.booleans())
def a_property(_: bool) -> None:
    pass


def test_a_property_is_found(request: pytest.FixtureRequest) -> None:
    item = pytest.Function.from_parent(request.node.parent, name="a_property", callobj=a_property)
    assert needs(item) == {"property"}
