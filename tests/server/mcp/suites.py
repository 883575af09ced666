"""The protocol's own conformance suite and the Inspector, under Node: packages of npm, fetched once into a cache."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from palaver.server.mcp import protocol
from palaver.server.settings import ServerSettings
from tests.server.conftest import Running, ok, running
from tests.server.mcp.profile import with_fixtures
from tests.support import node

VERSIONS = {"@modelcontextprotocol/conformance": "0.2.0-alpha.12", "@modelcontextprotocol/inspector": "2.12.0"}
REVISIONS = ("2025-11-25", "2026-07-28")
SECONDS = 240

# Scenarios that do not apply, with the reason. docs/how-to/mcp.md has the same list.
TASKS = "the tasks extension is not supported, because every tool finishes within its call"
WITHOUT: dict[str, str] = dict.fromkeys(
    (
        "tasks-lifecycle", "tasks-capability-negotiation", "tasks-wire-fields", "tasks-request-state-removal",
        "tasks-mrtr-input", "tasks-request-headers", "tasks-dispatch-and-envelope", "tasks-required-task-error",
        "tasks-mrtr-composition",
    ),
    TASKS,
)  # fmt: skip


def _package(name: str) -> Path:
    folder = node.installed(name.replace("@modelcontextprotocol/", "mcp-"), f"{name}@{VERSIONS[name]}")
    return folder / "node_modules" / name


def _run(script: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [node.node(), str(script), *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={**os.environ, "DO_NOT_TRACK": "1", "NO_COLOR": "1"},
    )


# ---- conformance ---------------------------------------------------------------------------------------------------


@contextmanager
def profile(folder: Path) -> Iterator[Running]:
    """Our server with what the suite expects to find."""
    create = protocol.create_server
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protocol, "create_server", lambda host: with_fixtures(create(host)))
        with running(ServerSettings(url=f"sqlite:///{folder}/chat.db", embedder="none")) as one:
            yield one


def conformance(server: Running, folder: Path, revision: str) -> dict[str, bool]:
    """Run the suite; return which scenarios passed."""
    suite = _package("@modelcontextprotocol/conformance") / "dist" / "index.js"
    options = ("--requirements", revision, "--timeout", "60000")
    done = _run(suite, "server", "--url", f"{server.url}/mcp", *options, cwd=folder)
    scored = {found[2]: found[1] == "✓" for found in re.finditer(r"^([✓✗]) ([\w-]+): \d+ passed", done.stdout, re.M)}
    assert len(scored) > 30, done.stdout + done.stderr
    return scored


# ---- the Inspector -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Inspector:
    """The Inspector's command line, calling our server with a key."""

    launcher: Path
    url: str
    key: str
    folder: Path

    def __call__(self, method: str, *arguments: str) -> Any:
        options = ("--transport", "http", "--header", f"Authorization: Bearer {self.key}", "--method", method)
        done = _run(self.launcher, "--cli", f"{self.url}/mcp", *options, *arguments, cwd=self.folder)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def lists_tools(self) -> None:
        named = {one["name"] for one in self("tools/list")["tools"]}
        assert {"recall", "remember", "append", "history"} <= named
        assert "forget" not in named

    def calls_a_tool(self) -> None:
        answer = self("tools/call", "--tool-name", "recall", "--tool-arg", "query=peanuts")
        assert answer["structuredContent"]["pieces"][0]["text"] == "No peanuts, please."

    def lists_and_reads_resources(self) -> None:
        (listed,) = self("resources/list")["resources"]
        assert listed["title"] == "Lisbon"
        read = self("resources/read", "--uri", listed["uri"])["contents"][0]
        assert json.loads(read["text"])["messages"][0]["content"] == "No peanuts, please."

    def lists_templates(self) -> None:
        assert len(self("resources/templates/list")["resourceTemplates"]) == 3

    def gets_a_prompt(self) -> None:
        prompt = self("prompts/get", "--prompt-name", "continue_latest", "--prompt-args", "message=Hello")
        assert "Hello" in prompt["messages"][-1]["content"]["text"]


INSPECTIONS = (
    Inspector.lists_tools,
    Inspector.calls_a_tool,
    Inspector.lists_and_reads_resources,
    Inspector.lists_templates,
    Inspector.gets_a_prompt,
)


@contextmanager
def inspector(folder: Path) -> Iterator[Inspector]:
    launcher = _package("@modelcontextprotocol/inspector") / "clients" / "launcher" / "build" / "index.js"
    settings = ServerSettings(
        url=f"sqlite:///{folder}/inspected.db", embedder="none", require_auth=True, jwt_secret="x" * 32
    )
    with running(settings) as server:
        key = server.key()
        with server.client(key) as client:
            talk = ok(client.post("/api/conversations", json={"key": "trip/7", "title": "Lisbon"}))["id"]
            ok(client.post(f"/api/conversations/{talk}/turns", json={"role": "user", "content": "No peanuts, please."}))
        yield Inspector(launcher, server.url, key, folder)
