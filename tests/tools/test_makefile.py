"""The Makefile's rule for tests that fail and then pass alone."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run_again(tmp_path: Path, ci: str, exit_code: int) -> subprocess.CompletedProcess[str]:
    """Run `make again` with a Python whose pytest ends with an exit code."""
    make = shutil.which("make")
    if make is None:
        pytest.skip("no make")
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nexit {exit_code}\n")
    python.chmod(0o755)
    command = [make, "--silent", f"BIN={tmp_path}", "again"]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, "CI": ci}, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("ci", "passes"), [("true", False), ("", True)])
def test_a_test_that_passes_only_when_it_is_alone_fails_the_run_in_ci(tmp_path: Path, ci: str, passes: bool) -> None:
    done = run_again(tmp_path, ci, 0)
    assert (done.returncode == 0) is passes
    assert ("In CI that is a failure" in done.stdout) is not passes


@pytest.mark.parametrize("ci", ["true", ""])
def test_a_test_that_fails_again_fails_the_run_everywhere(tmp_path: Path, ci: str) -> None:
    assert run_again(tmp_path, ci, 1).returncode != 0
