"""The short form of `make test-clients`: the clients that the tests have at hand anyway."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clients.__main__ import unexplained
from tests.clients.clients import AGENTS, ANTHROPIC, CLIENTS, NEWEST_AI_SDK, OPENAI, ROOT, Client, Outcome
from tests.clients.server import Target, target
from tests.clients.table import PAGE, replace_table
from tests.support import node


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with target(tmp_path_factory.mktemp("clients")) as one:
        yield one


@pytest.mark.parametrize("client", [OPENAI, ANTHROPIC, AGENTS, NEWEST_AI_SDK], ids=lambda client: client.name)
def test_every_scenario_passes_or_its_failure_is_explained(client: Client, server: Target) -> None:
    try:
        outcome = client.outcome(server)
    except node.NoNode as reason:
        pytest.skip(f"{client.name} is not tested: {reason}")
    assert unexplained(client, outcome) == set(), outcome.failed
    assert len(outcome.problems) > 8


def test_the_page_has_a_row_for_every_client() -> None:
    page = (ROOT / PAGE).read_text()
    assert [name for name in (one.name for one in CLIENTS) if f"\n| {name} | " not in page] == []
    assert "not explained" not in page


def test_a_failure_without_a_reason_fails_the_run_and_so_does_a_reason_without_a_failure() -> None:
    client = Client("some", lambda *_: "", {"known": "the provider's fault"})
    assert unexplained(client, Outcome("some", {}, {"known": "error", "other": None})) == set()
    assert unexplained(client, Outcome("some", {}, {"known": None, "other": "error"})) == {"known", "other"}
    assert unexplained(client, Outcome("some", {}, {})) == {"no scenario ran"}


def test_the_table_is_written_between_its_marks() -> None:
    before = (ROOT / PAGE).read_text()
    client = Client("some", lambda *_: "", {"known": "the provider's fault"})
    after = replace_table(before, [client], [Outcome("some", {"it": "1.2"}, {"known": "error", "other": None})])
    assert "| some | it 1.2 | 1 of 2 | 1: the provider's fault |" in after
    assert after.startswith(before.partition("<!--")[0])
    assert after.endswith(before.rpartition("-->")[2])
