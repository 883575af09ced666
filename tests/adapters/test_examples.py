"""Every example runs where its framework is installed, and every adapter has a page and an example."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from importlib.util import find_spec
from os import environ
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
STREAMLIT = "streamlit_chat.py"  # which Streamlit runs
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.py") if path.name != STREAMLIT)
NOTEBOOK = ROOT / "examples/notebook.ipynb"
ARGUMENTS = {"fastapi_backend.py": ["--try"]}  # without it, it serves
PAGES = sorted((ROOT / "docs/how-to/adapters").glob("*.md"))
OWN = {"palaver", *sys.stdlib_module_names}


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
    command = [sys.executable, path, *ARGUMENTS.get(path.name, ())]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, env={**environ})
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip()


@pytest.mark.costly
def test_the_chat_in_streamlit_answers_and_remembers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    testing = pytest.importorskip("streamlit.testing.v1", reason="streamlit: make test-ecosystem runs it")
    monkeypatch.chdir(tmp_path)
    page = testing.AppTest.from_file(str(ROOT / "examples" / STREAMLIT), default_timeout=60).run()
    for message in ("I'm allergic to peanuts.", "What am I allergic to?"):
        page.chat_input[0].set_value(message).run()
    assert not page.exception
    shown = [message.markdown[0].value for message in page.chat_message]
    assert len(shown) == 4
    assert "peanuts" in shown[-1]


@pytest.mark.costly
async def test_the_cells_of_the_notebook_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As Jupyter runs them: one after the other, with `await` at the top level."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        if cell["cell_type"] == "code":
            code = compile("".join(cell["source"]), NOTEBOOK.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            if (running := FunctionType(code, names)()) is not None:
                await running
    assert "eight o'clock" in names["context"].text


@pytest.mark.costly
@pytest.mark.process  # the kernel
def test_jupyter_executes_the_notebook(tmp_path: Path) -> None:
    nbclient = pytest.importorskip("nbclient", reason="nbclient: make test-ecosystem runs it")
    nbformat = pytest.importorskip("nbformat")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    client = nbclient.NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}})
    assert any(cell.get("outputs") for cell in client.execute().cells)


@pytest.mark.parametrize("path", [*EXAMPLES, ROOT / "examples" / STREAMLIT], ids=lambda path: path.stem)
def test_an_example_says_what_to_install_and_how_to_run_it(path: Path) -> None:
    head = ast.get_docstring(ast.parse(path.read_text()))
    assert head
    assert "pip install" in head
    assert f"examples/{path.name}" in head


def test_the_index_lists_every_example() -> None:
    listed = set(re.findall(r"\]\(([a-z_]+\.(?:py|ipynb))\)", (ROOT / "examples/README.md").read_text()))
    assert listed == {path.name for path in (ROOT / "examples").iterdir() if path.suffix in (".py", ".ipynb")}


def test_every_page_names_an_example_that_is_there() -> None:
    named = [re.findall(r"examples/([a-z_]+\.py)", page.read_text()) for page in PAGES]
    assert all(named)
    assert {name for names in named for name in names} <= {path.name for path in EXAMPLES}


def test_every_page_names_its_adapter_and_its_extra() -> None:
    extras = set(re.findall(r"^([a-z-]+) = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE))
    for page in PAGES:
        text = page.read_text()
        assert set(re.findall(r"palaver\[([a-z-]+)\]", text)) <= extras
        modules = re.findall(r"palaver\.(adapters\.[a-z_]+)", text)
        assert modules, page
        assert all((ROOT / "src/palaver" / f"{name.replace('.', '/')}.py").exists() for name in modules), page
