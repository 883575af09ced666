"""The protocol's own conformance suite, and the Inspector, against our server.

Both are packages of npm, fetched once into a cache; where they cannot be had, these tests are skipped and say so.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from palaver.server.mcp import protocol
from palaver.server.settings import ServerSettings
from tests.server.conftest import Running, ok, running
from tests.server.mcp.profile import with_fixtures
from tests.support import node

SUITE = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
INSPECTOR = "@modelcontextprotocol/inspector@2.12.0"
SECONDS = 240
pytestmark = pytest.mark.filterwarnings("ignore:The (logging|sampling) capability")  # which the suite asks for

# Scenarios that do not apply, with the reason. docs/mcp.md has the same list.
TASKS = "the tasks extension: no tool of ours runs longer than its call"
WITHOUT: dict[str, str] = {
    "tasks-lifecycle": TASKS,
    "tasks-capability-negotiation": TASKS,
    "tasks-wire-fields": TASKS,
    "tasks-request-state-removal": TASKS,
    "tasks-mrtr-input": TASKS,
    "tasks-request-headers": TASKS,
    "tasks-dispatch-and-envelope": TASKS,
    "tasks-required-task-error": TASKS,
    "tasks-mrtr-composition": TASKS,
}


def packages(name: str, package: str) -> Path:
    try:
        return node.installed(name, package) / "node_modules" / package.rpartition("@")[0]
    except node.NoNode as reason:
        pytest.skip(str(reason))


def run(script: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [node.node(), str(script), *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={**os.environ, "DO_NOT_TRACK": "1", "NO_COLOR": "1"},
    )


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """Our server with what the suite expects to find."""
    create = protocol.create_server
    monkeypatch.setattr(protocol, "create_server", lambda host: with_fixtures(create(host)))
    with running(ServerSettings(url=f"sqlite:///{tmp_path}/chat.db", embedder="none")) as one:
        yield one


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_every_scenario_that_applies_passes(profile: Running, tmp_path: Path, revision: str) -> None:
    suite = packages("mcp-conformance", SUITE) / "dist" / "index.js"
    options = ("--requirements", revision, "--timeout", "60000")
    done = run(suite, "server", "--url", f"{profile.url}/mcp", *options, cwd=tmp_path)
    scored = {found[2]: found[1] == "✓" for found in re.finditer(r"^([✓✗]) ([\w-]+): \d+ passed", done.stdout, re.M)}
    assert len(scored) > 30, done.stdout + done.stderr
    failed = {name for name, passed in scored.items() if not passed}
    assert failed - WITHOUT.keys() == set(), done.stdout
    assert failed == WITHOUT.keys() & scored.keys(), "a scenario passes that is said not to apply"


def test_the_page_names_what_does_not_apply() -> None:
    page = (Path(__file__).parents[3] / "docs" / "mcp.md").read_text()
    assert TASKS in page
    assert all(name.startswith("tasks-") for name in WITHOUT), "say it in docs/mcp.md too"


# ---- the Inspector -------------------------------------------------------------------------------------------------

Inspect = Callable[..., Any]


@pytest.fixture
def inspect(tmp_path: Path) -> Iterator[Inspect]:
    """The Inspector's command line, calling our server with a key."""
    launcher = packages("mcp-inspector", INSPECTOR) / "clients" / "launcher" / "build" / "index.js"
    settings = ServerSettings(
        url=f"sqlite:///{tmp_path}/chat.db", embedder="none", require_auth=True, jwt_secret="x" * 32
    )
    with running(settings) as server:
        key = server.key()

        def call(method: str, *arguments: str) -> Any:
            options = ("--transport", "http", "--header", f"Authorization: Bearer {key}", "--method", method)
            done = run(launcher, "--cli", f"{server.url}/mcp", *options, *arguments, cwd=tmp_path)
            assert done.returncode == 0, done.stderr
            return json.loads(done.stdout)

        with server.client(key) as client:
            talk = ok(client.post("/api/conversations", json={"key": "trip/7", "title": "Lisbon"}))["id"]
            ok(client.post(f"/api/conversations/{talk}/turns", json={"role": "user", "content": "No peanuts, please."}))
        yield call


def test_the_inspector_reads_and_calls(inspect: Inspect) -> None:
    named = {one["name"] for one in inspect("tools/list")["tools"]}
    assert {"recall", "remember", "append", "history"} <= named
    assert "forget" not in named
    answer = inspect("tools/call", "--tool-name", "recall", "--tool-arg", "query=peanuts")
    assert answer["structuredContent"]["pieces"][0]["text"] == "No peanuts, please."
    (listed,) = inspect("resources/list")["resources"]
    assert listed["title"] == "Lisbon"
    read = inspect("resources/read", "--uri", listed["uri"])["contents"][0]
    assert json.loads(read["text"])["messages"][0]["content"] == "No peanuts, please."
    assert len(inspect("resources/templates/list")["resourceTemplates"]) == 3
    prompt = inspect("prompts/get", "--prompt-name", "continue_latest", "--prompt-args", "message=Hello")
    assert "Hello" in prompt["messages"][-1]["content"]["text"]
