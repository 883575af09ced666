"""A tiny round of the benchmarks, so that they keep working. Times are not checked.

The cheap suites run with the other tests, all of them with `make bench-smoke`.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
from pathlib import Path

import pytest

import palaver
from palaver.core.validation import MAX_BATCH

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _bench_can_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT)
    monkeypatch.setattr(gc, "unfreeze", lambda: None)  # the tests' own objects stay aside, see conftest.py


CHEAP = ["read", "open", "size", "whole"]
COSTLY = ["append", "context", "generate", "server", "protocols"]


@pytest.mark.process
@pytest.mark.parametrize("suite", [*CHEAP, *(pytest.param(suite, marks=pytest.mark.slow) for suite in COSTLY)])
async def test_a_tiny_round_of_each_suite_gives_figures_with_their_baselines(suite: str, tmp_path: Path) -> None:
    from bench.measure import Bench, Figure, Sizes

    from bench import __main__ as bench

    tiny = Sizes(
        slices=1, slice=20, writers=4, histories=(20, 40), reads=2, opens=2, imports=1, file_turns=20, peer_turns=4
    )
    figures = await bench.SUITES[suite](Bench(tiny, tmp_path))
    assert figures
    assert all(isinstance(figure, Figure) and figure.suite == suite for figure in figures)
    assert all(figure.ratio is not None or figure.unit == "modules" for figure in figures)


async def test_a_backlog_has_more_turns_than_one_call_appends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bench import backlog

    monkeypatch.setattr(backlog, "CONVERSATIONS", 1)
    url = f"sqlite:///{tmp_path / 'a.db'}"
    await backlog.fill(url, MAX_BATCH + 1)
    async with palaver.open(url, embedder=None, worker=False) as store:
        assert (await store.conversation("backlog/0")).info.turn_count == MAX_BATCH + 1


@pytest.mark.slow
async def test_a_short_soak_leaves_nothing_behind(tmp_path: Path) -> None:
    """Nothing fails, and the server releases everything that it held for the clients."""
    from bench.http import once, palaver_server
    from bench.soak import figure, soak

    rounds = iter(range(100))
    with palaver_server(tmp_path) as (port, pid):
        await once(port, "GET", "/readyz")
        report = await soak(port, pid, lambda: next(rounds, None) is not None)
        assert report.failures == []
        assert report.requests > 100
        assert report.memory
        for name in ("palaver_live_readers", "palaver_answers_in_the_making"):
            async with asyncio.timeout(120):
                while await figure(port, name):
                    pass
        assert await figure(port, "palaver_outbox_put_aside") == 0


@pytest.mark.slow
async def test_peers_that_are_not_installed_are_skipped_loudly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bench.measure import Bench, Sizes, Skipped

    from bench import peers

    monkeypatch.setitem(sys.modules, "agents", None)
    monkeypatch.setitem(sys.modules, "langgraph", None)
    results = await peers.run(Bench(Sizes(slices=1, reads=1, peer_turns=4), tmp_path))
    skipped = [result for result in results if isinstance(result, Skipped)]
    assert len(skipped) == 2
    assert all("bench/requirements.txt" in result.why for result in skipped)


def test_results_are_shown_as_a_table_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    from bench.measure import Figure, Goal, Skipped, as_json, show
    from rich.console import Console

    results = [
        Figure("append", "one writer", 50.0, "/s", 100.0, "raw", Goal(0.5)),
        Figure("append", "fsyncs", 0.3, "", 1.0, "raw", Goal(0.15, at_least=False, of="value")),
        Skipped("peers", "not installed"),
    ]
    show(results, Console(width=160))
    table = capsys.readouterr().out
    assert "yes" in table
    assert "NO" in table
    assert "SKIPPED" in table
    rows = json.loads(as_json(results))["results"]
    assert [row.get("met") for row in rows] == [True, False, None]
    assert rows[0]["ratio"] == 0.5
