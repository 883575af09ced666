"""Two builds of the web app at once, as when `make run` and `pip install .` are started together."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

WEB = Path(__file__).parents[2] / "web"
WAITS = "import build\nprint('waits', flush=True)\nwith build.one_at_a_time():\n    print('builds', flush=True)\n"


def test_a_build_waits_for_the_build_of_another_process() -> None:
    with (WEB / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        second = subprocess.Popen([sys.executable, "-c", WAITS], cwd=WEB, stdout=subprocess.PIPE, text=True)
        assert second.stdout is not None
        assert second.stdout.readline() == "waits\n"
        with pytest.raises(subprocess.TimeoutExpired):
            second.wait(timeout=0.5)
    assert second.communicate(timeout=30)[0] == "builds\n"
    assert second.returncode == 0
