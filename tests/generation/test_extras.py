"""Optional dependencies: named where they are missing, and not loaded before they are needed."""

from __future__ import annotations

import subprocess
import sys

import pytest

CASES = {
    "openai": "from palaver.models.registry import open_model; open_model('openai:x', api_key='k')",
    "responses": "from palaver.models.registry import open_model; open_model('responses:x', api_key='k')",
    "anthropic": "from palaver.models.registry import open_model; open_model('anthropic:x', api_key='k')",
    "mcp": "import asyncio, palaver; asyncio.run(palaver.MCPTools('http://127.0.0.1:9/mcp').__aenter__())",
    "otel": "from palaver.telemetry import open_telemetry; open_telemetry(True)",
}
MODULES = {"openai": "openai", "responses": "openai", "anthropic": "anthropic", "mcp": "mcp", "otel": "opentelemetry"}


@pytest.mark.parametrize("case", CASES)
def test_a_missing_extra_is_named(case: str) -> None:
    hide = f"import sys; sys.modules[{MODULES[case]!r}] = None\n"
    done = subprocess.run([sys.executable, "-c", hide + CASES[case]], capture_output=True, text=True)
    assert done.returncode != 0
    extra = "openai" if case == "responses" else case
    assert f'pip install "palaver[{extra}]"' in done.stderr


def test_nothing_optional_is_loaded_to_open_a_store_and_answer_offline() -> None:
    program = """
import asyncio, sys, palaver
async def main():
    async with palaver.open("memory:", embedder=None) as store:
        await store.generate("x", "Well?")
asyncio.run(main())
print([name for name in ("openai", "anthropic", "mcp", "opentelemetry", "httpx2", "pydantic") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
