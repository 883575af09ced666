"""The table of clients in docs/reference/compatibility.md, written from a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from tests.clients.clients import Client, Outcome

PAGE = "docs/reference/compatibility.md"
BEGIN, END = "<!-- clients: written by make test-clients -->", "<!-- end of clients -->"


def replace_table(page: str, clients: Sequence[Client], outcomes: Sequence[Outcome]) -> str:
    before, rest = page.split(BEGIN)
    _, after = rest.split(END)
    table = "\n".join(_lines(zip(clients, outcomes, strict=True)))
    return f"{before}{BEGIN}\n\n{table}\n\n{END}{after}"


def _lines(pairs: Iterable[tuple[Client, Outcome]]) -> Iterable[str]:
    yield "| client | versions | scenarios passed | failures |"
    yield "|---|---|---|---|"
    for client, outcome in pairs:
        versions = ", ".join(f"{name} {number}" for name, number in outcome.packages.items())
        passed = len(outcome.problems) - len(outcome.failed)
        yield f"| {client.name} | {versions} | {passed} of {len(outcome.problems)} | {_reasons(client, outcome)} |"


def _reasons(client: Client, outcome: Outcome) -> str:
    """Say why scenarios failed; those with the same reason are counted."""
    counts = Counter(client.known_failures.get(name, f"{name}: not explained") for name in outcome.failed)
    return "; ".join(f"{count}: {reason}" for reason, count in counts.items()) or "none"
