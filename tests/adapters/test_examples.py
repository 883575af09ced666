"""Every example runs where its framework is installed, and every adapter has a page and an example."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from os import environ
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PAGES = sorted((ROOT / "docs/how-to/adapters").glob("*.md"))
OWN = {"palaver", "asyncio", "collections", "typing", "json", "os", "sys", "pathlib", "tempfile"}
WITH_MODELS = "langgraph_agent.py"  # the embedder takes a second to load


def missing_modules(text: str) -> list[str]:
    """The frameworks that a program imports and that are not installed here."""
    names = set(re.findall(r"^(?:from|import) ([a-z_.]+)", text, re.MULTILINE))
    return sorted(name for name in names if name.partition(".")[0] not in OWN and not is_installed(name))


def is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.costly
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_runs(path: Path, tmp_path: Path) -> None:
    if missing := missing_modules(path.read_text()):
        pytest.skip(f"{missing[0]} is not installed: make test-ecosystem runs it")
    result = subprocess.run(
        [sys.executable, path], cwd=tmp_path, capture_output=True, text=True, timeout=120, env={**environ}
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()


def test_every_page_names_an_example_that_is_there() -> None:
    named = [re.findall(r"examples/([a-z_]+\.py)", page.read_text()) for page in PAGES]
    assert all(named)
    assert {name for names in named for name in names} == {path.name for path in EXAMPLES}


def test_every_page_names_its_adapter_and_its_extra() -> None:
    extras = set(re.findall(r"^([a-z-]+) = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE))
    for page in PAGES:
        text = page.read_text()
        assert set(re.findall(r"palaver\[([a-z-]+)\]", text)) <= extras
        modules = re.findall(r"palaver\.(adapters\.[a-z_]+)", text)
        assert modules, page
        assert all((ROOT / "src/palaver" / f"{name.replace('.', '/')}.py").exists() for name in modules), page
