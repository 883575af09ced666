"""Rate limits: in one process, and shared by several."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from palaver.server.rate_limits import PROBES, SLOTS, SharedTokenBucket, TokenBucket, make_limit

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
