from __future__ import annotations

import pytest

KILLS = 10


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kills", type=int, default=KILLS, help="how often the crash test kills its writer")
    parser.addoption("--crash-seed", type=int, default=1, help="where the crash test's random moments start from")


@pytest.fixture
def kills(request: pytest.FixtureRequest) -> int:
    # The whole tree may have been collected without this file in sight of the command line: then the default counts.
    return int(request.config.getoption("--kills", KILLS))


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("--crash-seed", 1))
