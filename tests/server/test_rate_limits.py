"""Rate limits: in one process, and shared by several."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import palaver
from palaver.conversations.internals import engine_of
from palaver.errors import EngineUnavailable
from palaver.ports.budgets import BudgetStore, Charge
from palaver.server.rate_limits import (
    LEASES,
    PROBES,
    SLOTS,
    DatabaseTokenBucket,
    SharedTokenBucket,
    TokenBucket,
    make_limit,
)

TAKE = """
import sys
from pathlib import Path
from palaver.server.rate_limits import SharedTokenBucket
limit = SharedTokenBucket(1e-9, 100, Path(sys.argv[1]))
print(sum(limit.take_token("ada") is None for _ in range(80)))
"""


def test_processes_together_take_no_more_than_one_burst(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TAKE, str(tmp_path / "limits")]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    taken = [int(one.communicate(timeout=120)[0]) for one in running]
    assert sum(taken) == 100


def test_a_shared_limit_refills_and_knows_callers_apart(tmp_path: Path) -> None:
    now = [100.0]
    one, other = (SharedTokenBucket(2.0, 3, tmp_path / "limits", lambda: now[0]) for _ in range(2))
    assert [limit.take_token("ada") for limit in (one, other, one)] == [None] * 3
    assert other.take_token("ada") == pytest.approx(0.5)
    assert other.take_token("bob") is None
    now[0] += 0.5
    assert one.take_token("ada") is None
    assert one.take_token("ada") == pytest.approx(0.5)


def test_a_full_table_goes_on_limiting(tmp_path: Path) -> None:
    limit = SharedTokenBucket(1e-9, 1, tmp_path / "limits")
    assert all(limit.take_token(f"caller {n}") is None for n in range(PROBES * 100))
    assert (tmp_path / "limits").stat().st_size == SLOTS * 24
    assert limit.take_token(f"caller {PROBES * 100 - 1}") is not None


def test_the_workers_of_a_server_share_and_a_single_process_does_not(tmp_path: Path) -> None:
    assert isinstance(make_limit("requests", 1.0, 1, tmp_path), SharedTokenBucket)
    assert isinstance(make_limit("requests", 1.0, 1, None), TokenBucket)
    assert make_limit("requests", 0.0, 1, tmp_path).take_token("ada") is None


# ---- all servers of a database -------------------------------------------------------------------------------------


class Counts:
    """The counts of a database, which counts how often it is asked, and can fail."""

    def __init__(self, engine: BudgetStore) -> None:
        self.engine, self.calls, self.works = engine, 0, True

    async def spend(self, tenant: str, charges: list[Charge]) -> object:
        if not self.works:
            raise EngineUnavailable("down")
        self.calls += 1
        return await self.engine.spend(tenant, charges)


async def test_servers_of_one_database_together_take_no_more_than_one_burst(database_url: str) -> None:
    now = [1_000_000.0]
    async with (
        palaver.open(database_url, tenant="acme", worker=False, embedder=None) as one,
        palaver.open(database_url, tenant="acme", worker=False, embedder=None) as other,
    ):
        counts = [Counts(engine_of(store)) for store in (one, other)]
        limits = [DatabaseTokenBucket("requests", 50.0, 200, "acme", lambda: now[0]) for _ in counts]

        async def take(n: int) -> list[float | None]:
            pairs = zip(limits, counts, strict=True)
            return [await limit.take("ada", found) for limit, found in pairs for _ in range(n)]  # type: ignore[arg-type]

        taken = await asyncio.gather(*(take(40) for _ in range(4)))
        waits = [wait for some in taken for wait in some]
        assert waits.count(None) == 200
        assert {wait for wait in waits if wait is not None} == {4.0}
        assert sum(found.calls for found in counts) <= LEASES + 20, "most requests do not ask the database"
        assert await limits[0].take("bob", counts[0]) is None  # type: ignore[arg-type]
        now[0] += 4
        assert await limits[1].take("ada", counts[1]) is None  # type: ignore[arg-type]
        assert sum(wait is None for wait in await take(150)) >= 180


async def test_without_the_database_each_process_limits_alone(database_url: str) -> None:
    async with palaver.open(database_url, tenant="acme", worker=False, embedder=None) as store:
        counts = Counts(engine_of(store))
        counts.works = False
        limit = make_limit("requests", 1e-9, 3, None, "acme")
        waits = [await limit.take("ada", counts) for _ in range(5)]  # type: ignore[arg-type]
        assert waits.count(None) == 3


async def test_a_caller_has_one_row_whatever_the_window(tmp_path: Path) -> None:
    now = [1_000_000.0]
    async with palaver.open(f"sqlite:///{tmp_path}/chat.db", tenant="acme", worker=False, embedder=None) as store:
        limit = DatabaseTokenBucket("requests", 1.0, 1, "acme", lambda: now[0])
        for _ in range(5):
            assert await limit.take("ada", engine_of(store)) is None
            now[0] += 1
    with closing(sqlite3.connect(f"{tmp_path}/chat.db")) as database:
        assert database.execute("SELECT count(*) FROM budget_use").fetchone() == (1,)
