"""`python -m tests.adapters`: run the tests of the adapters; write their table in docs/reference/compatibility.md."""

from __future__ import annotations

import sys
from collections import defaultdict
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/reference/compatibility.md"
BEGIN, END = "<!-- adapters: written by make test-ecosystem -->", "<!-- end of adapters -->"
# The adapter, the package that it is tested with, and its tests.
ADAPTERS = (
    ("LangGraph checkpointer", "langgraph", "test_langgraph_checkpointer"),
    ("LangGraph store", "langgraph", "test_langgraph_store"),
    ("LangChain history and retriever", "langchain-core", "test_langchain"),
    ("OpenAI Agents session", "openai-agents", "test_openai_agents"),
    ("Pydantic AI history", "pydantic-ai-slim", "test_pydantic_ai"),
    ("LlamaIndex chat stores and block", "llama-index-core", "test_llama_index"),
    ("Google ADK sessions and memory", "google-adk", "test_google_adk"),
    ("Agent Framework history", "agent-framework-core", "test_agent_framework"),
    ("Anthropic memory tool", "anthropic", "test_anthropic_memory"),
    ("from_openai, from_anthropic", "openai", "test_messages"),
)


@dataclass
class Counts:
    """The outcomes of the tests, by module, and what the suites of frameworks reported."""

    passed: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    failed: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    suites: dict[str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        module = Path(report.nodeid.split("::")[0]).stem
        if report.failed:
            self.failed[module] += 1
        elif report.when == "call" and report.passed:
            self.passed[module] += 1
            self.suites[module] |= {str(value): None for name, value in report.user_properties if name == "suite"}


def table(counts: Counts) -> str:
    lines = ["| adapter | version | tests passed | suites of the framework, and others |", "|---|---|---|---|"]
    for name, package, module in ADAPTERS:
        passed, failed = counts.passed[module], counts.failed[module]
        suites = "; ".join(counts.suites[module]) or "none is published"
        lines.append(f"| {name} | {package} {_version(package)} | {passed} of {passed + failed} | {suites} |")
    return "\n".join(lines)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "is not installed"


def main() -> int:
    counts = Counts()
    options = ["-m", "slow or not slow", "-q", "--timeout", "300", *sys.argv[1:]]
    status = pytest.main([str(Path(__file__).parent), *options], plugins=[counts])
    before, rest = PAGE.read_text().split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n\n{table(counts)}\n\n{END}{rest.split(END)[1]}")
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
