"""The clients: their packages, and how the scenarios of each are run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.clients.server import Target
from tests.server.mcp import suites
from tests.support import node

ROOT = Path(__file__).parents[2]
SCENARIOS = Path(__file__).parent / "scenarios"
SECONDS = 300


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of the scenarios of one client. A problem is None, or the error."""

    client: str
    packages: Mapping[str, str]
    problems: Mapping[str, str | None]

    @property
    def failed(self) -> dict[str, str]:
        return {name: problem for name, problem in self.problems.items() if problem is not None}


@dataclass(frozen=True, slots=True)
class Client:
    """A client: a name for the table, how to run it, and scenarios that fail, with the reason."""

    name: str
    run: Callable[[Target, Sequence[str]], str]
    known_failures: Mapping[str, str] = field(default_factory=dict)

    def outcome(self, target: Target, scenarios: Sequence[str] = ()) -> Outcome:
        """Run all scenarios, or those that are named."""
        lines = [json.loads(line) for line in self.run(target, scenarios).splitlines() if line.startswith("{")]
        packages = next((one["packages"] for one in lines if "packages" in one), {})
        return Outcome(self.name, packages, {one["scenario"]: one["problem"] for one in lines if "scenario" in one})


def _call(command: Sequence[str], cwd: Path, target: Target) -> str:
    """Run a command and return its output. If it fails, that is a scenario that failed."""
    quiet = {"DO_NOT_TRACK": "1", "NO_COLOR": "1", "NO_PROXY": "127.0.0.1", "PYTHONWARNINGS": "ignore"}
    environment = {**os.environ, **quiet, **target.environment}
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=SECONDS, env=environment)
    if done.returncode:
        words = (done.stderr.strip() or "no message").splitlines()[-1]
        return f"{done.stdout}\n" + json.dumps({"scenario": "the program runs to its end", "problem": words[:400]})
    return done.stdout


# ---- Python --------------------------------------------------------------------------------------------------------


def interpreter(environment: str) -> str:
    """The interpreter with the clients, in the folder that `make test-clients` names; otherwise this one."""
    folder = os.environ.get("PALAVER_CLIENTS")
    return str(ROOT / folder / environment / "bin" / "python") if folder else sys.executable


def python(module: str, environment: str = "newest") -> Callable[[Target, Sequence[str]], str]:
    def run(target: Target, scenarios: Sequence[str]) -> str:
        command = [interpreter(environment), "-m", f"tests.clients.scenarios.{module}", *scenarios]
        return _call(command, ROOT, target)

    return run


# ---- Node ----------------------------------------------------------------------------------------------------------


def javascript(folder: str, script: str, *packages: str) -> Callable[[Target, Sequence[str]], str]:
    def run(target: Target, scenarios: Sequence[str]) -> str:
        where = node.installed(folder, *packages)
        copy = where / f"{os.getpid()}-{script}"
        copy.write_text((SCENARIOS / script).read_text())
        try:
            return _call([node.node(), str(copy), *scenarios], where, target)
        finally:
            copy.unlink()

    return run


def mcp_suites(_: Target, __: Sequence[str]) -> str:
    """Run the conformance suite and the Inspector, against servers with what these expect to find."""
    lines: list[dict[str, object]] = [{"packages": suites.VERSIONS}]
    with TemporaryDirectory() as folder:
        with suites.profile(Path(folder)) as server:
            for revision in suites.REVISIONS:
                scored = suites.conformance(server, Path(folder), revision)
                lines += [_scored(f"{revision}: {name}", passed) for name, passed in scored.items()]
        with suites.inspector(Path(folder)) as inspector:
            for look in suites.INSPECTIONS:
                look(inspector)
                lines.append(_scored(f"Inspector {look.__name__.replace('_', ' ')}", True))
    return "\n".join(json.dumps(one) for one in lines)


def _scored(name: str, passed: bool) -> dict[str, object]:
    return {"scenario": name, "problem": None if passed else "did not pass"}


AI_SDK_7 = ("ai@7", "@ai-sdk/openai@4", "@ai-sdk/anthropic@4", "@ai-sdk/openai-compatible@3", "zod@4")
OPENAPI_TYPESCRIPT = ("openapi-typescript@7", "openapi-fetch@0.17", "typescript@5")
AI_SDK_6 = ("ai@6", "@ai-sdk/openai@3", "@ai-sdk/anthropic@3", "@ai-sdk/openai-compatible@2", "zod@4")

WITHOUT_TASKS = {f"2026-07-28: {name}": reason for name, reason in suites.WITHOUT.items()}

OPENAI = Client("openai", python("openai_python"))
ANTHROPIC = Client("anthropic", python("anthropic_python"))
AGENTS = Client("openai-agents", python("openai_agents_python"))
NEWEST_AI_SDK = Client("AI SDK 7", javascript("ai-sdk-7", "ai_sdk.mjs", *AI_SDK_7))
CLIENTS = (
    OPENAI,
    ANTHROPIC,
    AGENTS,
    Client("LangChain", python("langchain_python")),
    Client("LlamaIndex", python("llama_index_python", "openai-2")),
    Client("Pydantic AI", python("pydantic_ai_python")),
    Client("litellm", python("litellm_python", "openai-2")),
    Client("FastMCP", python("fastmcp_python")),
    NEWEST_AI_SDK,
    Client("AI SDK 6", javascript("ai-sdk-6", "ai_sdk.mjs", *AI_SDK_6)),
    Client("MCP conformance and Inspector", mcp_suites, WITHOUT_TASKS),
    Client("openapi-python-client", python("openapi_python_client")),
    Client(
        "openapi-typescript",
        javascript("openapi-ts", "openapi_typescript.mjs", *OPENAPI_TYPESCRIPT),
    ),
)
