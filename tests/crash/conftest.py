"""Options of the crash tests, their rounds, and what all rounds together showed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest

KILLS = 10
# Then a new database: every check reads all of it, and the time of one that keeps growing is quadratic.
KILLS_PER_DATABASE = 40
COUNTED = ("kills", "acknowledged", "cut_streams", "deleted", "repairs")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kills", type=int, default=KILLS, help="how often the crash test kills its writer")
    parser.addoption("--crash-seed", type=int, default=1, help="where the crash test's random moments start from")


@dataclass(frozen=True)
class Round:
    """Some kills of one database. `first` of all kills comes first."""

    first: int
    kills: int
    seed: int

    def __str__(self) -> str:
        return f"kills {self.first + 1} to {self.first + self.kills}"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "round" in metafunc.fixturenames:
        # The whole tree may have been collected without this file in sight of the command line: the default, then.
        kills = int(metafunc.config.getoption("--kills", KILLS))
        seed = int(metafunc.config.getoption("--crash-seed", 1))
        rounds = [
            Round(first, min(KILLS_PER_DATABASE, kills - first), seed + first)
            for first in range(0, kills, KILLS_PER_DATABASE)
        ]
        metafunc.parametrize("round", rounds, ids=str)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the sums of all rounds of a test."""
    sums: dict[str, Counter[str]] = {}
    for report in terminalreporter.getreports("passed"):
        found = {name: value for name, value in report.user_properties if name in COUNTED}
        if found:
            sums.setdefault(report.nodeid.partition("[")[0], Counter()).update(found)
    for name, sum in sums.items():
        terminalreporter.write_line(f"{name}: {', '.join(f'{sum[one]:,} {one}' for one in COUNTED)}, 0 lost")
