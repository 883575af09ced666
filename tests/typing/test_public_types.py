"""A caller's mistakes are found by mypy and by pyright, and right programs are accepted."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.process  # mypy and pyright run in one

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
MISTAKES, CORRECT, VERBS = (HERE / name for name in ("mistakes.py", "correct.py", "every_verb.py"))
FEWEST = 18

Errors = dict[tuple[str, int], str]  # by the name of the program and the line


def mypy() -> Errors:
    # With the settings and the cache of `make lint`, so that the library itself is not checked again.
    printed = _run("mypy", "--no-error-summary", "--no-pretty", str(MISTAKES), str(CORRECT), str(VERBS)).stdout
    found = re.findall(r"(\w+\.py):(\d+): error: (.*)", printed)
    return {(name, int(line)): message for name, line, message in found}


def pyright() -> Errors:
    report = json.loads(
        _run("pyright", "--outputjson", "--pythonpath", sys.executable, str(MISTAKES), str(CORRECT), str(VERBS)).stdout
    )
    errors = [one for one in report["generalDiagnostics"] if one["severity"] == "error"]
    return {(Path(one["file"]).name, one["range"]["start"]["line"] + 1): one["message"] for one in errors}


def _run(module: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run([sys.executable, "-m", module, *arguments], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done


def marked_lines() -> set[tuple[str, int]]:
    lines = MISTAKES.read_text(encoding="utf-8").splitlines()
    return {(MISTAKES.name, number) for number, line in enumerate(lines, 1) if line.endswith("# error")}


@pytest.mark.parametrize("check", [mypy, pyright])
def test_every_mistake_is_reported_and_nothing_else(check: Callable[[], Errors]) -> None:
    """In one test, because each run of a checker takes many seconds."""
    marked, found = marked_lines(), check()
    assert len(marked) >= FEWEST
    assert sorted(marked - found.keys()) == []
    assert {place: found[place] for place in found.keys() - marked} == {}


def test_the_stub_of_the_synchronous_api_is_up_to_date() -> None:
    """`python -m tools.sync_stub` writes it."""
    assert _run("tools.sync_stub", "--check").returncode == 0
