"""palaver worker as a service: its database cannot be reached, nobody looks at it, a supervisor ends it."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import palaver
import palaver.sync
from palaver.cli import worker
from palaver.cli.app import Call
from palaver.errors import EngineUnavailable
from tests.cli.conftest import running


def call(*, as_json: bool) -> Call:
    return Call(url="memory:", tenant="default", user=None, as_json=as_json)


async def test_a_database_that_is_away_for_a_while_does_not_end_the_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = iter([EngineUnavailable("the database is starting up")])

    async def read(store: object) -> worker.Backlog:
        for problem in answers:
            raise problem
        return worker.Backlog(0, 0, 0, ())

    monkeypatch.setattr(worker, "read_backlog", read)
    monkeypatch.setattr(worker, "LOOK_SECONDS", 0.01)
    async with palaver.open("memory:", worker=False) as store:
        screen = worker.StatusLine(call(as_json=True))
        await worker.run_watched(asyncio.sleep(0.1), lambda: worker._look(store, screen))
    assert [json.loads(line)["waiting"] for line in capsys.readouterr().out.splitlines()] == [0]


async def test_the_backlog_is_not_read_when_it_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a service, without a terminal: two counts over a whole tenant per second would be read for nobody."""

    async def read(store: object) -> worker.Backlog:
        raise AssertionError("read")

    monkeypatch.setattr(worker, "read_backlog", read)
    async with palaver.open("memory:", worker=False) as store:
        screen = worker.StatusLine(call(as_json=False))
        await worker.run_watched(asyncio.sleep(0), lambda: worker._look(store, screen))


def test_sigterm_ends_it_as_ctrl_c_does(store: Any) -> None:
    """Without a wait for the lease of the running job: a supervisor sends SIGTERM."""
    store.conversation("k").append("user", "hello")
    with running("worker", "--json") as worker_process:
        assert worker_process.stdout is not None
        worker_process.stdout.readline()
        worker_process.terminate()
        _, err = worker_process.communicate(timeout=60)
    assert worker_process.returncode == 0
    assert b"Traceback" not in err


def test_it_also_runs_in_a_thread_where_no_signal_can_be_handled(ok: Any, store: Any) -> None:
    store.conversation("k").append("user", "hello")
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(ok, "worker", "--once").result() == "No jobs are left.\n"


def test_the_file_of_the_server_gives_the_database_and_the_models(ok: Any, folder: Path, monkeypatch: Any) -> None:
    monkeypatch.delenv("PALAVER_URL")
    (folder / "palaver.toml").write_text(
        'url = "sqlite:///other.db"\n[models.house]\nmodel = "openai:test"\napi_key = "x"\n'
    )
    with palaver.sync.open("sqlite:///other.db", worker=False) as store:
        talk = store.conversation("k", model="house")
        talk.append_many({"role": "user", "content": f"Day {day}: the fence needs paint."} for day in range(60))
    ok("worker", "--once", "--config", "palaver.toml")
    with palaver.sync.open("sqlite:///other.db", worker=False) as store:
        assert "in place of openai:test" in store.find("k").summaries()[0].model  # without the file, "house" is unknown


def test_a_file_that_cannot_be_read_is_named(cli: Any) -> None:
    result = cli("worker", "--once", "--config", "none.toml")
    assert result.exit_code == 1
    assert "none.toml cannot be read" in result.stderr
