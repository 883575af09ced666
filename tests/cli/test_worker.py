"""palaver worker while its database cannot be reached, and what it reads for nobody."""

from __future__ import annotations

import asyncio
import json

import pytest

import palaver
from palaver.cli import worker
from palaver.cli.app import Call
from palaver.errors import EngineUnavailable


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
