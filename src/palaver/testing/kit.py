"""Guarantees, and a runner for them that needs no test framework."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from inspect import cleandoc
from pathlib import Path
from typing import Any, Protocol

from palaver.conversations.opener import open as open_store
from palaver.conversations.store import Store

PATIENCE = 60.0  # seconds that a guarantee may take before it counts as broken


class Database(Protocol):
    """A database that can be opened several times, even at the same time, with options of `palaver.open`."""

    def open(self, **options: Any) -> AbstractAsyncContextManager[Store]: ...


@dataclass(frozen=True, slots=True)
class DatabaseAt:
    """The database at a URL. `files` is the place of its attachments, if they are not next to it."""

    url: str
    files: Path | None = None

    def open(self, **options: Any) -> AbstractAsyncContextManager[Store]:
        return open_store(self.url, **{"files": self.files, **options})


Factory = Callable[[], AbstractAsyncContextManager[Database]]
Function = Callable[[Database], Awaitable[None]]


# ---- guarantees ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Guarantee:
    """A guarantee of the storage. `docstring` states it; `function` raises if a database does not keep it."""

    name: str
    docstring: str
    function: Function
    topic: str

    def __str__(self) -> str:
        return f"{self.topic}-{self.name}"


GUARANTEES: list[Guarantee] = []


def guarantee(function: Function) -> Function:
    """Add a function to `GUARANTEES` (a decorator). Its topic is the name of its module."""
    name = getattr(function, "__name__", "")
    said = cleandoc(function.__doc__ or "")
    if not said:
        raise ValueError(f"{name} needs a docstring: the sentence that it guarantees")
    GUARANTEES.append(Guarantee(name, said, function, function.__module__.rpartition(".")[2]))
    return function


# ---- checking ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one guarantee. `problem` is None if the database keeps it."""

    guarantee: Guarantee
    seconds: float
    problem: str | None = None

    def __str__(self) -> str:
        line = f"{'BROKEN' if self.problem else 'held  '}  {self.guarantee.topic}: {self.guarantee.docstring}"
        return f"{line}\n        {self.problem}" if self.problem else line


@dataclass(frozen=True, slots=True)
class Report:
    """The results of `check`. `ok` is true if no guarantee is broken."""

    results: tuple[Result, ...]

    @property
    def held(self) -> list[Guarantee]:
        return [result.guarantee for result in self.results if result.problem is None]

    @property
    def broken(self) -> list[Result]:
        return [result for result in self.results if result.problem is not None]

    @property
    def ok(self) -> bool:
        return not self.broken

    def __str__(self) -> str:
        return f"{len(self.held)} of {len(self.results)} guarantees held"


async def check(
    factory: Factory,
    *,
    guarantees: Sequence[Guarantee] | None = None,
    say: Callable[[str], object] | None = print,
) -> Report:
    """Run guarantees (by default all), each on a new database, and return a `Report`."""
    if not __debug__:
        raise RuntimeError("guarantees are assert statements, which python -O leaves out: run without -O")
    results = []
    for one in GUARANTEES if guarantees is None else guarantees:
        results.append(await _check_one(factory, one))
        if say:
            say(str(results[-1]))
    report = Report(tuple(results))
    if say:
        say(str(report))
    return report


async def _check_one(factory: Factory, one: Guarantee) -> Result:
    started = time.perf_counter()
    problem = None
    try:
        async with asyncio.timeout(PATIENCE), factory() as database:
            await one.function(database)
    except Exception as broken:  # whatever it is, the promise was not kept
        problem = _where(broken)
    return Result(one, time.perf_counter() - started, problem)


def _where(broken: Exception) -> str:
    frames = traceback.extract_tb(broken.__traceback__)
    place = next((one for one in reversed(frames) if "guarantees" in one.filename), frames[-1])
    name = Path(place.filename).name
    return f"{type(broken).__name__} {broken} ({name}:{place.lineno}: {place.line})".replace("  ", " ")


# ---- what guarantees are written with ------------------------------------------------------------------------------


async def eventually(condition: Callable[[], Awaitable[bool]], *, patience: float = 60.0) -> None:
    """Wait until `condition` holds, for a limited time."""
    async with asyncio.timeout(patience):
        while not await condition():  # noqa: ASYNC110 (an engine has no event for everything)
            await asyncio.sleep(0.005)


@asynccontextmanager
async def refused(error: type[BaseException], **attributes: Any) -> AsyncIterator[None]:
    """Require that the block raises `error`, with these attributes."""
    try:
        yield
    except error as problem:
        found = {name: getattr(problem, name) for name in attributes}
    else:
        raise AssertionError(f"{error.__name__} was not raised")
    assert found == attributes, f"{error.__name__} with {found}, not with {attributes}"
