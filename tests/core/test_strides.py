"""Work on a large input runs in a thread, in strides, and ends when its caller is gone."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from palaver.core.concurrency import run_in_strides
from palaver.core.strides import LARGE, between_strides, size_of
from palaver.core.turn_draft import preview
from palaver.model import ToolResult, Turn


async def test_small_work_runs_where_it_is_called_and_large_work_elsewhere() -> None:
    here = threading.get_ident()
    assert await run_in_strides(threading.get_ident, LARGE) == here
    assert await run_in_strides(threading.get_ident, LARGE + 1) != here


async def test_the_event_loop_runs_between_the_strides_of_large_work() -> None:
    went_on = threading.Event()

    def work() -> bool:
        while not went_on.is_set():
            between_strides()
        return True

    running = asyncio.create_task(run_in_strides(work, LARGE + 1))
    await asyncio.sleep(0)
    went_on.set()
    assert await running


async def test_large_work_ends_when_its_caller_is_cancelled() -> None:
    began, ended = threading.Event(), threading.Event()

    def work() -> None:
        try:
            while True:
                began.set()
                between_strides()
        finally:
            ended.set()

    running = asyncio.create_task(run_in_strides(work, LARGE + 1))
    assert await asyncio.to_thread(began.wait, 60)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await asyncio.to_thread(ended.wait, 60)


async def test_errors_of_large_work_reach_the_caller() -> None:
    def work() -> None:
        raise LookupError

    with pytest.raises(LookupError):
        await run_in_strides(work, LARGE + 1)


def test_the_size_of_a_value_is_that_of_its_texts() -> None:
    assert size_of({"a": ["bc", {"d": "e" * LARGE}]}) > LARGE
    assert size_of({"a": [1, None, "bc"]}) < 20


@pytest.mark.parametrize(
    "text",
    ["", " \n ", "a", "\n\n  a b \nc", "a\x1cb", "x" * 200, "a" + " " * 300 + "\nb", "\u2028 y\u2028z", "\x85q\r\nr"],
)
def test_the_preview_is_the_first_line_that_is_not_empty(text: str) -> None:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    found = preview(text)
    assert found == (lines[0] if len(lines[0]) <= 160 else lines[0][:159] + "…") if lines else found is None


def make_turn(text: str) -> Turn:
    created = datetime(2026, 1, 1, tzinfo=UTC)
    return Turn(id="t", conversation="c", seq=0, position=0, role="user", actor="ada", content=text, created=created)


def test_the_size_of_a_turn_counts_its_text_and_its_tool_results() -> None:
    turn = make_turn("x" * 3 * LARGE)
    assert size_of(turn) > LARGE
    assert size_of([replace(turn, content="", tool_results=(ToolResult("a", {"said": "x" * 2 * LARGE}),))]) > LARGE
    assert size_of(replace(turn, content="short")) < 1_000
