"""Marks that follow from what a test uses: `postgres`, `browser`, `process`, `server` and `property`.

Nobody has to write them. `make quick` leaves out the first four, `make properties` runs the last with many examples.
"""

from __future__ import annotations

import dis
import subprocess
import threading
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest

TESTS = Path(__file__).parents[1]
READER = "palaver.files.child"
WAYS = {
    "process": {"subprocess", "create_subprocess_exec", "create_subprocess_shell", "fork"},
    "server": {"uvicorn"},
}


def add_marks(items: list[pytest.Item]) -> None:
    for item in items:
        for name in sorted(needs(item)):
            item.add_marker(name)


def needs(item: pytest.Item) -> set[str]:
    fixtures = set(getattr(item, "fixturenames", ()))
    call = getattr(item, "callspec", None)
    found = set()
    if "postgres" in fixtures or (call is not None and "postgres" in map(str, call.params.values())):
        found.add("postgres")
    if "browser" in fixtures:
        found.add("browser")
    if getattr(getattr(item, "function", None), "is_hypothesis_test", False):
        found.add("property")
    return found.union(*map(started_by, _functions_of(item)))


def _functions_of(item: pytest.Item) -> Iterator[Callable[..., Any]]:
    """The test and its fixtures; Postgres and the browser have marks of their own."""
    if isinstance(item, pytest.Function):
        yield item.function
        for name, definitions in item._fixtureinfo.name2fixturedefs.items():
            if name not in ("postgres", "browser"):
                yield from (one.func for one in definitions)


_known: dict[CodeType, frozenset[str]] = {}


def started_by(function: Any) -> frozenset[str]:
    """The marks of what it names: a way to start a process or a server, or a function of the tests that has them."""
    function = getattr(function, "__wrapped__", function)
    if not isinstance(function, FunctionType):
        return frozenset()
    code = function.__code__
    if code not in _known:
        if not Path(code.co_filename).is_relative_to(TESTS):
            return _known.setdefault(code, frozenset())
        _known[code] = frozenset()  # for functions that call themselves
        names = [*_names(code)]
        found = {mark for mark, ways in WAYS.items() if ways & {*names}}
        _known[code] = frozenset(found).union(*map(started_by, _used(code, names, function.__globals__)))
    return _known[code]


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


def _used(code: CodeType, names: list[str], known: dict[str, Any]) -> Iterator[Any]:
    """Return what the names in some code refer to, one step into the helper modules of the tests."""
    found = [known[name] for name in names if name in known]
    yield from found
    if any(_is_helper(one) for one in found):
        yield from _attributes(code, known)


def _is_helper(used: Any) -> bool:
    return isinstance(used, ModuleType) and used.__name__.startswith("tests.")


def _attributes(code: CodeType, known: dict[str, Any]) -> Iterator[Any]:
    for step, then in pairwise(dis.get_instructions(code)):
        if isinstance(step.argval, CodeType):
            yield from _attributes(step.argval, known)
        elif step.opname == "LOAD_GLOBAL" and _is_helper(known.get(step.argval)):
            yield getattr(known[step.argval], str(then.argval), None)


# ---- a quick run starts none ---------------------------------------------------------------------------------------


def note_processes(started: list[str]) -> None:
    """From now on, add the command of each process that a test starts.

    Not those of servers in threads, nor the one in which the library reads a file.
    """
    begin = subprocess.Popen.__init__

    def noting(self: Any, args: Any, *more: Any, **options: Any) -> None:
        if threading.current_thread() is threading.main_thread() and READER not in args:
            started.append(str(args))
        begin(self, args, *more, **options)

    subprocess.Popen.__init__ = noting  # type: ignore[method-assign]
