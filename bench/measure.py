"""Measures contestants in turn, so that noise of the machine affects all of them, and prints the results."""

from __future__ import annotations

import gc
import json
import os
import platform
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import palaver
from bench.texts import Texts
from palaver.conversations.internals import engine_of

Slice = Callable[[Any], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much to measure. All suites use these sizes."""

    slices: int = 24
    slice: int = 100  # appends per slice: short, so that neighbours see the same weather
    writers: int = 16
    histories: tuple[int, ...] = (100, 1_000, 10_000, 100_000, 1_000_000)
    reads: int = 10  # per slice
    opens: int = 20
    imports: int = 9
    file_turns: int = 10_000
    peer_turns: int = 300  # LangGraph writes the whole history at every step: more would only be slower


FULL = Sizes()
QUICK = Sizes(
    slices=8, slice=50, histories=(100, 1_000, 10_000), reads=5, opens=8, imports=5, file_turns=2_000, peer_turns=60
)


@dataclass(frozen=True, slots=True)
class Bench:
    """The input of a suite: how much to measure, a folder of its own, and messages to write."""

    sizes: Sizes
    folder: Path
    texts: Texts = field(default_factory=Texts)

    def url(self, name: str, synchronous: str = "FULL") -> str:
        return f"sqlite:///{self.folder / name}?synchronous={synchronous}"


@dataclass(frozen=True, slots=True)
class Goal:
    """A bound on a figure's ratio, or on its value."""

    bound: float
    at_least: bool = True
    of: str = "ratio"

    def met(self, figure: Figure) -> bool:
        found = getattr(figure, self.of)
        return bool(found >= self.bound if self.at_least else found <= self.bound)

    def __str__(self) -> str:
        return f"{self.of} {'≥' if self.at_least else '≤'} {self.bound:,g}"


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value, with its baseline of the same run."""

    suite: str
    what: str
    value: float
    unit: str
    baseline: float | None = None
    than: str = ""  # what the baseline is
    goal: Goal | None = None
    note: str = ""
    paired: float | None = None  # the ratio by rounds, where there were any: steadier than that of two medians

    @property
    def ratio(self) -> float | None:
        if self.paired is not None:
            return self.paired
        return self.value / self.baseline if self.baseline else None

    @property
    def met(self) -> bool | None:
        return None if self.goal is None else self.goal.met(self)

    def as_json(self) -> dict[str, Any]:
        goal = None if self.goal is None else str(self.goal)
        return {**asdict(self), "goal": goal, "ratio": self.ratio, "met": self.met}


@dataclass(frozen=True, slots=True)
class Skipped:
    """A suite, or a part of one, that could not run here."""

    suite: str
    why: str


Result = Figure | Skipped
Suite = Callable[[Bench], Awaitable[list[Result]]]


# ---- timing --------------------------------------------------------------------------------------------------------


async def timed(work: Awaitable[Any]) -> float:
    start = time.perf_counter()
    await work
    return time.perf_counter() - start


@dataclass(frozen=True, slots=True)
class Rounds:
    """Seconds per slice of each contestant, round by round."""

    taken: Mapping[str, list[float]]

    def seconds(self, name: str) -> float:
        return statistics.median(self.taken[name])

    def times(self, name: str, other: str) -> float:
        """Return the time as a multiple of `other`: the median over the rounds, since conditions change over time."""
        return statistics.median(a / b for a, b in zip(self.taken[name], self.taken[other], strict=True))

    def speed(self, suite: str, what: str, count: int, name: str, other: str, **rest: Any) -> Figure:
        """Return the speed with `count` things per slice, next to another's."""
        unit = rest.pop("unit", "/s")
        found, baseline = count / self.seconds(name), count / self.seconds(other)
        return Figure(suite, what, found, unit, baseline, paired=self.times(other, name), **rest)


async def nothing() -> None:
    pass


async def in_turns(
    slices: int,
    contestants: Mapping[str, Slice],
    *,
    material: Callable[[], Any] = lambda: None,
    after: Callable[[], Awaitable[Any]] = nothing,
) -> Rounds:
    """Run the contestants in turn, in both orders, after a round to warm up.

    `material` makes what a slice works on, and `after` finishes postponed work. Neither is part of the measured time.
    """
    taken: dict[str, list[float]] = {name: [] for name in contestants}
    gc.collect()
    gc.freeze()  # what else was imported here is nobody's burden
    for round in range(-1, slices):
        order = list(contestants) if round % 2 else list(reversed(contestants))
        for name in order:
            given = material()
            seconds = await timed(contestants[name](given))
            await after()
            if round >= 0:
                taken[name].append(seconds)
    gc.unfreeze()
    return Rounds(taken)


async def settle(store: palaver.Store) -> None:
    """Bring the text index up to date, as every search does: it follows appends in batches.

    Do not wait for summaries, notes and vectors, which the worker writes while writers pause.
    """
    await engine_of(store).index_all()


# ---- showing -------------------------------------------------------------------------------------------------------


def machine() -> dict[str, Any]:
    import apsw

    return {
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
    }


def show(results: Iterable[Result], console: Console) -> None:
    table = Table(title="Palaver, measured", title_justify="left")
    for name in ("suite", "what"):
        table.add_column(name)
    for name in ("measured", "baseline", "ratio"):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("goal", "met", "note"):
        table.add_column(name)
    suite = ""
    for result in results:
        if suite and result.suite != suite:
            table.add_section()
        suite = result.suite
        table.add_row(*_cells(result))
    console.print(table)


def _cells(result: Result) -> list[str]:
    if isinstance(result, Skipped):
        return [result.suite, "[bold yellow]SKIPPED[/]", "", "", "", "", "", f"[yellow]{result.why}[/]"]
    met = {None: "", True: "[green]yes[/]", False: "[bold red]NO[/]"}[result.met]
    return [
        result.suite,
        result.what,
        f"{_number(result.value)} {result.unit}",
        "" if result.baseline is None else f"{_number(result.baseline)} {result.unit}",
        "" if result.ratio is None else f"{result.ratio:,.2f}",
        "" if result.goal is None else str(result.goal),
        met,
        "; ".join(part for part in (result.than and f"baseline: {result.than}", result.note) if part),
    ]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.3g}"


def as_json(results: Iterable[Result]) -> str:
    rows = [asdict(one) if isinstance(one, Skipped) else one.as_json() for one in results]
    document = {"at": datetime.now(UTC).isoformat(timespec="seconds"), "machine": machine(), "results": rows}
    return json.dumps(document, indent=2, ensure_ascii=False)
