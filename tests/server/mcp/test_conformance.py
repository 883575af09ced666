"""The protocol's own conformance suite, and the Inspector, against our server.

If their packages are not available, these tests are skipped and say so.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.server.mcp import suites
from tests.server.mcp.suites import REVISIONS, TASKS, WITHOUT
from tests.support import node

pytestmark = pytest.mark.filterwarnings("ignore:The (logging|sampling) capability")  # which the suite asks for


@pytest.mark.parametrize("revision", REVISIONS)
def test_every_scenario_that_applies_passes(tmp_path: Path, revision: str) -> None:
    try:
        with suites.profile(tmp_path) as server:
            scored = suites.conformance(server, tmp_path, revision)
    except node.NoNode as reason:
        pytest.skip(str(reason))
    failed = {name for name, passed in scored.items() if not passed}
    assert failed - WITHOUT.keys() == set()
    assert failed == WITHOUT.keys() & scored.keys(), "a scenario passes that is said not to apply"


def test_the_page_names_what_does_not_apply() -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "mcp.md").read_text()
    assert TASKS in page
    assert all(name.startswith("tasks-") for name in WITHOUT), "say it in docs/how-to/mcp.md too"


@pytest.fixture
def inspector(tmp_path: Path) -> Iterator[suites.Inspector]:
    try:
        with suites.inspector(tmp_path) as one:
            yield one
    except node.NoNode as reason:
        pytest.skip(str(reason))


def test_the_inspector_reads_and_calls(inspector: suites.Inspector) -> None:
    for look in suites.INSPECTIONS:
        look(inspector)
