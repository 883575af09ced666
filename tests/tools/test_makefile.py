"""The Makefile's rule for tests that fail and then pass alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run_again(tmp_path: Path, ci: str, exit_code: int, failed: int = 1) -> subprocess.CompletedProcess[str]:
    """Run `make again` after a number of failed tests, with a Python whose pytest ends with an exit code."""
    make = shutil.which("make")
    if make is None:
        pytest.skip("no make")
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nexit {exit_code}\n")
    python.chmod(0o755)
    names = tmp_path / "failed"
    names.write_text(json.dumps({f"test_{n}": True for n in range(failed)}, indent=2))
    command = [make, "--silent", f"BIN={tmp_path}", f"FAILED={names}", "again"]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, "CI": ci}, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("ci", "failed", "passes"), [("true", 2, True), ("true", 3, False), ("", 3, True)])
def test_more_than_two_tests_that_pass_only_alone_fail_the_run_in_ci(
    tmp_path: Path, ci: str, failed: int, passes: bool
) -> None:
    done = run_again(tmp_path, ci, 0, failed)
    assert (done.returncode == 0) is passes
    assert ("are a failure" in done.stdout) is not passes
    assert "test_1" in done.stdout


@pytest.mark.parametrize("ci", ["true", ""])
def test_a_test_that_fails_again_fails_the_run_everywhere(tmp_path: Path, ci: str) -> None:
    assert run_again(tmp_path, ci, 1).returncode != 0
