"""`python -m tests.clients`: run the scenarios of every client, and write the table in docs/reference/compatibility.md.

A scenario that fails without a known reason fails the run; so does a known failure that passes.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from tests.clients.clients import CLIENTS, ROOT, Client, Outcome
from tests.clients.server import Target, target
from tests.clients.table import PAGE, replace_table
from tests.support.node import NoNode


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.clients", description=__doc__.partition("\n")[0])
    parser.add_argument("--only", action="append", metavar="CLIENT", help="may be repeated; writes no table")
    parser.add_argument("scenarios", nargs="*", help="of the client that --only names")
    chosen = parser.parse_args()
    clients = [one for one in CLIENTS if not chosen.only or one.name in chosen.only]
    with tempfile.TemporaryDirectory() as folder, target(Path(folder), embedder="local") as server:
        outcomes = [_report(one, server, chosen.scenarios) for one in clients]
    if not chosen.only:
        page = ROOT / PAGE
        page.write_text(replace_table(page.read_text(), CLIENTS, outcomes))
    return 1 if any(unexplained(*pair) for pair in zip(clients, outcomes, strict=True)) else 0


def _report(client: Client, server: Target, scenarios: list[str]) -> Outcome:
    try:
        outcome = client.outcome(server, scenarios)
    except NoNode as reason:
        outcome = Outcome(client.name, {}, {"the packages can be installed": str(reason)})
    passed = len(outcome.problems) - len(outcome.failed)
    print(f"{client.name}: {passed} of {len(outcome.problems)} passed", flush=True)
    for name, problem in outcome.failed.items():
        print(f"  {'known' if name in client.known_failures else 'FAILED'}: {name}: {problem}", flush=True)
    return outcome


def unexplained(client: Client, outcome: Outcome) -> set[str]:
    """Return scenarios that failed without a known reason, and known failures that passed."""
    known = client.known_failures.keys() & outcome.problems.keys()
    return set(outcome.failed) ^ known if outcome.problems else {"no scenario ran"}


if __name__ == "__main__":
    sys.exit(main())
