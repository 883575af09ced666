"""Runs scenarios one after another and prints a line of JSON for each: its name and, if it failed, the problem."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import sys
import traceback
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

URL = os.environ.get("PALAVER_URL", "")
KEY = os.environ.get("PALAVER_KEY", "")
EMBEDS = os.environ.get("PALAVER_EMBEDDER") != "none"  # the server makes vectors
WRONG_KEY = "pk_wrong"
# A picture of one pixel.
DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

_scenarios: dict[str, Callable[[], Any]] = {}


def scenario(work: Callable[[], Any]) -> Callable[[], Any]:
    """Register a function, which may be a coroutine, under its name in words."""
    _scenarios[work.__name__.replace("_", " ")] = work
    return work


def main(*packages: str) -> None:
    """Run the scenarios, or those that are named on the command line."""
    wanted = sys.argv[1:] or [name for name in _scenarios if EMBEDS or "embedding" not in name]
    print(json.dumps({"packages": {name: version(name) for name in packages}}), flush=True)
    for name in wanted:
        print(json.dumps({"scenario": name, "problem": _problem(_scenarios[name])}), flush=True)


def _problem(work: Callable[[], Any]) -> str | None:
    try:
        asyncio.run(work()) if inspect.iscoroutinefunction(work) else work()
    except Exception as problem:
        last = traceback.extract_tb(problem.__traceback__)
        line = next((one for one in reversed(last) if one.filename.endswith(work.__code__.co_filename)), last[-1])
        return f"{type(problem).__name__}: {str(problem)[:400]} (line {line.lineno}: {line.line})"
    return None


def raises(kind: type[Exception], work: Callable[[], Any]) -> Any:
    """Return the exception of that type, which the call must raise."""
    try:
        done = work()
    except kind as problem:
        return problem
    raise AssertionError(f"no {kind.__name__}, but {done!r}")
