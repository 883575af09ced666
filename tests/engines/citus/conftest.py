"""The tests of this folder need a Citus cluster (`make citus URL=…`), and are skipped without one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from palaver.cli import app
from tests.support import citus_cluster
from tests.support.citus_cluster import Cluster

HERE = "tests/engines/citus"
REASON = (
    f"no Citus cluster: make citus URL=… (or {citus_cluster.COORDINATOR}: a superuser's address at the coordinator)"
)


if not os.environ.get(citus_cluster.COORDINATOR):  # one file reports that there is no cluster; the others take time
    collect_ignore = [one.name for one in Path(__file__).parent.glob("test_*.py") if one.stem != "test_cluster"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if not os.environ.get(citus_cluster.COORDINATOR):
        for item in items:
            if HERE in item.path.as_posix():
                item.add_marker(pytest.mark.skip(reason=REASON))


def run(*args: str) -> Result:
    """Run a command of `palaver`."""
    done = CliRunner().invoke(app, list(args))
    assert done.exit_code == 0, done.output
    return done


@pytest.fixture(scope="session")
def empty_cluster() -> Iterator[Cluster]:
    """A scratch database without Palaver's schema."""
    with asyncio.Runner() as runner:
        context = citus_cluster.scratch()
        yield runner.run(context.__aenter__())
        runner.run(context.__aexit__(None, None, None))


@pytest.fixture(scope="session")
def distributed(empty_cluster: Cluster) -> Cluster:
    """The scratch database, migrated and distributed as docs/how-to/scale-out.md says."""
    run("migrate", "--db", empty_cluster.url)
    told = run("migrate", "--distribute", "citus", "--db", empty_cluster.url).output
    assert "distributing palaver.turns" in told
    assert "routing palaver_api.append" in told
    asyncio.run(empty_cluster.create_login())
    return empty_cluster


@pytest.fixture
async def cluster(distributed: Cluster) -> Cluster:
    """The distributed database, without rows."""
    await distributed.empty()
    return distributed


@pytest.fixture
def citus_url(cluster: Cluster) -> str:
    """The same database, as an application would open it."""
    return cluster.application(cluster.url)


# Tests of the Postgres engine that are imported here run on the cluster.


@pytest.fixture
def postgres_database(cluster: Cluster) -> str:
    return cluster.url


@pytest.fixture
def postgres_url(citus_url: str) -> str:
    return citus_url
