"""The command line as a user has it: a fresh folder, a database file in it, and nothing else."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import apsw
import pytest
from typer.main import get_command
from typer.testing import CliRunner, Result

import palaver.sync
from palaver.cli import app

COMMAND = [sys.executable, "-m", "palaver.cli"]
BUILT = cache(get_command)  # most of a call's time goes into building all commands


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every test runs in its own folder, with chat.db there as the database."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PALAVER_URL", "chat.db")
    for name in (
        "PALAVER_TENANT",
        "PALAVER_USER",
        "RETENTION_MINUTES",
        "PALAVER_RETENTION_MINUTES",
        "PALAVER_MODEL",
        "PALAVER_FILES",
        "FORCE_COLOR",
        "COLUMNS",
    ):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Result]:
    """`cli("ls", "--json")`, whatever the exit code."""
    monkeypatch.setattr("typer.testing._get_command", BUILT)

    def run(*args: str, input: str | bytes | None = None) -> Result:
        result = CliRunner().invoke(app, list(args), input=input)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
        return result

    return run


@pytest.fixture
def ok(cli: Callable[..., Result]) -> Callable[..., str]:
    """`ok("ls")`: what it prints, having succeeded."""

    def run(*args: str, input: str | bytes | None = None) -> str:
        result = cli(*args, input=input)
        assert result.exit_code == 0, result.output
        return result.stdout

    return run


@pytest.fixture
def lines(ok: Callable[..., str]) -> Callable[..., list[dict[str, Any]]]:
    """`lines("ls")`: the JSON lines that it prints, having succeeded."""

    def run(*args: str, input: str | bytes | None = None) -> list[dict[str, Any]]:
        return [json.loads(line) for line in ok(*args, "--json", input=input).splitlines()]

    return run


@pytest.fixture
def store(folder: Path) -> Iterator[Any]:
    """The same database through the library. No worker of its own does what a command is to do."""
    with palaver.sync.open("sqlite:///chat.db", worker=False) as opened:
        yield opened


def raw(path: str = "chat.db") -> apsw.Connection:
    """The file without the library, for what no command does. A store may be open too, so it waits its turn."""
    db = apsw.Connection(path)
    db.set_busy_timeout(10_000)
    return db


@contextmanager
def running(*args: str, **streams: Any) -> Iterator[subprocess.Popen[bytes]]:
    """The real program, while it runs. A test that fails does not wait for it."""
    # A shell ignores Ctrl-C for what it runs in the background, and children inherit that.
    listening = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    child = subprocess.Popen(
        [*COMMAND, *args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, preexec_fn=listening, **streams
    )
    try:
        yield child
    finally:
        child.kill()
        child.communicate()


def interrupt(child: subprocess.Popen[bytes]) -> bytes:
    """Press Ctrl-C until the program ends, and return its stderr.

    One press is not always enough: Python does not see a signal that comes just before it begins to wait for input.
    """
    for _ in range(6):
        child.send_signal(signal.SIGINT)
        try:
            return child.communicate(timeout=10)[1]
        except subprocess.TimeoutExpired:
            continue
    raise AssertionError("it does not end")


def process(*args: str, input: str | bytes = b"") -> subprocess.CompletedProcess[str]:
    """The real program, with lines piped into it."""
    data = input.encode() if isinstance(input, str) else input
    done = subprocess.run([*COMMAND, *args], input=data, capture_output=True, timeout=60)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())
